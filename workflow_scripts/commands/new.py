"""A configuration for somebody's own collection, written from config/own-data.yaml."""

import math
import os
import re
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from commands.encoding import cut_of_first, first_encodings, sentence, split_words
from commands.hub_data import fetch_dataset
from commands.methods import method_file, method_text
from commands.pairs import arrow
from commands.pairs.convert import convert
from commands.pairs.find import SUFFIXES, tables_of
from commands.pairs.judged import convert_judged, judged_tables
from teleport import records
from teleport.collection import corpus as corpus_stage
from teleport.collection import split as split_stage
from teleport.collection.forms.beir import HEADER, Beir
from teleport.collection.forms.tsv import Tsv
from teleport.plan.plan import Plan
from teleport.reader import trained_too
from teleport.refusal import Refusal
from teleport.report.stages import FOUND_FIRST
from teleport.running.files import files_below, part_of, remove, require_output, sha256_file, write_text
from teleport.seed import derive_seed
from teleport.settings.collection import CorpusSettings, SplitSettings
from teleport.settings.evaluation import Evaluation, Report
from teleport.settings.measures import measure_cutoffs
from teleport.settings.read import load
from teleport.settings.registry import form
from teleport.settings.section import NAME

SEED = 42
TOKEN_CHARACTERS = 4.5  # of a text, with the space or sign behind a word; CLS and SEP come besides
TEST_SHARE, DEV_SHARE = 3, 5  # a third of the judged queries, then a fifth of the others, if undivided
MOST_DEV_QUERIES = 500
MOST_STEPS, MOST_EPOCHS = 500, 10  # of an episode, in which each training query has its turn
FIRST_ROWS = 200  # passages, and characters of each, whose script is checked
OWN_TEXT = 0.05  # share of a split's queries that are also passages; a larger one means a collection like ArguAna
IGNORED = "ignore_own_text: true # the text of many queries is also a passage, which each would find first"
DEEPER = "depth: {} # for {} without it"
IGNORED_NOTE = "evaluation.ignore_own_text removes it from their results."
BY_CHARACTERS = "bm25: {terms: characters} # the script "
UNSPACED_SCRIPT = "has no spaces between words, or is Hangul"
SIGNS = 0.2  # vowel signs and accents for each letter, above which BM25's words would be pieces of words
LEAST_POOL = 50  # passages among which a dev query ranks its positives
DEPTH = Evaluation().depth
SHOWN, MOST_SHOWN = Report().queries, 1000  # test queries that the page shows in full by default, and if they are few
MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")  # R@k of a whole collection of k passages is always 1
# The names that files of queries and of judgments may have. Splits may share queries.tsv, and have BEIR's folder qrels.
LAYOUTS = {"queries": ("queries.tsv", "queries.*.tsv"), "qrels": ("qrels.tsv", "qrels.*.tsv", "qrels/*.tsv")}
DEV_NAMES = ("dev", "valid", "validation", "val")


STEPS, BATCH = r" steps: .*", r"batch_queries: .*"
OF_RECIPE = r"^# The recipe of .*\n# .*\n"
OF_METHOD = (
    "# In each episode, the step that ranks the dev queries best becomes the checkpoint; the start is step 0.\n"
    "# Segments of one training continue from their last step instead (select: last).\n"
)
EXPERIMENTS = r"^experiments:\n(  .*\n)+"
EPISODES = r"^# The second episode mines.*\n# .*\nepisodes:\n(  .*\n)+"
# Changes of the template if nothing is trained: no training, no episode, and a row for the checkpoint.
EVALUATED = {
    r"(^# The recipe of .*\n(# .*\n)*)?^training:\n(  .*\n)+\n?": "",
    EPISODES: "episodes: [] # nothing is trained\n",
    EXPERIMENTS: "external:\n  checkpoint: {label: Checkpoint, encoder: {}}\n",
}


class Roles(NamedTuple):
    """The uses of a collection's splits. test: those that the table reports; dev: the one that chooses the checkpoint,
    None if nothing is trained; divided: the split whose judgments are divided, None if none is; why: a sentence"""

    test: list
    dev: str | None
    divided: str | None
    why: str


