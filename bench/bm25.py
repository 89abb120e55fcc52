"""Lexical search: the stages `lexical_index` and `bm25` against bm25s, numpy's and numba's, and tantivy.

    python bench/bm25.py [--passages 60000] [--queries 500] [--depth 200] [--threads 2] [--rounds 3]
    python bench/bm25.py --index-peer     # bm25s indexes the same texts too: seconds and memory

Passages are stop words and then words of the embedded collection by Zipf's law, as in English the most frequent words
are stop words; they are as long as MS MARCO's (56 words on average). A query is six words that follow each other in
one. --frequent draws words of the embedded collection alone, so that some are in most passages. The stage builds the
index in a process of its own, whose memory is measured.
Both peers are bm25s over the same postings, with one thread: `get_scores` with a sort of all passages that match, which
gives the stage's ranking, and its numba `retrieve`, which leaves ties to chance. With more threads, `retrieve` and the
stage run once more with all of them. tantivy is measured where it is installed (`pip install tantivy`): k1 and b are
fixed there and lengths rounded, so its scores are others. With one thread times are those of this process, which a busy
machine disturbs least; with more, of the clock.
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

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bm25s.stopwords import STOPWORDS_EN

import texts
from rehearsal.words import Words, blocks
from rounds import REPOSITORY, interleaved, parser, report
from teleport.collection.build import CORPUS
from teleport.collection.forms.apidocs import package_docs, package_version
from teleport.running.artefact import MANIFEST, file_entry
from teleport.running.files import write_json
from teleport.running.job import Job
from teleport.search import lexical_index
from teleport.search.bm25 import LexicalIndex, query_terms
from teleport.search.lexical_index import Terms
from teleport.settings.search import Bm25Settings, LexicalIndexSettings

PACKAGES = ("numpy", "networkx")  # of the embedded collection
VOCABULARY, HALF = 300_000, 5  # words; letters of those that make a rare one, so that a text is as long as a real one
MEAN_WORDS, QUERY_WORDS = 56, 6
KEY = "0" * 12
SETTINGS = LexicalIndexSettings(title="none")
SORTED, RETRIEVE = PEERS = "bm25s get_scores and sort", "bm25s retrieve (numba)"


def vocabulary(first):
    """The words `first`, then those of the embedded collection, frequent ones first, then pairs of them (list)."""
    counts = Counter()
    for package in PACKAGES:
        for doc in package_docs(package, package_version(package)):
            counts.update(word for word in doc.body.lower().split() if word.isascii() and word.isalpha())
    words = list(dict.fromkeys([*first, *(word for word, _ in counts.most_common())]))
    return texts.with_pairs(words, [word for word in words if len(word) <= HALF], VOCABULARY)


def write_collection(folder, passages, queries, first=STOPWORDS_EN):
    """A finished stage `collection` below results/stages of `folder`, without queries; returns some queries' texts."""
    words, rng = Words(vocabulary(first), seed=4), np.random.default_rng(4)
    stage, asked = folder / "results/stages/collection" / KEY, []
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
    write_json(
        stage / MANIFEST, {"kind": "collection", "key": KEY, "files": files, "facts": {"num_passages": passages}}
    )
    return asked[:queries]


def spec(kind, settings, inputs):
    return {"kind": kind, "key": KEY, "settings": settings.model_dump(), "inputs": inputs, "code": "bench"}


def index_spec():
    """Of the stage `lexical_index` over the collection of `write_collection`."""
    return spec("lexical_index", SETTINGS, {"collection": f"collection/{KEY}"})


def build_index(folder):
    """Run the stage `lexical_index` in a process of its own; returns (job of a `bm25` stage that reads it, figures)."""
    code = "import json, sys; from teleport.running.job import Job; from teleport.running.run import run\n"
    code += "from teleport.running.log import configure_logging; configure_logging(); run(Job(json.loads(sys.argv[1])))"
    run_python(code, json.dumps(index_spec()), folder)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    inputs = {"index": f"lexical_index/{KEY}", "collection": f"collection/{KEY}"}
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


