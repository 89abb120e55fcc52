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
TEST_SHARE = 3  # a third of the judged queries is the test, where the collection does not say which
BATCH_QUERIES, EPOCHS, MOST_STEPS = 16, 2, 500  # of an episode
DEPTH = Evaluation().depth
MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")  # those that look as far as the whole collection say nothing
QRELS_HEADER = "\t".join(sources.BEIR_HEADER) + "\n"


def new(name, folder, home):
    """Write config/NAME.yaml for the collection in `folder` (Path); returns (its path, sentences on what was found).

    home: the folder of the repository. Where the judged queries are not divided, a third becomes the split test, and
    the judgments of both splits are written to data/NAME. Raises ValueError for a name that is taken or none, and for
    a folder or a file that cannot be read.
    """
    path = Path(f"config/{name}.yaml")
    if not re.fullmatch(NAME, name):
        raise ValueError(f"NAME={name}: the name becomes a folder and must match {NAME}. Take another one.")
    if path.exists():
        raise ValueError(f"{path} is there already. Take another NAME, or remove it.")
    source, said = beir(name, folder) if sources.found(folder / "corpus.jsonl") else tables(name, folder)
    passages, queries = sizes(source)
    test = next(split for split in queries if split != "train")
    numbers = ", ".join(f"{count} queries for {split}" for split, count in queries.items())
    said = [f"{passages} passages, {numbers}.", *said]
    if passages < DEPTH:
        said.append(f"warning: searches return {passages} passages, not {DEPTH}: there are no more.")
    measures = [measure for measure, cutoff in measure_cutoffs(MEASURES).items() if cutoff < passages] or ["RR@10"]
    batch = min(BATCH_QUERIES, queries["train"])
    steps = min(MOST_STEPS, -(-EPOCHS * queries["train"] // batch))
    text = (home / "config/own-data.yaml").read_text(encoding="utf-8")
    collection = yaml.safe_dump({"collection": source.model_dump(exclude_unset=True)}, sort_keys=False)
    for pattern, value in {
        r"^# Your own(.*\n)*?(?=name:)": "",
        r"^name: .*": f"name: {name}",
        r"^collection:\n(  .*\n)+": collection.replace("\\", r"\\"),
        r"batch_queries: .*": f"batch_queries: {batch}",
        r"steps: .*": f"steps: {steps} # {EPOCHS} times over the training queries, {MOST_STEPS} at most",
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
    if alone := undivided(judged, folder):
        queries, qrels = judged[alone[0]]
        rows = list(sources.judgment_rows(qrels))
        files, said = divide(name, qrels, rows, "qrels.{}.tsv")
        judged = {split: (queries, file) for split, file in files.items()}
    splits = {split: {"queries": str(queries), "qrels": str(qrels)} for split, (queries, qrels) in judged.items()}
    return Tsv(source="tsv", corpus=str(corpus), splits=splits), said


def beir(name, folder):
    """The source and sentences on it: a BEIR folder; where its judgments have to be divided, linked to data/NAME."""
    judged = sources.split_names(folder / "qrels", r"(.+)\.tsv", "FROM")
    alone = undivided(judged, folder)
    if not alone:
        return Beir(source="beir", path=str(folder)), []
    qrels = sources.existing(folder / "qrels" / f"{alone[0]}.tsv", "FROM")
    rows = list(sources.judgment_rows(qrels, sources.BEIR_HEADER))
    _, said = divide(name, qrels, rows, "qrels/{}.tsv", QRELS_HEADER)
    home = Path("data", name)
    for file in ("corpus.jsonl", "queries.jsonl"):
        place = sources.existing(folder / file, "FROM")
        link = home / place.name
        link.unlink(missing_ok=True)
        link.symlink_to(place.resolve())
    return Beir(source="beir", path=str(home)), said


def undivided(names, folder):
    """[the one split that there is], to be divided; [] where there is one to train on and another one.

    Raises ValueError where it cannot be told which one to train on.
    """
    names = list(names)
    if len(names) > 1 and "train" not in names:
        found = f"{folder} has the splits {', '.join(names)}, and none is called train"
        raise ValueError(f"{found}. Name the queries and judgments to train on so.")
    return names if len(names) == 1 else []


def divide(name, qrels, rows, form, header=""):
    """Write the judgments `rows` of one file as those of train and test below data/NAME; (files by split, a sentence).

    Which queries are the test follows from their ids, so that the same ones are when others are added.
    """
    queries = {row[1] for row in rows}
    test = {query for query in queries if derive_seed(SEED, "test", query) % TEST_SHARE == 0}
    if not test or test == queries:
        raise ValueError(f"{qrels} has {len(queries)} judged queries, too few to train on some and test with others.")
    files = {}
    for split, kept in {"train": queries - test, "test": test}.items():
        files[split] = Path("data", name, form.format(split))
        files[split].parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{query}\t{passage}\t{grade}\n" for _, query, passage, grade in rows if query in kept)
        write_text(files[split], header + text)
    share = f"{len(test)} of {len(queries)} judged queries, drawn by their ids, are the test"
    return files, [f"{share}: {', '.join(map(str, files.values()))}."]