def new(name, folder, home, test=(), dev=None, method=None, columns=(None, None), drop=()):
    """Write config/NAME.yaml for the collection in `folder` (Path); returns (its path, sentences on the collection).

    home: the folder of the repository; test, dev: the splits that the table reports, and the one that chooses the
    checkpoint, if their names do not say so; method: a file of config/methods, instead of the template's recipe;
    columns: of questions and of passages in a table of pairs, if their names do not say so; drop: collection.drop.

    If the folder does not divide its queries for training, dev and test, the judgments are divided in files below
    data/NAME-divided, a folder that must not exist yet unless it has the same files: nothing is written to `folder`.
    The tables of hub:OWNER/NAME@REVISION are first copied to data/NAME-hub. Without a split `train` nothing is trained.
    Raises Refusal for a name that is taken or invalid, for a folder or a file that cannot be read, and for splits whose
    roles are not clear; then nothing is written.
    """
    path, output = Path(f"config/{name}.yaml"), Path("data", f"{name}-divided")
    if not re.fullmatch(NAME, name):
        raise Refusal(f"NAME {name}: the name becomes a folder and must match {NAME}. Take another one.")
    if os.path.lexists(path):
        raise Refusal(f"{path} exists already. Take another NAME, or remove it.")
    require_output(path)
    if method:
        method_file(method, home)  # before the collection is read, which may take minutes
    above, made, origin, fetched = output.parent.exists(), [], None, []
    try:
        if str(folder).startswith("hub:"):
            folder, origin, note = fetch_dataset(str(folder), hub := Path("data", f"{name}-hub"))
            made, fetched = [hub], [note]
        source, given, roles, notes, divided = reader_of(folder, output, columns, drop)(output, folder, test, dev)
        if drop:
            source, given = (each.model_copy(update={"drop": list(drop)}) for each in (source, given))
        if divided:
            write_divided(divided, output, made)
        counts, shared, same_text = checked_counts(source, given)
        if empty := next((split for split in (*roles.test, roles.dev) if counts["positives"].get(split) == 0), None):
            raise Refusal(f"{folder}: the split {empty} has no relevant passage. Judge some, or remove its files.")
        if method and not roles.dev:
            raise Refusal(f"--method {method}: nothing is trained. {roles.why}")
        template = (home / "config/own-data.yaml").read_text(encoding="utf-8")
        text = configured(template, name, source, roles, counts, home, method)
        if origin:
            text = text.replace("\nname: ", f"\n# The collection is of {origin}\nname: ", 1)
        text, more = fitted(text, source, roles, counts, same_text)
        notes += more
        write_text(path, text)
    except BaseException:
        for each in [] if path.exists() else made:  # a written configuration, at Ctrl-C, needs them
            remove(each)
        if not above:
            with suppress(OSError):  # others may have begun to use it
                output.parent.rmdir()
        raise
    return path, [*fetched, sizes_text(counts, roles), *notes, *warnings(counts, shared)]


def write_divided(divided, output, made):
    """Write the divided judgments to `output`, which is then added to `made` (list). A folder with the same files, as a
    killed `teleport new` leaves it, is taken as it is. Raises Refusal for anything else there."""
    if output.is_symlink() or not output.is_dir():
        require_output(output, folder=True)  # before the division, which may take minutes
    with part_of(output) as part:
        divided(part)
        if not output.is_dir() or not same_files(part, output):
            require_output(output, folder=True)
            made.append(output)
            os.rename(part, output)


def same_files(folder, other):
    """Whether two folders have files of the same names and bytes; links count as what they lead to."""
    try:
        ours, theirs = ({path.relative_to(each): path for path in files_below(each)} for each in (folder, other))
        same = ours.keys() == theirs.keys()  # digests last: they read the files
        return same and all(sha256_file(path) == sha256_file(theirs[name]) for name, path in ours.items())
    except OSError:  # a file that cannot be read is not ours
        return False