PEER_INDEX = """
import sys, resource, time, bm25s, Stemmer, pyarrow.parquet as pq
texts = pq.read_table(sys.argv[1], columns=["text"]).column("text").to_pylist()
started, cpu = time.time(), time.process_time()
tokens = bm25s.tokenize(texts, stemmer=Stemmer.Stemmer("english"), show_progress=False)
bm25s.BM25(k1=0.9, b=0.4).index(tokens, show_progress=False)
print(time.time() - started, time.process_time() - cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peer_index(folder):
    """Figures of bm25s indexing the same texts."""
    path = f"results/stages/collection/{KEY}/corpus.parquet"
    seconds, processor, memory = map(float, run_python(PEER_INDEX, path, folder).split())
    return {
        "bm25s index seconds": seconds,
        "bm25s index processor seconds": processor,
        "bm25s index peak GB": memory / 1e9,
    }


def bm25s_over(index, backend):
    """bm25s with our postings."""
    peer = bm25s.BM25(method="lucene", k1=SETTINGS.k1, b=SETTINGS.b, backend=backend)
    peer.nonoccurrence_array = None
    names = {"data": index.scores, "indices": index.passages, "indptr": index.offsets, "num_docs": index.num_passages}
    peer.scores, peer.unique_token_ids_set = names, range(len(index.offsets) - 1)
    return peer


def sorted_matches(scores_P, depth):
    """The passages of the highest scores of all: at most `depth` above 0, ties by the smaller number."""
    matches = np.flatnonzero(scores_P > 0)
    if len(matches) > depth:
        last = np.partition(scores_P[matches], -depth)[-depth]
        matches = matches[scores_P[matches] >= last]
    return matches[np.argsort(-scores_P[matches], kind="stable")][:depth]


def tantivy_index(folder, terms, queries):
    """A function (queries of numbers, depth) that searches the same terms with tantivy, one segment."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", stored=False, tokenizer_name="whitespace", index_option="freq")
    index = tantivy.Index(builder.build())
    writer = index.writer(512_000_000, 1)
    for batch in lexical_index.read_batches(folder / "results/stages/collection" / KEY / "corpus.parquet", "none"):
        for text in batch:
            writer.add_document(tantivy.Document(text=" ".join(f"t{n}" for n in terms.of(text))))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    asked = [index.parse_query(" ".join(f"t{n}" for n in terms.of(query)) or "none", ["text"]) for query in queries]
    return lambda depth: [searcher.search(query, depth).hits for query in asked]


def compare(job, index, queries, arguments):
    """({variant: seconds}, figures) of every engine on the same queries."""
    depth, few = arguments.depth, queries[: arguments.queries]
    numpy_peer, numba_peer = bm25s_over(index, "numpy"), bm25s_over(index, "numba")
    some = [query for query in few if query]

    def get_scores(peer):
        return [sorted_matches(peer.get_scores_from_ids(query), depth) for query in some]

    def retrieve(threads):
        return numba_peer.retrieve(
            some, k=depth, show_progress=False, backend_selection="numba", n_threads=threads if threads > 1 else 0
        )

    variants = {SORTED: lambda: get_scores(numpy_peer), RETRIEVE: lambda: retrieve(1)}
    variants["stage, 1 thread"] = lambda: index.search(some, depth, 1)
    if (threads := arguments.threads) > 1:
        variants[f"{RETRIEVE}, {threads} threads"] = lambda: retrieve(threads)
        variants[f"stage, {threads} threads"] = lambda: index.search(some, depth, threads)
    ids_QK, _ = index.search(some, depth, threads)
    equal = all((ids[ids >= 0] == expected).all() for ids, expected in zip(ids_QK, get_scores(numpy_peer), strict=True))
    lists = [index.offsets[term + 1] - index.offsets[term] for query in some for term in query]
    figures = {"same ranking as get_scores": equal, "postings a query": float(np.sum(lists) / len(some))}
    return variants, figures | {"terms a query": len(lists) / len(some)}


def main(arguments=None):
    made = parser("BM25 against bm25s and tantivy.", passages=60_000, queries=500, depth=200)
    made.add_argument("--index-peer", action="store_true", help="let bm25s index the same texts too")
    made.add_argument("--frequent", action="store_true", help="no stop words: words that most passages have")
    made.add_argument("--folder", type=Path, help="where the collection and its index lie meanwhile")
    arguments = made.parse_args(arguments)
    with TemporaryDirectory(dir=arguments.folder) as folder:
        folder = Path(folder)
        first = () if arguments.frequent else STOPWORDS_EN
        asked = write_collection(folder, arguments.passages, arguments.queries, first)
        job, figures = build_index(folder)
        if arguments.index_peer:
            figures |= peer_index(folder)
        index = LexicalIndex.open(job, "index")
        variants, searched = compare(job, index, query_terms(job, asked), arguments)
        if find_spec("tantivy"):
            search = tantivy_index(folder, Terms(SETTINGS), asked)
            variants["tantivy (other scores)"] = lambda: search(arguments.depth)
        clocks = {"processor": time.process_time, "clock": time.perf_counter}
        seconds = interleaved(variants, arguments.rounds, clocks["clock" if arguments.threads > 1 else "processor"])
    figures |= searched | {"peak GB of this process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}
    report("bm25", seconds, PEERS, arguments.queries, "queries", arguments, **figures)


if __name__ == "__main__":
    main()
