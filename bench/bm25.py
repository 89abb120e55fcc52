"""Lexical search: the stages `lexical_index` and `bm25`, beside bm25s's own choice of the first passages, and tantivy.

    python bench/bm25.py [--passages 60000] [--queries 500] [--depth 200] [--rounds 3]

The words of passages follow Zipf's law. Stop words are the most frequent, as in English; then come words of the
embedded collection. Passages are as long as MS MARCO's (56 words on average). A query is six consecutive words of one.
--frequent leaves out the stop words, so that some words are in most passages. The stage builds the index in a process
of its own, whose memory is measured. bm25s's `retrieve` leaves ties to chance. tantivy is measured if it is installed
(`pip install tantivy`); its k1 and b are fixed and its lengths rounded, so its scores differ. Times are processor times
of this process, which a busy machine disturbs least.
"""

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bm25s.stopwords import STOPWORDS_EN

import texts
from rehearsal.words import Words, blocks
from rounds import REPOSITORY, interleaved, parser, report
from teleport.collection.corpus import CORPUS
from teleport.collection.forms.apidocs import package_docs, package_version
from teleport.running.artefact import MANIFEST, file_entry
from teleport.running.files import write_json
from teleport.running.job import Job
from teleport.search import lexical_index
from teleport.search.bm25 import ARRAYS, TASK_QUERIES, open_index, query_terms, search
from teleport.search.lexical_index import tokenizer
from teleport.settings.search import Bm25Settings, LexicalIndexSettings

PACKAGES = ("numpy", "networkx")  # of the embedded collection
VOCABULARY, HALF = 300_000, 5  # words; most letters of each half of a rare one, for texts as long as real ones
MEAN_WORDS, QUERY_WORDS = 56, 6
KEY = "0" * 12
SETTINGS = LexicalIndexSettings(title="none")
RETRIEVE = "bm25s retrieve"


def vocabulary(first):
    """The words `first`, then those of the embedded collection, frequent ones first, then pairs of them (list)."""
    counts = Counter()
    for package in PACKAGES:
        for doc in package_docs(package, package_version(package)):
            counts.update(word for word in doc.body.lower().split() if word.isascii() and word.isalpha())
    words = list(dict.fromkeys([*first, *(word for word, _ in counts.most_common())]))
    return texts.with_pairs(words, [word for word in words if len(word) <= HALF], VOCABULARY)