def fitted(text, source, roles, counts, same_text):
    """The configuration (text) with settings that suit the collection's texts, and sentences on these and on the
    encoder. same_text: {split: queries that have the text of a passage}"""
    notes = []
    for split in roles.test:
        if same_text[split] > OWN_TEXT * counts["queries"][split]:
            deeper = f"  {DEEPER.format(DEPTH + 1, DEPTH)}\n" if counts["passages"] > DEPTH else ""
            text = re.sub(r"^evaluation:\n", rf"\g<0>  {IGNORED}\n{deeper}", text, count=1, flags=re.MULTILINE)
            notes.append(f"{same_text[split]} queries of {split} have the text of a passage. {IGNORED_NOTE}")
            break
    else:
        repeated = [(split, same_text[split]) for split in roles.test if same_text[split]]
        notes += [f"{count} queries of {split} have the text of a passage. {FOUND_FIRST}" for split, count in repeated]
    if SHOWN < (most := max(counts["queries"][split] for split in roles.test)) <= MOST_SHOWN:
        text += f"\nreport: {{queries: {most}}} # the page shows every query of the test in full\n"
    if script := script_of(source):
        text += f"\n{BY_CHARACTERS}{script}\n"
        terms = "counts characters and pairs of neighbours" if script == UNSPACED_SCRIPT else "keeps them in its words"
        notes.append(f"The script of the texts {script}, so BM25 {terms}.")
    encoder = Plan(*load(yaml.safe_load(text))).encoder
    first = first_encodings(encoder, form(source.source).corpus(source))
    notes += [roles.why, f"The encoder has {sentence(encoder)}{cut_of_first(encoder, *first)}."]
    return text, notes + ([] if script == UNSPACED_SCRIPT else split_words(*first))


def sizes_text(counts, roles):
    """A sentence on how many passages and queries there are."""
    order = dict.fromkeys(["train", *roles.test, roles.dev, *counts["queries"]])
    queries = [f"{counts['queries'][split]} queries for {split}" for split in order if split in counts["queries"]]
    return f"{counts['passages']} passages, {', '.join(queries)}."


def warnings(counts, shared):
    """Warnings (list of str) about short lists, and about queries that are trained on and evaluated (`shared`)."""
    few = f"searches return {counts['passages']} passages, not {DEPTH}: there are no more."
    notes = ([few] if counts["passages"] < DEPTH else []) + [f"{each[:1].lower()}{each[1:]}" for each in shared]
    return [f"warning: {each}" for each in notes]


def reader_of(folder, output, columns, drop):
    """Return the one of `beir`, `tables` and `written` that reads FROM; the arguments are those of `new`."""
    reader = beir if records.existing_or_none(folder / "corpus.jsonl") else tables
    if judged := judged_tables(folder):
        reader = partial(written, judged.qrels, partial(convert_judged, judged, drop), judged.of_train)
    elif reader is tables and not records.existing_or_none(folder / "corpus.tsv") and (splits := tables_of(folder)):
        dataset = any(table.form is arrow for files in splits.values() for table in files)
        training = "the split train" if dataset else "train.jsonl"
        return partial(written, splits, partial(convert, splits, output, columns, drop), training)
    if any(columns):
        raise Refusal(f"{folder} is not a table of pairs, so --question and --passage have no effect. Leave them out.")
    return reader


def checked_counts(source, given):
    """(the block `counts` of a collection, sentences on queries that are also trained on, {split: number of queries
    with the text of a passage}). The collection is built once in a temporary folder, with all checks. given: the
    collection before its judgments were divided, whose files an error names"""
    try:
        return counts_of(source)
    except Refusal:
        if given != source:
            counts_of(given)
        raise


def counts_of(source):
    """Return the same as `checked_counts`. Raises Refusal for mistakes in the files of the collection."""
    names = source.split_names()
    with TemporaryDirectory() as folder:
        corpus = job_in(folder, "corpus", source, CorpusSettings(source=source.of_corpus()))
        num_passages = corpus_stage.run(corpus)["num_passages"]
        jobs = {name: SplitSettings(source=source.of_split(name), split=name) for name in names}
        jobs = {name: job_in(folder, f"split.{name}", source, settings) for name, settings in jobs.items()}
        splits = {name: split_stage.run(job) for name, job in jobs.items()}
        shared = trained_too(jobs)
        length = 1 if script_of(source) == UNSPACED_SCRIPT else TOKEN_CHARACTERS
        tokens = {"passage_tokens": mean_tokens(corpus.path("corpus.parquet"), ["title", "text"], length)}
        tokens["query_tokens"] = mean_tokens(jobs[names[0]].path(f"queries.{names[0]}.parquet"), ["text"], length)
    counts = {what: {name: facts[what] for name, facts in splits.items()} for what in ("queries", "positives")}
    same_text = {name: facts.get("same_text", 0) for name, facts in splits.items()}
    return {"passages": num_passages} | counts | tokens, shared, same_text


