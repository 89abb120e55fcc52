"""The splits of a collection for `teleport new`: read from its files, given their roles, and drawn where the judgments
are undivided. `reader_of` finds the reader of a folder; each reader returns the same as `tables`."""

from functools import partial
from typing import NamedTuple

from commands.pairs import arrow
from commands.pairs.convert import convert
from commands.pairs.find import BESIDE, SUFFIXES, refuse_packed, refuse_unread, tables_of
from commands.pairs.judged import convert_judged, judged_tables
from teleport.collection.forms.beir import HEADER, Beir
from teleport.collection.forms.tsv import Tsv
from teleport.locate import existing, existing_or_none, split_names
from teleport.records import judgment_rows
from teleport.refusal import Refusal
from teleport.running.files import write_text
from teleport.seed import derive_seed

SEED = 42
TEST_SHARE, DEV_SHARE = 3, 5  # a third of the judged queries, then a fifth of the others, if undivided
MOST_DEV_QUERIES = 500
# The names that files of queries and of judgments may have. Splits may share queries.tsv, and have BEIR's folder qrels.
LAYOUTS = {"queries": ("queries.tsv", "queries.*.tsv"), "qrels": ("qrels.tsv", "qrels.*.tsv", "qrels/*.tsv")}
CORPORA = ("corpus.tsv", "corpus.jsonl", "collection.tsv")
MOST_NAMED = 5  # files in a message
DEV_NAMES = ("dev", "valid", "validation", "val")


class Roles(NamedTuple):
    """The uses of a collection's splits. test: those that the table reports; dev: the one that chooses the checkpoint,
    None if nothing is trained; divided: the split whose judgments are divided, None if none is; why: a sentence"""

    test: list
    dev: str | None
    divided: str | None
    why: str


def reader_of(folder, output, columns, drop):
    """Return the one of `beir`, `tables` and `written` that reads FROM; the arguments are those of `new`."""
    paths = [path for beside in BESIDE for path in sorted((folder / beside).glob("[!.]*"))]
    refuse_packed([folder, *paths])
    refuse_unread(paths)
    reader = beir if existing_or_none(folder / "corpus.jsonl") else tables
    if judged := judged_tables(folder):
        reader = partial(written, judged.qrels, partial(convert_judged, judged, drop), judged.of_train)
    elif reader is tables and not corpus_of(folder) and (splits := tables_of(folder)):
        dataset = any(table.form is arrow for files in splits.values() for table in files)
        training = "the split train" if dataset else "train.jsonl"
        return partial(written, splits, partial(convert, splits, output, columns, drop), training)
    if any(columns):
        raise Refusal(f"{folder} is not a table of pairs, so --question and --passage have no effect. Leave them out.")
    return reader


def tables(output, folder, test, dev):
    """(source, source before judgments are divided, Roles, sentences on drawn splits, function that writes these): for
    corpus.tsv or collection.tsv, with queries and judgments named as in `LAYOUTS`.

    output: the later folder of drawn splits. The function takes the folder to write to; it is None if none are drawn.
    """
    if not (corpus := corpus_of(folder)):
        raise Refusal(no_collection(folder))
    files, training = files_of(folder)
    roles, notes, write = roles_of(list(files), folder, test, dev, training), [], None
    given = tsv(corpus, files | ({"train": files[roles.divided]} if roles.divided is not None else {}))
    if roles.divided is not None:
        queries, qrels = files.pop(roles.divided)
        drawn, notes, write = divide(output, qrels, roles, files, "qrels.{}.tsv")
        files |= {split: (queries, path) for split, path in drawn.items()}
    if answers := sorted(path.name for path in folder.glob("answers.*.jsonl*")):
        notes.append(f"{', '.join(answers)}: not read here; `source: folder` of config/README.md reads answers.")
    return tsv(corpus, files), given, roles, notes, write


def corpus_of(folder):
    """The passages of a folder of tables; None without them. MS MARCO calls them collection.tsv; pairs may have this
    name, too, but then there are no queries beside them."""
    corpus, collection = (existing_or_none(folder / name) for name in ("corpus.tsv", "collection.tsv"))
    return corpus or (collection if collection and layout_of(folder, "queries") else None)


def files_of(folder):
    """({split: [queries, judgments]}, the names of train's files) of a folder of tables; the split is "" if no file
    names one."""
    queries = layout_of(folder, "queries") or "queries.*.tsv"
    of_split = "*" in queries
    qrels = layout_of(folder, "qrels") or "qrels.tsv"
    if of_split and qrels == "qrels.tsv":
        qrels = "qrels.*.tsv"
    if "/" in qrels:
        names = split_names(folder / "qrels", "*.tsv", "FROM")
    elif "*" in qrels:
        names = split_names(folder, "(?:queries|qrels).*.tsv" if of_split else qrels, "FROM")
    else:
        names = [""]
    both, files = (queries, qrels), {}
    for split in names:
        remedy = f"FROM, or move the other file of {split} elsewhere" if split else "FROM"
        files[split] = [existing(folder / pattern.replace("*", split), remedy) for pattern in both]
    return files, " and ".join(pattern.replace("*", "train") for pattern in both if "*" in pattern)


