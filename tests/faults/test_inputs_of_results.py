"""Damaged results under the commands that read them: `search`, `audit`, the card of an exported checkpoint.

A file of a stage is refused by its manifest, or not read. An index or a table, which has no digest, may be read as it
is: it is refused by a sentence, or what comes is what its lines say.
"""

import json
import os
import shutil
from pathlib import Path

import plain_readers
import pytest
from bad_inputs import each_case, json_lines
from desk import EPISODE, HOME, make_desk

from commands import card
from commands.audit import audit, form_of, printed
from commands.search import search
from commands.stages import stage_at
from teleport.negatives.forms import FORMS, Mined

pytestmark = pytest.mark.faults
TABLES = "results/tables/mine"
README = f"{EPISODE}/train/checkpoint/README.md"
COMMANDS = {
    "search": lambda: list(search("mine/tuned", ["word1 word2"], None, 5, as_json=True)),
    "audit of a pool": lambda: printed(audit(EPISODE / "merge")),
    "card": lambda: card.with_head(
        Path(README).read_text() + card.scores_text(EPISODE) + card.example_text(EPISODE),
        stage_at(EPISODE / "train").input("pretrained"),
        EPISODE,
        "mit",
        "en",
    ),
}
OF_CARD = [f"{TABLES}/main{ending}" for ending in (".csv", ".sources.csv", ".pairs.csv")]
READS = {  # kinds of stages, and files that have no digest
    "search": (["corpus", "tokens", "pretrained", "encode", "train"], [f"{HOME}/plan.tsv"]),
    "audit of a pool": (["corpus", "split", "encode", "retrieve", "merge"], []),
    "card": (["corpus", "split", "evaluate", "pretrained"], OF_CARD),
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a finished experiment; `kinds`: {kind: [names of its stages]}."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, make_desk(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_results_that_are_damaged(desk, tmp_path, monkeypatch, campaign, name):
    folder, kinds = desk
    of_kinds, without_digest = READS[name]
    stages = [folder / "results/stages" / stage for kind in of_kinds for stage in kinds[kind]]
    files = [str(path.relative_to(folder)) for stage in stages for path in stage.rglob("*") if path.is_file()]
    files = sorted(file for file in files if not file.endswith(("stage.json", "finished.json")))
    sound = []

    def one(case):
        shutil.copytree(folder / "results", case.folder / "results", symlinks=True, copy_function=os.link)
        monkeypatch.chdir(case.folder)
        broken = case.draw.choice(without_digest if without_digest and case.draw.random() < 0.4 else files)
        content = Path(broken).read_bytes()
        Path(broken).unlink()  # another link to it is the sound one
        Path(broken).write_bytes(case.damaged(content))

        def misread(found):
            sound.append(found)  # first what comes of the sound files
            return broken in files and found != sound[0] and f"{broken}: {found}"[:500]

        case.read(COMMANDS[name], misread)
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, f"results under {name}", one)


NEGATIVES = [{"docid": f"n{n}", "title": "T", "text": f"n {n}", "score": n / 4, "source": "query"} for n in range(3)]
MINED = [Mined(name, "who?", [{"docid": "p", "text": "one", "score": 0.5}], NEGATIVES) for name in "ab"]
# form: how many negatives a line of it has
COUNTS = {
    "tevatron": lambda line: len(json.loads(line)["negative_passages"]),
    "pos-neg": lambda line: len(json.loads(line)["neg"]),
    "nemo": lambda line: len(json.loads(line)["neg_doc"]),
    "n-tuple": lambda line: sum(key.startswith("negative") for key in json.loads(line)),
    "triplet": lambda line: 1,
    "labeled-pair": lambda line: not json.loads(line)["label"],
    "labeled-list": lambda line: sum(not label for label in json.loads(line)["labels"]),
    "triples": lambda line: 1,
}


WRITTEN = [name for name, form in FORMS.items() if form.write]
WAYS = [(form, way) for form in WRITTEN for way in ("damaged", "mutated") if (form, way) != ("triples", "mutated")]


@pytest.mark.parametrize(("form", "way"), WAYS)
def test_files_of_negatives_that_are_looked_at(tmp_path, campaign, form, way):
    rows = [row for mined in MINED for row in FORMS[form].write(mined, form != "triples")]
    lines = ["\t".join(row) if isinstance(row, tuple) else json.dumps(row) for row in rows]
    content = "".join(f"{line}\n" for line in lines).encode()

    def one(case):
        path = case.folder / "negatives"
        path.write_bytes(json_lines(case.mutated, content) if way == "mutated" else case.damaged(content))

        def misread(found):
            (*_, told) = found["sources"].values()
            if form_of(path) != form:
                return None
            held = sum(map(COUNTS[form], plain_readers.lines(path)))
            return told["negatives"] != held and f"{told['negatives']}, not {held}"

        case.read(lambda: audit(path), misread)

    each_case(campaign, tmp_path, f"audit of {form}, {way}", one, few=5)