def job_in(folder, role, source, settings):
    """A stand-in for the job of a stage in a role; it writes below `folder` and keeps no artefact."""
    Path(folder, role).mkdir()
    path = partial(Path, folder, role)
    others = {"inputs": {}, "load": lambda _: form(source.source), "progress": lambda *report: None}
    return SimpleNamespace(settings=settings, path=path, output=path, input=partial(Path, folder), **others)


def mean_tokens(path, columns, length):
    """The approximate mean number of tokens of a text in a Parquet file, for the forecast (int, at least 1). length: of
    a token in characters"""
    # With pre_buffer, all that was read would stay in memory until the end of the file.
    file, characters = pq.ParquetFile(path, pre_buffer=False), 0
    for batch in file.iter_batches(columns=columns):
        characters += sum(pc.sum(pc.utf8_length(column)).as_py() or 0 for column in batch.columns)
    return max(1, round(characters / max(1, file.metadata.num_rows) / length) + 2)


def script_of(source):
    """Return the property of the script of the first passages that keeps BM25 from reading their words ("has …"); None
    without one."""
    from teleport.search.lexical_index import MARKS, UNSPACED  # here: bm25s takes a while to load

    text = "".join(row[-1][:FIRST_ROWS] for row in islice(form(source.source).corpus(source), FIRST_ROWS))
    letters = "".join(filter(str.isalpha, text))
    if 2 * len(re.findall(f"[{UNSPACED}]", letters)) > len(letters):
        return UNSPACED_SCRIPT
    return (
        "has vowel signs or accents of their own"
        if len(re.findall(f"[{MARKS}]", text)) > SIGNS * len(letters)
        else None
    )


def configured(text, name, source, roles, counts, home, method=None):
    """The template `text` with the collection, its counts, the sizes that suit them, and the episodes of a method."""
    passages = counts["passages"]
    measures = [measure for measure, cutoff in measure_cutoffs(MEASURES).items() if cutoff < passages] or ["RR@10"]
    blocks = {"collection": source.model_dump(mode="json", exclude_unset=True), "counts": counts}
    values = {
        r"^# Your own(.*\n)*?(?=name:)": "",
        r"^name: .*": f"name: {flow(name)}",
        r"^collection:\n(  .*\n)+": yaml.safe_dump(blocks, sort_keys=False, allow_unicode=True),
        r"splits: .*": f"splits: {flow(roles.test)}",
        r"measures: .*": f"measures: {flow(measures)}",
    }
    values |= training_values(yaml.safe_load(text)["training"], roles, counts) if roles.dev else EVALUATED
    if method:
        sizes = (int(values[key].split()[-1]) for key in (STEPS, BATCH))
        values |= {EPISODES + r"\n": "", EXPERIMENTS: method_text(method, home, *sizes), OF_RECIPE: OF_METHOD}
    for pattern, value in values.items():
        text = re.sub(pattern, lambda _, value=value: value, text, count=1, flags=re.MULTILINE)
    return text


