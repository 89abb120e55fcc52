"""Two systems side by side: a test, queries won, lost and tied, and the passages of each for one query."""

from glob import escape
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from commands.stages import passage_texts, queries_of, run_lines, split_of, stage_at
from teleport.api import documents_of, require_same_rules, scores_in, scores_of
from teleport.evaluation.names import Documents
from teleport.evaluation.significance import TIE
from teleport.evaluation.significance import compare as test
from teleport.refusal import Refusal
from teleport.report.render import cell
from teleport.report.verdicts import p_text
from teleport.report.words import number
from teleport.running.artefact import MANIFEST
from teleport.settings.measures import better

PASSAGES, CHARACTERS = 10, 70
RESAMPLES = 9999


def compare(first, second, measure, query, most):
    """The comparison of two systems as text: of all queries, or of one.

    first, second: evaluate stages, as `runs_at` takes them; measure: a name in both, by default the first; most: how
    many of the largest differences are listed
    """
    systems = [runs_at(path) for path in (first, second)]
    for path, stages in zip((first, second), systems, strict=True):
        if (kind := stages[0].manifest["kind"]) != "evaluate":
            raise Refusal(f"{path} is a {kind} stage: give evaluate stages, such as evaluate-test.")
    if len({(stage.manifest["inputs"][f"split.{split_of(stage)}"], split_of(stage)) for stage in chain(*systems)}) > 1:
        raise Refusal(f"{first} and {second} are of two collections or splits: their queries differ.")
    require_same_rules(first, second, [*chain(*systems)])
    one = systems[0][0]
    queries = pq.read_table(queries_of(one).path(f"queries.{split_of(one)}.parquet")).to_pylist()
    texts = {row["query_id"]: row["text"] for row in queries}
    if query is None:
        return of_all(systems, measure or one.manifest["settings"]["measures"][0], texts, most)
    if query not in texts:
        raise Refusal(f"the split has no query {query!r}. Its first is {next(iter(texts))!r}.")
    return of_query(systems, query, texts[query])


def runs_at(path):
    """The finished stages (list of `Artefact`) at a path: a stage or a link to one; or one of every seed, if the path
    leaves out the folders seed-N."""
    if not (path / MANIFEST).is_file():
        for folder in path.parents:
            of_seeds = f"seed-*/{escape(str(path.relative_to(folder)))}/{MANIFEST}"
            if manifests := sorted(folder.glob(of_seeds)):
                return [stage_at(each.parent) for each in manifests]
    return [stage_at(path, "evaluate-test")]


def of_all(systems, measure, texts, most):
    """Means, the test, wins of the second over the first, losses, ties, and the queries with the largest differences;
    systems: a stage per seed each."""
    (names, one), (_, two) = (scores_of(stages, measure) for stages in systems)
    comparison = test(two, one, resamples=RESAMPLES, way=better(measure) or 1)
    a_Q, b_Q = (each.values_QR.mean(axis=1) for each in (one, two))
    lines = [
        f"{measure} of {number(len(names), 'query')}: A {a_Q.mean():.4f}, B {b_Q.mean():.4f}, "
        f"B - A {comparison.difference:+z.4f}, p {p_text(comparison.p)}",
        f"B wins {comparison.won}, loses {comparison.lost}, ties {len(names) - comparison.won - comparison.lost}",
        how_tested(comparison, len(one.seeds), len(two.seeds)),
    ]
    differences_Q = b_Q - a_Q
    largest = np.argsort(-np.abs(differences_Q), kind="stable")[:most]
    for row in largest:
        if abs(differences_Q[row]) > TIE:
            name, change = names[row], f"{a_Q[row]:.3f} -> {b_Q[row]:.3f}"
            lines.append(f"{differences_Q[row]:+.3f}  {change}  {name}  {texts[name]}")
    return "\n".join(lines)


def how_tested(comparison, seeds_of_a, seeds_of_b):
    """Return the text on what p compares. comparison: of `significance.compare`; seeds_of_a, seeds_of_b: the number of
    seeds of each system"""
    if comparison.method == "crossed":
        return f"p: two-sided, over queries and seeds ({seeds_of_a} of A, {seeds_of_b} of B), both random"
    text = f"p: two-sided, over queries, permutation test with {RESAMPLES:,} resamples"
    return text + ("; this compares these checkpoints: another seed may differ" if comparison.checkpoints else "")


def of_query(systems, query, text):
    """The first passages of both systems for a query, those judged relevant marked by their grade; systems: a stage per
    seed each, of which the first is shown."""
    one = systems[0][0]
    path = queries_of(one).path(f"qrels.{split_of(one)}.parquet")
    qrels = pq.read_table(path, filters=[("query_id", "=", query)]).to_pylist()
    names, grades = pa.array([row["doc_id"] for row in qrels], pa.string()), {}
    if separator := documents_of(one):
        documents = Documents(names, separator)
        names = documents.names.take(documents.document_P)
    for name, row in zip(names.to_pylist(), qrels, strict=True):  # of a document its highest
        grades[name] = max(row["grade"], grades.get(name, row["grade"]))
    lines = [f"{query}: {text}"]
    for system, (stage, *others) in zip("AB", systems, strict=True):
        scores = {name: scores_in(stage, name).get(query) for name in stage.manifest["settings"]["measures"]}
        figures = [f"{name} {cell(value, None, '.3f')}" for name, value in scores.items()]  # without judgments no score
        alone = f" (one of {1 + len(others)} seeds)" if others else ""
        lines += ["", f"{system}{alone}: {', '.join(figures)}"]
        ids = list(islice((line[2] for line in run_lines(stage) if line[0] == query), PASSAGES))
        passages = passage_texts(stage.input("corpus"), ids)
        lines += [] if ids else ["nothing found"]
        for rank, name in enumerate(ids, 1):
            lines.append(f"{rank:3} {grades.get(name, '-'):>2}  {name}  {passages.get(name, '')[:CHARACTERS]}")
    return "\n".join(lines)