def layout_of(folder, role):
    """The pattern in LAYOUTS that the files of a role have in a folder; None without them. Raises Refusal if the files
    have two patterns."""
    first_paths = {}
    for pattern in LAYOUTS[role]:
        paths = sorted(path for end in ("", ".gz") for path in folder.glob(f"{pattern}{end}"))
        first_paths |= {pattern: paths[0].relative_to(folder)} if paths else {}
    if len(first_paths) > 1:
        one, other = list(first_paths.values())[:2]
        raise Refusal(f"{folder} has {one} and also {other}. Remove one or the other.")
    return next(iter(first_paths), None)


def no_collection(folder):
    """The message if a folder is missing or has no corpus; it names the folders below that have one, as in BEIR's sets
    of several."""
    if not folder.exists():
        return f"{folder} does not exist. Correct FROM."
    patterns = [f"{parents}{name}{end}" for parents in ("*/", "*/*/") for name in CORPORA for end in ("", ".gz")]
    folders = [path.parent for pattern in patterns for path in folder.glob(pattern)]
    below = sorted({str(path.relative_to(folder)) for path in folders})
    if below:
        return f"{folder} has no corpus.tsv or corpus.jsonl, but its folders {', '.join(below)} have one. Give one of "\
               f"them as FROM: {folder / below[0]}."  # fmt: skip
    return f"{folder} has no corpus.tsv or corpus.jsonl, and no files of pairs ({SUFFIXES}). Correct FROM."


def tsv(corpus, files):
    """The source of files {split: (queries, judgments)}."""
    splits = {
        split: {"queries": str(queries), "qrels": str(qrels)} for split, (queries, qrels) in files.items() if split
    }
    return Tsv(source="tsv", corpus=str(corpus), splits=splits)


def beir(output, folder, test, dev):
    """Return the same as `tables`, for a BEIR folder; where judgments are divided, its other files are linked beside
    them."""
    judged = [path for end in ("", ".gz") for path in folder.glob(f"qrels/[!.]*.tsv{end}")]
    if not judged or not existing_or_none(folder / "queries.jsonl"):
        others = sorted(path.name for path in folder.glob("[!.]*") if not path.name.startswith("corpus.jsonl"))
        has = ", ".join(others[:MOST_NAMED]) + ("" if len(others) <= MOST_NAMED else ", …") or "nothing else"
        raise Refusal(
            f"{folder} has corpus.jsonl, so it is taken for a BEIR folder, which needs queries.jsonl and "
            f"qrels/SPLIT.tsv, too; it has {has}. Add what is missing, or give a file of pairs as FROM."
        )
    names = split_names(folder / "qrels", "*.tsv", "FROM")
    roles, given = roles_of(names, folder, test, dev, "qrels/train.tsv"), Beir(source="beir", path=str(folder))
    if roles.divided is None:
        return given, given, roles, [], None
    others = set(names) - {roles.divided}
    qrels = existing(folder / "qrels" / f"{roles.divided}.tsv", "FROM")
    _, notes, write = divide(output, qrels, roles, others, "qrels/{}.tsv", HEADER)
    files = ("corpus.jsonl", "queries.jsonl", *(f"qrels/{split}.tsv" for split in others))
    linked = {file: existing(folder / file, "FROM").absolute() for file in files}

    def write_with_links(part):
        write(part)
        for file, path in linked.items():
            (part / file).with_name(path.name).symlink_to(path)

    return Beir(source="beir", path=str(output)), given, roles, notes, write_with_links


def written(split_tables, write, training, output, folder, test, dev):
    """Return the same as `tables`, for {split: `Table`s} of commands.pairs, which are converted to BEIR's form. write:
    a function of the folder to write to and of the function that draws splits; it returns sentences. training: the name
    of the file of a split `train`"""
    roles, notes = roles_of(list(split_tables), folder, test, dev, training), []

    def draw(questions):
        if roles.divided is None:
            return {"train": questions}
        files = ", ".join(training.replace("train", split) for split in ("train", "dev", "test"))
        splits, sentence = drawn(questions, folder, roles, split_tables, files)
        notes.append(f"{sentence}.")
        return splits

    source = Beir(source="beir", path=str(output))
    return source, source, roles, notes, lambda part: notes.extend(write(part, draw))


