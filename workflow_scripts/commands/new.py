"""A configuration for somebody's own collection, written from config/own-data.yaml."""

import re
from pathlib import Path

import yaml

from teleport.collection import sources
from teleport.refusal import Refusal
from teleport.running.files import write_text
from teleport.seed import derive_seed
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
    """Write config/NAME.yaml for the collection in `folder` (Path); returns (its path, sentences on the collection).

    home: the folder of the repository. There must be queries to train on, to choose the best step by (dev) and to test
    with: where the folder does not divide them so, the judgments are divided in files below data/NAME. Raises
    Refusal for a name that is taken or none, and for a folder or a file that cannot be read.
    """
    path = Path(f"config/{name}.yaml")
    if not re.fullmatch(NAME, name):
        raise Refusal(f"NAME={name}: the name becomes a folder and must match {NAME}. Take another one.")
    if path.exists():
        raise Refusal(f"{path} is there already. Take another NAME, or remove it.")
    source, drawn = (beir if sources.found(folder / "corpus.jsonl") else tables)(name, folder)
    read = sources.beir(source) if source.source == "beir" else sources.tsv(source)
    passages = sum(1 for _ in read.corpus)
    queries = {split: len({row[1] for row in each.qrels}) for split, each in read.splits.items()}
    order = ["train", "test", "dev", *sorted(queries)]
    queries = {split: queries[split] for split in sorted(queries, key=order.index)}
    test, dev = [split for split in queries if split != "train"][:2]
    counts = ", ".join(f"{count} queries for {split}" for split, count in queries.items())
    notes = [f"{passages} passages, {counts}.", *drawn, f"The table is of {test}; {dev} chooses the step that is kept."]
    if passages < DEPTH:
        notes.append(f"warning: searches return {passages} passages, not {DEPTH}: there are no more.")
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
    return path, notes


def tables(name, folder):
    """(source, sentences on drawn splits): corpus.tsv, and queries and judgments by split or in one file each."""
    corpus = sources.existing(folder / "corpus.tsv", "FROM (or corpus.jsonl, for BEIR's form)")
    if sources.found(folder / "queries.tsv"):
        files = {"": [folder / f"{role}.tsv" for role in ("queries", "qrels")]}
    else:
        names = sources.split_names(folder, r"(?:queries|qrels)\.(.+)\.tsv", "FROM")
        files = {split: [folder / f"{role}.{split}.tsv" for role in ("queries", "qrels")] for split in names}
    files = {split: [sources.existing(path, "FROM") for path in paths] for split, paths in files.items()}
    split, missing = to_divide(files, folder)
    notes = []
    if missing:
        queries, qrels = files.pop(split)
        drawn, notes = divide(name, qrels, list(sources.judgment_rows(qrels)), missing, "qrels.{}.tsv")
        files |= {split: (queries, path) for split, path in drawn.items()}
    splits = {split: {"queries": str(queries), "qrels": str(qrels)} for split, (queries, qrels) in files.items()}
    return Tsv(source="tsv", corpus=str(corpus), splits=splits), notes


def beir(name, folder):
    """(source, sentences on drawn splits): a BEIR folder; where judgments have to be divided, linked to data/NAME."""
    names = sources.split_names(folder / "qrels", r"(.+)\.tsv", "FROM")
    split, missing = to_divide(names, folder)
    if not missing:
        return Beir(source="beir", path=str(folder)), []
    qrels = sources.existing(folder / "qrels" / f"{split}.tsv", "FROM")
    rows = list(sources.judgment_rows(qrels, sources.BEIR_HEADER))
    _, notes = divide(name, qrels, rows, missing, "qrels/{}.tsv", QRELS_HEADER)
    home = Path("data", name)
    kept = (f"qrels/{other}.tsv" for other in names if other != split)
    for file in ("corpus.jsonl", "queries.jsonl", *kept):
        path = sources.existing(folder / file, "FROM")
        link = home / Path(file).with_name(path.name)
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve())
    return Beir(source="beir", path=str(home)), notes


def to_divide(names, folder):
    """(the split to divide, the splits to draw from it, if any). Raises Refusal where no split is known to train on."""
    names = list(names)
    if len(names) == 1:
        return names[0], ["test", "dev"]
    if "train" not in names:
        problem = f"{folder} has the splits {', '.join(names)}, and none is called train"
        raise Refusal(f"{problem}. Name the queries and judgments to train on so.")
    return "train", [] if len(names) > 2 else ["dev" if "dev" not in names else "dev-of-train"]


def divide(name, qrels, rows, missing, form, header=""):
    """Write the judgments `rows` of one file as those of train and of the splits `missing` below data/NAME.

    Returns (files by split, sentences). Which queries a split has follows from their ids, so that the same ones are in
    it when others are added.
    """
    queries = {row[1] for row in rows}
    splits = {"train": set(queries)}
    for split in missing:
        use, share, most = ("test", TEST_SHARE, None) if split == "test" else ("dev", DEV_SHARE, MOST_DEV_QUERIES)
        draws = {query: derive_seed(SEED, use, query) for query in splits["train"]}
        splits[split] = set(sorted((query for query in draws if draws[query] % share == 0), key=draws.get)[:most])
        splits["train"] -= splits[split]
    if not all(splits.values()):
        problem = f"{qrels} has {len(queries)} judged queries, too few for {', '.join(splits)}"
        raise Refusal(f"{problem}. Judge more of them, or divide them yourself: {form.format('SPLIT')}.")
    files = {split: Path("data", name, form.format(split)) for split in splits}
    for split, path in files.items():
        lines = (f"{query}\t{passage}\t{grade}\n" for _, query, passage, grade in rows if query in splits[split])
        write_text(path, header + "".join(lines))
    counts = " and ".join(f"{len(splits[split])} for {split}" for split in missing)
    paths = ", ".join(map(str, files.values()))
    return files, [f"Of {len(queries)} judged queries {counts} were drawn by their ids: {paths}."]
