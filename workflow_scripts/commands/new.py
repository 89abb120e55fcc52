"""A configuration for somebody's own collection, written from config/own-data.yaml."""

import re
from pathlib import Path

import yaml

from teleport.collection import sources
from teleport.runtime.files import write_text
from teleport.runtime.seed import derive_seed
from teleport.settings.collection import Beir, Tsv
from teleport.settings.evaluation import Evaluation
from teleport.settings.measures import measure_cutoffs
from teleport.settings.section import NAME

SEED = 42
TEST_SHARE, DEV_SHARE = 3, 5  # a third of the judged queries, then a fifth of the others, where they are not divided
MOST_DEV_QUERIES = 500
MOST_STEPS, MOST_EPOCHS = 500, 10  # of an episode, in which each training query has its turn
DEPTH = Evaluation().depth
MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")  # those that look as far as the whole collection say nothing
QRELS_HEADER = "\t".join(sources.BEIR_HEADER) + "\n"


def new(name, folder, home):
    """Write config/NAME.yaml for the collection in `folder` (Path); returns (its path, sentences on what was found).

    home: the folder of the repository. There must be queries to train on, to choose the best step by (dev) and to test
    with: where the folder does not divide them so, the judgments are divided in files below data/NAME. Raises
    ValueError for a name that is taken or none, and for a folder or a file that cannot be read.
    """
    path = Path(f"config/{name}.yaml")
    if not re.fullmatch(NAME, name):
        raise ValueError(f"NAME={name}: the name becomes a folder and must match {NAME}. Take another one.")
    if path.exists():
        raise ValueError(f"{path} is there already. Take another NAME, or remove it.")
    source, said = beir(name, folder) if sources.found(folder / "corpus.jsonl") else tables(name, folder)
    passages, queries = sizes(source)
    test, dev = [split for split in queries if split != "train"][:2]
    numbers = ", ".join(f"{count} queries for {split}" for split, count in queries.items())
    said = [f"{passages} passages, {numbers}.", *said, f"The table is of {test}; {dev} chooses the step that is kept."]
    if passages < DEPTH:
        said.append(f"warning: searches return {passages} passages, not {DEPTH}: there are no more.")
    measures = [measure for measure, cutoff in measure_cutoffs(MEASURES).items() if cutoff < passages] or ["RR@10"]
    text = (home / "config/own-data.yaml").read_text(encoding="utf-8")
    training = yaml.safe_load(text)["training"]
    batch = min(training["batch_queries"], queries["train"])
    batches = -(-queries["train"] // batch)
    steps = min(MOST_STEPS, max(batches, min(training["steps"], MOST_EPOCHS * batches)))
    collection = yaml.safe_dump({"collection": source.model_dump(exclude_unset=True)}, sort_keys=False)
    for pattern, value in {
        r"^# Your own(.*\n)*?(?=name:)": "",
        r"^name: .*": f"name: {name}",
        r"^collection:\n(  .*\n)+": collection.replace("\\", r"\\"),
        r"batch_queries: .*": f"batch_queries: {batch}",
        r" steps: .*": f" steps: {steps}",
        r"evaluate_every: \d+": f"evaluate_every: {min(training['evaluate_every'], -(-steps // 2))}",
        r"split: dev": f"split: {dev}",
        r"splits: .*": f"splits: [{test}]",
        r"measures: .*": f"measures: [{', '.join(measures)}]",
    }.items():
        text = re.sub(pattern, value, text, count=1, flags=re.MULTILINE)
    write_text(path, text)
    return path, said


def sizes(source):
    """(number of passages, {split: number of judged queries}) of a collection, train first, from reading its files."""
    read = sources.beir(source) if source.source == "beir" else sources.tsv(source)
    queries = {name: len({row[1] for row in split.qrels}) for name, split in read.splits.items()}
    order = sorted(queries, key=["train", "test", "dev", *sorted(queries)].index)
    return sum(1 for _ in read.corpus), {name: queries[name] for name in order}


def tables(name, folder):
    """The source and sentences on it: corpus.tsv, and queries and judgments by split or in one file each."""
    corpus = sources.existing(folder / "corpus.tsv", "FROM (or corpus.jsonl, for BEIR's form)")
    if sources.found(folder / "queries.tsv"):
        queries = sources.existing(folder / "queries.tsv", "FROM")
        judged = {"": (queries, sources.existing(folder / "qrels.tsv", "FROM"))}
    else:
        names = sources.split_names(folder, r"(?:queries|qrels)\.(.+)\.tsv", "FROM")
        judged = {
            split: [sources.existing(folder / f"{role}.{split}.tsv", "FROM") for role in ("queries", "qrels")]
            for split in names
        }
    said = []
    if lacking := to_divide(judged, folder):
        split, parts = lacking
        queries, qrels = judged.pop(split)
        files, said = divide(name, qrels, list(sources.judgment_rows(qrels)), parts, "qrels.{}.tsv")
        judged |= {part: (queries, file) for part, file in files.items()}
    splits = {split: {"queries": str(queries), "qrels": str(qrels)} for split, (queries, qrels) in judged.items()}
    return Tsv(source="tsv", corpus=str(corpus), splits=splits), said


def beir(name, folder):
    """The source and sentences on it: a BEIR folder; where its judgments have to be divided, linked to data/NAME."""
    judged = sources.split_names(folder / "qrels", r"(.+)\.tsv", "FROM")
    lacking = to_divide(judged, folder)
    if not lacking:
        return Beir(source="beir", path=str(folder)), []
    split, parts = lacking
    qrels = sources.existing(folder / "qrels" / f"{split}.tsv", "FROM")
    rows = list(sources.judgment_rows(qrels, sources.BEIR_HEADER))
    _, said = divide(name, qrels, rows, parts, "qrels/{}.tsv", QRELS_HEADER)
    home = Path("data", name)
    kept = (f"qrels/{other}.tsv" for other in judged if other != split)
    for file in ("corpus.jsonl", "queries.jsonl", *kept):
        place = sources.existing(folder / file, "FROM")
        link = home / Path(file).with_name(place.name)
        link.unlink(missing_ok=True)
        link.symlink_to(place.resolve())
    return Beir(source="beir", path=str(home)), said


def to_divide(names, folder):
    """(the split whose judgments must be divided, the splits to draw from it), or None: all three are there.

    Raises ValueError where it cannot be told which one to train on.
    """
    names = list(names)
    if len(names) == 1:
        return names[0], ["test", "dev"]
    if "train" not in names:
        found = f"{folder} has the splits {', '.join(names)}, and none is called train"
        raise ValueError(f"{found}. Name the queries and judgments to train on so.")
    if len(names) > 2:
        return None
    return "train", ["dev" if "dev" not in names else "dev-of-train"]


def divide(name, qrels, rows, parts, form, header=""):
    """Write the judgments `rows` of one file as those of train and of `parts` below data/NAME.

    Returns (files by split, sentences). Which queries a part has follows from their ids, so that the same ones are in
    it when others are added.
    """
    queries = {row[1] for row in rows}
    left, drawn = set(queries), {}
    for part in parts:
        drawn[part] = draw_test(left) if part == "test" else draw_dev(left)
        left -= drawn[part]
    drawn = {"train": left, **drawn}
    if not all(drawn.values()):
        short = f"{qrels} has {len(queries)} judged queries, too few for {', '.join(drawn)}"
        raise ValueError(f"{short}. Judge more of them, or divide them yourself: {form.format('SPLIT')}.")
    files = {}
    for split, kept in drawn.items():
        files[split] = Path("data", name, form.format(split))
        files[split].parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{query}\t{passage}\t{grade}\n" for _, query, passage, grade in rows if query in kept)
        write_text(files[split], header + text)
    shares = " and ".join(f"{len(drawn[part])} for {part}" for part in parts)
    return files, [
        f"Of {len(queries)} judged queries {shares} were drawn by their ids: {', '.join(map(str, files.values()))}."
    ]


def draw_test(queries):
    """A third of the queries, by their ids."""
    return {query for query in queries if derive_seed(SEED, "test", query) % TEST_SHARE == 0}


def draw_dev(queries):
    """A fifth of the queries, at most 500, by their ids."""
    draws = {query: derive_seed(SEED, "dev", query) for query in queries}
    return set(sorted((query for query in draws if draws[query] % DEV_SHARE == 0), key=draws.get)[:MOST_DEV_QUERIES])