def write_collection(folder, passages, queries, first=STOPWORDS_EN):
    """Write a finished stage `corpus` below results/stages of `folder`; returns the texts of some queries."""
    words, rng = Words(vocabulary(first), seed=4), np.random.default_rng(4)
    stage, asked = folder / "results/stages/corpus" / KEY, []
    stage.mkdir(parents=True)
    with pq.ParquetWriter(stage / "corpus.parquet", CORPUS) as file:
        for number, start, stop in blocks(passages):
            sizes = texts.lengths(stop - start, 5 + start, MEAN_WORDS)
            made = [" ".join(text) for text in words.block("passages", number, sizes)]
            numbers = map(str, range(start, stop))
            file.write_table(pa.table([list(numbers), [""] * len(made), made], schema=CORPUS))
            share = -(-queries * len(made) // passages)
            asked += [" ".join(made[row].split()[:QUERY_WORDS]) for row in rng.integers(len(made), size=share)]
    files = {"corpus.parquet": file_entry(stage / "corpus.parquet")}
    write_json(stage / MANIFEST, {"kind": "corpus", "key": KEY, "files": files, "facts": {"num_passages": passages}})
    return asked[:queries]


def spec(kind, settings, inputs):
    return {"kind": kind, "key": KEY, "settings": settings.model_dump(), "inputs": inputs, "code": "bench"}


def build_index(folder):
    """Run the stage `lexical_index` over the collection of `write_collection` in a process of its own; returns (job of
    a `bm25` stage that reads it, figures)."""
    code = "import json, sys; from teleport.running.job import Job; from teleport.running.run import run\n"
    code += "from teleport.running.log import configure_logging; configure_logging(); run(Job(json.loads(sys.argv[1])))"
    run_python(code, json.dumps(spec("lexical_index", SETTINGS, {"corpus": f"corpus/{KEY}"})), folder)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    inputs = {"index": f"lexical_index/{KEY}"}
    job = Job(spec("bm25", Bm25Settings(split="test", depth=1), inputs), root=folder)
    manifest = job.inputs["index"].manifest
    seconds, memory = (manifest["provenance"][name] for name in ("wall_seconds", "peak_memory_bytes"))
    size = sum(file["bytes"] for file in manifest["files"].values())
    figures = {"index seconds": seconds, "index peak GB": memory / 1e9, "index GB on disk": size / 1e9}
    figures["index processor seconds"] = used.ru_utime + used.ru_stime
    return job, figures | manifest["facts"]


def run_python(code, argument, folder):
    environment = {"PYTHONPATH": str(REPOSITORY / "workflow_scripts"), "PATH": ""}
    command = [sys.executable, "-c", code, argument]
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def tantivy_index(folder, terms, queries):
    """A function (depth) that searches the same terms with tantivy, one segment."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", stored=False, tokenizer_name="whitespace", index_option="freq")
    index = tantivy.Index(builder.build())
    writer = index.writer(512_000_000, 1)
    for batch in lexical_index.read_batches(folder / "results/stages/corpus" / KEY / "corpus.parquet", "none"):
        for numbers in terms(batch):
            writer.add_document(tantivy.Document(text=" ".join(f"t{n}" for n in numbers)))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    asked = [index.parse_query(" ".join(f"t{n}" for n in numbers) or "none", ["text"]) for numbers in terms(queries)]
    return lambda depth: [searcher.search(query, depth).hits for query in asked]


def compare(job, queries, arguments):
    """({variant: function that searches}, figures) of the stage and bm25s on the same queries."""
    arrays = [job.input("index", f"{name}.npy") for name in ARRAYS]
    shared = arrays, job.facts("index")["num_passages"], arguments.depth  # what `search` takes besides the queries
    peer, some = open_index(*shared[:2]), [query for query in queries[: arguments.queries] if query]
    peer.unique_token_ids_set = range(len(peer.scores["indptr"]) - 1)
    variants = {
        RETRIEVE: lambda: peer.retrieve(some, k=arguments.depth, show_progress=False),
        "stage": lambda: [search(shared, some[at : at + TASK_QUERIES]) for at in range(0, len(some), TASK_QUERIES)],
    }
    lists = [peer.scores["indptr"][term + 1] - peer.scores["indptr"][term] for query in some for term in query]
    return variants, {"postings a query": float(np.sum(lists) / len(some)), "terms a query": len(lists) / len(some)}


def main(arguments=None):
    made = parser("BM25 beside bm25s and tantivy.", passages=60_000, queries=500, depth=200)
    made.add_argument("--frequent", action="store_true", help="no stop words: words that most passages have")
    made.add_argument("--folder", type=Path, help="where the collection and its index lie meanwhile")
    arguments = made.parse_args(arguments)
    with TemporaryDirectory(dir=arguments.folder) as folder:
        folder = Path(folder)
        first = () if arguments.frequent else STOPWORDS_EN
        asked = write_collection(folder, arguments.passages, arguments.queries, first)
        job, figures = build_index(folder)
        variants, searched = compare(job, query_terms(job, SETTINGS, asked), arguments)
        if find_spec("tantivy"):
            splitter = tokenizer(SETTINGS)
            found = tantivy_index(folder, lambda texts: splitter.streaming_tokenize(texts, allow_empty=False), asked)
            variants["tantivy (other scores)"] = lambda: found(arguments.depth)
        seconds = interleaved(variants, arguments.rounds, time.process_time)
    figures |= searched | {"peak GB of this process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}
    report("bm25", seconds, (RETRIEVE,), arguments.queries, "queries", arguments, **figures)


if __name__ == "__main__":
    main()
