"""A configuration for somebody's own collection, written from config/own-data.yaml."""

import math
import os
import re
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from commands.encoding import cut_of_first, first_encodings, sentence, split_words, unknown_tokens
from commands.hub_data import fetch_dataset
from commands.methods import CONFIG, method_file, method_text
from commands.new_encoder import encoder_lines
from commands.splits import reader_of
from teleport.collection import corpus as corpus_stage
from teleport.collection import split as split_stage
from teleport.plan.plan import Plan
from teleport.reader import trained_too
from teleport.refusal import Refusal
from teleport.report.stages import FOUND_FIRST
from teleport.report.table import few_queries
from teleport.report.words import number
from teleport.running.files import remove, require_output, write_new_folder, write_text
from teleport.settings.collection import CorpusSettings, SplitSettings
from teleport.settings.evaluation import Evaluation, Report
from teleport.settings.measures import measure_cutoffs
from teleport.settings.read import load
from teleport.settings.registry import form
from teleport.settings.section import NAME

TOKEN_CHARACTERS = 4.5  # of a text, with the space or sign behind a word; CLS and SEP come besides
MOST_STEPS, MOST_EPOCHS = 500, 10  # of an episode, in which each training query has its turn
FIRST_ROWS = 200  # passages, and characters of each, whose script is checked
OWN_TEXT = 0.05  # share of a split's queries that are also passages; a larger one means a collection like ArguAna
IGNORED = "ignore_own_text: true # the text of many queries is also a passage, which each would find first"
IGNORED_NOTE = "evaluation.ignore_own_text removes it from their results."
BY_CHARACTERS = "bm25: {terms: characters} # the script "
UNSPACED_SCRIPT = "has no spaces between words, or is Hangul"
SIGNS = 0.2  # vowel signs and accents for each letter, above which BM25's words would be pieces of words
LEAST_POOL = 50  # passages among which a dev query ranks its positives
DEPTH = Evaluation().depth
SHOWN, MOST_SHOWN = Report().queries, 1000  # test queries that the page shows in full by default, and if they are few
MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")  # R@k of a whole collection of k passages is always 1
ENCODER = r"^  checkpoint: .*\n  scale: .*\n"
STEPS, BATCH = r" steps: .*", r"batch_queries: .*"
OF_RECIPE = r"^# The recipe of .*\n# .*\n"
OF_METHOD = (
    "# In each episode, the step that ranks the dev queries best becomes the checkpoint; the start is step 0.\n"
    "# Segments of one training continue from their last step instead (select: last).\n"
)
EXPERIMENTS = r"^experiments:\n(  .*\n)+"
EPISODES = r"^# The second episode mines.*\n(# .*\n)+episodes:\n(  .*\n)+"
# Changes of the template if nothing is trained: no training, no episode, and a row for the checkpoint.
EVALUATED = {
    r"(^# The recipe of .*\n(# .*\n)*)?^training:\n(  .*\n)+\n?": "",
    EPISODES: "episodes: [] # nothing is trained\n",
    EXPERIMENTS: "external:\n  checkpoint: {label: Checkpoint, encoder: {}}\n",
}