def training_values(training, roles, counts):
    """{regular expression: value} of the template's lines on training; training: its block (dict)."""
    queries = counts["queries"]["train"]
    batch = min(training["batch_queries"], queries)
    batches = -(-queries // batch)
    steps = min(MOST_STEPS, max(batches, min(training["steps"], MOST_EPOCHS * batches)))
    every = min(training["evaluate_every"], -(-steps // 2))
    # Ranking dev takes at most a tenth of the training (config/README.md): a passage costs 1 / 4.5 of one trained on.
    pool = min(training["dev"]["passages"], max(LEAST_POOL, int(0.45 * steps * batch / (1 + -(-steps // every)))))
    usual = training["dev"]
    dev = usual | {"split": roles.dev, "passages": pool, "random": min(usual["random"], pool // 9)}
    dev["queries"] = min(usual["queries"], pool // 3)  # the template's; so the pool has room for neighbours
    return {
        BATCH: f"batch_queries: {batch}",
        STEPS: f" steps: {steps}",
        r"evaluate_every: \d+": f"evaluate_every: {every}",
        r" dev: {.*": f" dev: {flow(dev)}",
    }


def flow(value):
    """A value as YAML in one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True).split("\n")[0]


def tables(output, folder, test, dev):
    """(source, source before judgments are divided, Roles, sentences on drawn splits, function that writes these): for
    corpus.tsv, with queries and judgments named as in `LAYOUTS`.

    output: the later folder of drawn splits. The function takes the folder to write to; it is None if none are drawn.
    """
    corpus = records.existing_or_none(folder / "corpus.tsv")
    if not corpus:
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


def files_of(folder):
    """({split: [queries, judgments]}, the names of train's files) of a folder of tables; the split is "" if no file
    names one."""
    queries = layout_of(folder, "queries") or "queries.*.tsv"
    of_split = "*" in queries
    qrels = layout_of(folder, "qrels") or "qrels.tsv"
    if of_split and qrels == "qrels.tsv":
        qrels = "qrels.*.tsv"
    if "/" in qrels:
        names = records.split_names(folder / "qrels", "*.tsv", "FROM")
    elif "*" in qrels:
        names = records.split_names(folder, "(?:queries|qrels).*.tsv" if of_split else qrels, "FROM")
    else:
        names = [""]
    both = (queries, qrels)
    files = {
        split: [records.existing(folder / pattern.replace("*", split), "FROM") for pattern in both] for split in names
    }
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
    """The message if a folder has no corpus; it names the folders below that have one, as in BEIR's sets of several."""
    names = {f"corpus.{form}{zipped}" for form in ("tsv", "jsonl") for zipped in ("", ".gz")}
    folders = [path.parent for pattern in ("*/corpus.*", "*/*/corpus.*") for path in folder.glob(pattern)
             if path.name in names]  # fmt: skip
    below = sorted({str(path.relative_to(folder)) for path in folders})
    if below:
        return f"{folder} has no corpus.tsv or corpus.jsonl, but its folders {', '.join(below)} have one. Give one of "\
               f"them as FROM: {folder / below[0]}."  # fmt: skip
    beside = "no corpus.tsv.gz or corpus.jsonl beside it, nor pairs in files that end with"
    return f"{folder / 'corpus.tsv'}: no such file, and {beside} {SUFFIXES}. Correct FROM."


def tsv(corpus, files):
    """The source of files {split: (queries, judgments)}."""
    splits = {
        split: {"queries": str(queries), "qrels": str(qrels)} for split, (queries, qrels) in files.items() if split
    }
    return Tsv(source="tsv", corpus=str(corpus), splits=splits)


def beir(output, folder, test, dev):
    """Return the same as `tables`, for a BEIR folder; where judgments are divided, its other files are linked beside
    them."""
    names = records.split_names(folder / "qrels", "*.tsv", "FROM")
    roles, given = roles_of(names, folder, test, dev, "qrels/train.tsv"), Beir(source="beir", path=str(folder))
    if roles.divided is None:
        return given, given, roles, [], None
    others = set(names) - {roles.divided}
    qrels = records.existing(folder / "qrels" / f"{roles.divided}.tsv", "FROM")
    _, notes, write = divide(output, qrels, roles, others, "qrels/{}.tsv", HEADER)
    files = ("corpus.jsonl", "queries.jsonl", *(f"qrels/{split}.tsv" for split in others))
    linked = {file: records.existing(folder / file, "FROM").absolute() for file in files}

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
    if unknown := [split for split in (*test, *filter(None, [dev])) if split not in (*names, *drawn)]:
        raise Refusal(f"{have}, no {', '.join(dict.fromkeys(unknown))}. Correct --test or --dev.")
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
    rows = list(records.judgment_rows(qrels, header))
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
    if not all(splits.values()):
        problem = f"{place} has {len(queries)} judged queries, too few for {', '.join(splits)}"
        raise Refusal(f"{problem}. Judge more of them, or divide them yourself: {form}.")
    counts = " and ".join(f"{len(splits[split])} for {split}" for split in missing)
    return splits, f"{counts} of {len(queries)} judged queries were drawn by their ids"