def roles_of(names, folder, test, dev, training):
    """The `Roles` of the splits `names` of a folder, of which `test` (list) and `dev` may be given (--test, --dev).

    training: the names of the files of a split `train`. A set that is not called train is never divided. Raises Refusal
    if more than one guess is possible.
    """
    named = f"{folder} has the split{'' if len(names) == 1 else 's'} {', '.join(names)}"
    have = named if any(names) else f"{folder} has one file of queries"
    undivided = len(names) == 1 and names[0] in ("", "train") and not test
    drawn = ("train", "dev") if undivided else ("train",)
    if unknown := [split for split in (*test, *([dev] if dev is not None else [])) if split not in (*names, *drawn)]:
        raise Refusal(f"{have}, no {', '.join(dict.fromkeys(unknown)) or repr('')}. Correct --test or --dev.")
    if undivided and dev in (None, *drawn):
        return Roles(["test"], "dev", names[0], "The table reports test; dev chooses the checkpoint.")
    if "train" not in names:
        if dev is not None:
            raise Refusal(f"{have}, and none is called train: nothing is trained, and --dev {dev} has no use. "
                          f"Leave it out, or call the files to train on {training}.")  # fmt: skip
        reported = list(test) or [split for split in names if split == "test"] or names
        why = f"{have}, and none is called train, so nothing is trained. The table reports {', '.join(reported)}"
        return Roles(reported, None, None, f"{why} for BM25 and the checkpoint as it is. To train, add {training}.")
    if dev in test or "train" in test:
        options = f"--test {','.join(test)}" + (f" --dev {dev}" if dev else "")
        raise Refusal(f"{options}: a split that trains or chooses the checkpoint cannot be reported.")
    why = {split: "as you say" for split in (*test, dev)}
    others = [split for split in names if split != "train" and split not in test]
    if dev is None and (test or len(others) > 1):
        named = [split for split in DEV_NAMES if split in others]
        if named:
            dev, why[named[0]] = named[0], "by its name"
        elif not test and "test" not in others or set(others) - {"test"}:
            ask = "Say which split chooses the checkpoint, --dev SPLIT (train: some of its queries are drawn)"
            raise Refusal(f"{have}. {ask}{'' if test else ', and which splits the table reports, --test SPLIT,SPLIT'}.")
    others = [split for split in others if split != dev]
    if not test:
        if "test" not in others and len(others) != 1:
            raise Refusal(f"{have}. Say which of them the table reports: --test SPLIT, or --test SPLIT,SPLIT.")
        test = ["test"] if "test" in others else others
        why[test[0]] = "by its name" if test == ["test"] else "the only one left"
    divided = "train" if dev in (None, "train") else None
    if divided:
        dev = "dev" if "dev" not in names else "dev-of-train"
        why[dev] = "drawn from train"
    reported = ", ".join(f"{split} ({why[split]})" for split in test)
    return Roles(list(test), dev, divided, f"The table reports {reported}; {dev} ({why[dev]}) chooses the checkpoint.")


def divide(output, qrels, roles, others, form, header=()):
    """Draw from the judgments of the file `qrels` those of train and of the splits of `roles` (`Roles`) that are not
    among the `others`.

    output: the later folder of their files; form: the name of a split's file; header: names of its columns. Returns
    (files by split, sentences, a function that writes them to a folder). The ids of queries decide their split, so that
    they stay in it when others are added.
    """
    rows = list(judgment_rows(qrels, header))
    queries = {row[1] for row in rows}
    splits, sentence = drawn(queries, qrels, roles, others, form.format("SPLIT"))
    files = {split: output / form.format(split) for split in splits}

    def write(part):
        for split in splits:
            lines = [header] if header else []
            lines += [row[1:] for row in rows if row[1] in splits[split]]
            write_text(part / form.format(split), "".join("\t".join(line) + "\n" for line in lines))

    return files, [f"{sentence}: {', '.join(map(str, files.values()))}."], write


def drawn(queries, place, roles, others, form):
    """({split: set of ids}, a sentence without its full stop) of train and the splits of `roles` that are not among the
    `others`, into which the ids `queries` (set) are divided. For a refusal, place: where they are; form: which files
    would divide them"""
    missing = [split for split in (*roles.test, roles.dev) if split not in others]
    splits = {"train": set(queries)}
    for split in missing:
        use, share, most = ("test", TEST_SHARE, None) if split == "test" else ("dev", DEV_SHARE, MOST_DEV_QUERIES)
        draws = {query: derive_seed(SEED, use, query) for query in splits["train"]}
        splits[split] = set(sorted((query for query in draws if draws[query] % share == 0), key=draws.get)[:most])
        splits["train"] -= splits[split]
    if len(splits["train"]) < 2 or not all(splits.values()):  # a single one has no negatives in its batch
        problem = f"{place} has {len(queries)} judged queries, too few for {', '.join(splits)}"
        raise Refusal(f"{problem}. Judge more of them, or divide them yourself: {form}.")
    counts = " and ".join(f"{len(splits[split])} for {split}" for split in missing)
    return splits, f"{counts} of {len(queries)} judged queries were drawn by their ids"