def new(name, folder, test=(), dev=None, method=None, columns=(None, None), drop=(), encoder=None):
    """Write config/NAME.yaml for the collection in `folder` (Path); returns (its path, sentences on the collection).

    test, dev: the splits that the table reports, and the one that chooses the checkpoint, if their names do not say so;
    method: a file of config/methods, instead of the template's recipe; columns: of questions and of passages in a table
    of pairs, if their names do not say so; drop: collection.drop; encoder: as `encoder_lines` takes it, instead of the
    template's.

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
        method_file(method)  # before the collection is read, which may take minutes
    (start, notes), origin = encoder_lines(encoder) if encoder is not None else ({}, []), None
    with removed_unless_written(path, output.parent) as made:
        if str(folder).startswith("hub:"):
            folder, origin, note = fetch_dataset(str(folder), Path("data", f"{name}-hub"), made)
            notes.append(note)
        source, given, roles, of_splits, divided = reader_of(folder, output, columns, drop)(output, folder, test, dev)
        if drop:
            source, given = (each.model_copy(update={"drop": list(drop)}) for each in (source, given))
        if divided:
            write_new_folder(divided, output, made)
        counts, doubts, same_text = checked_counts(source, given)
        if empty := next((split for split in (*roles.test, roles.dev) if counts["positives"].get(split) == 0), None):
            raise Refusal(f"{folder}: the split {empty} has no relevant passage. Judge some, or remove its files.")
        if method and not roles.dev:
            raise Refusal(f"--method {method}: nothing is trained. {roles.why}")
        template = (CONFIG / "own-data.yaml").read_text(encoding="utf-8")
        text = configured(template, name, source, roles, counts, method, start)
        if origin:
            text = text.replace("\nname: ", f"\n# The collection is of {origin}\nname: ", 1)
        text, of_texts = fitted(text, source, roles, counts, same_text)
        write_text(path, text)
    return path, [*notes, sizes_text(counts, roles), *of_splits, *of_texts, *warnings(counts, roles, doubts)]


@contextmanager
def removed_unless_written(path, above):
    """Yield a list for the folders that are made. If an error comes before `path` is written, they are removed, and so
    is `above` if it is new and empty."""
    made, existed = [], above.exists()
    try:
        yield made
    except BaseException:
        for each in [] if path.exists() else made:  # a written configuration, at Ctrl-C, needs them
            remove(each)
        if not existed:
            with suppress(OSError):  # others may have begun to use it
                above.rmdir()
        raise


def fitted(text, source, roles, counts, same_text):
    """The configuration (text) with settings that suit the collection's texts, and sentences on these and on the
    encoder. same_text: {split: queries that have the text of a passage}"""
    notes = []
    for split in roles.test:
        if same_text[split] > OWN_TEXT * counts["queries"][split]:
            text = re.sub(r"^evaluation:\n", rf"\g<0>  {IGNORED}\n", text, count=1, flags=re.MULTILINE)
            notes.append(f"Queries of {split} with the text of a passage: {same_text[split]:,}. {IGNORED_NOTE}")
            break
    else:
        repeated = [(split, same_text[split]) for split in roles.test if same_text[split]]
        notes += [
            f"Queries of {split} with the text of a passage: {count:,}. {FOUND_FIRST}" for split, count in repeated
        ]
    if SHOWN < (most := max(counts["queries"][split] for split in roles.test)) <= MOST_SHOWN:
        text += f"\nreport: {{queries: {most}}} # the page shows every query of the test in full\n"
    if script := script_of(source):
        text += f"\n{BY_CHARACTERS}{script}\n"
        terms = "counts characters and pairs of neighbours" if script == UNSPACED_SCRIPT else "keeps them in its words"
        notes.append(f"The script of the texts {script}, so BM25 {terms}.")
    encoder = Plan(*load(yaml.safe_load(text))).encoder
    first = first_encodings(encoder, form(source.source).corpus(source))
    notes += [roles.why, f"The encoder has {sentence(encoder)}{cut_of_first(encoder, *first)}."]
    return text, notes + (unknown_tokens(first[1]) if script == UNSPACED_SCRIPT else split_words(*first))


def sizes_text(counts, roles):
    """A sentence on how many passages and queries there are."""
    order = dict.fromkeys(["train", *roles.test, roles.dev, *counts["queries"]])
    queries = [
        f"{number(counts['queries'][split], 'query')} for {split}" for split in order if split in counts["queries"]
    ]
    return f"{number(counts['passages'], 'passage')}, {', '.join(queries)}."


def warnings(counts, roles, doubts):
    """Warnings (list of str) about short lists, few queries to test with, and `doubts` (sentences) about queries."""
    short = f"the collection has fewer than {DEPTH} passages, so evaluation ranks all of them."
    notes = [short] if counts["passages"] < DEPTH else []
    few = chain.from_iterable(few_queries(counts["queries"][split], f"{split} query") for split in roles.test)
    notes += [f"{each[:1].lower()}{each[1:]}" for each in (*few, *doubts)]
    return [f"warning: {each}" for each in notes]


def checked_counts(source, given):
    """(the block `counts` of a collection, sentences on queries that are also trained on or have no positive, {split:
    number of queries with the text of a passage}). The collection is built once in a temporary folder, with all checks.
    given: the collection before its judgments were divided, whose files an error names"""
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
        doubts = trained_too(jobs) + [each for name in names for each in unanswerable(jobs[name], name, splits[name])]
        length = 1 if script_of(source) == UNSPACED_SCRIPT else TOKEN_CHARACTERS
        tokens = {"passage_tokens": mean_tokens(corpus.path("corpus.parquet"), ["title", "text"], length)}
        tokens["query_tokens"] = mean_tokens(jobs[names[0]].path(f"queries.{names[0]}.parquet"), ["text"], length)
    counts = {what: {name: facts[what] for name, facts in splits.items()} for what in ("queries", "positives")}
    same_text = {name: facts.get("same_text", 0) for name, facts in splits.items()}
    return {"passages": num_passages} | counts | tokens, doubts, same_text


def unanswerable(job, name, facts):
    """A sentence (list of str) on queries of a split that have judgments, but no positive."""
    judged = pq.read_table(job.path(f"qrels.{name}.parquet"), columns=["query", "grade"])
    positives = judged.filter(pc.greater_equal(judged["grade"], facts["positive_grade"]))
    without = facts["queries"] - pc.count_distinct(positives["query"]).as_py()
    what = f"Queries of {name} without a passage of grade {facts['positive_grade']} or more: {without:,}"
    remedy = "Judge a passage relevant for each, or remove their judgments"
    return [f"{what}. They score 0 under every system, as in trec_eval. {remedy}."] if without else []


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


def configured(text, name, source, roles, counts, method, start):
    """The template `text` with the collection, its counts, the sizes that suit them, the episodes of a method and an
    encoder. start: the lines of `encoder_lines`; {} for the template's encoder"""
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
        values |= {EPISODES + r"\n": "", EXPERIMENTS: method_text(method, *sizes), OF_RECIPE: OF_METHOD}
    if start:
        lines = (f"  {key}: {flow(value)}{comment and f' # {comment}'}\n" for key, (value, comment) in start.items())
        values[ENCODER] = "".join(lines)
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
    # Ranking dev takes at most a tenth of the training's time: to encode a passage costs 1 / 4.5 of training on it.
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
