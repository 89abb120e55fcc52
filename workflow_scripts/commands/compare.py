"""Two systems side by side: queries won, lost and tied, and what each retrieves for one query."""

from itertools import islice

import numpy as np
import pyarrow.parquet as pq

from commands.export import collection_of, passage_texts, run_lines, split_of, stage_at
from teleport.refusal import Refusal

PASSAGES, CHARACTERS = 10, 70


def compare(first, second, measure, query, most):
    """The comparison of two evaluate stages (folders, or links to them) as text: of all queries, or of one.

    measure: a name in both, by default the first; most: how many of the largest differences are listed. Raises
    Refusal for stages of other kinds, collections or splits, and for a measure or a query that they lack.
    """
    stages = [stage_at(path, "evaluate-test") for path in (first, second)]
    for path, stage in zip((first, second), stages, strict=True):
        if stage.manifest["kind"] != "evaluate":
            raise Refusal(f"{path} is a {stage.manifest['kind']} stage: give evaluate stages, such as evaluate-test.")
    if len({(stage.manifest["inputs"]["collection"], split_of(stage)) for stage in stages}) > 1:
        raise Refusal(f"{first} and {second} are of two collections or splits: their queries differ.")
    collection, split = collection_of(stages[0]), split_of(stages[0])
    queries = pq.read_table(collection.path(f"queries.{split}.parquet")).to_pylist()
    texts = {row["query_id"]: row["text"] for row in queries}
    if query is None:
        return of_all(stages, measure or stages[0].manifest["settings"]["measures"][0], texts, most)
    if query not in texts:
        raise Refusal(f"the split has no query {query!r}. Its first is {next(iter(texts))!r}.")
    return of_query(stages, collection, split, query, texts[query])


def scores(stage, measure):
    """{query id: value} of a measure. Raises Refusal when the stage has no such measure."""
    if measure not in stage.facts["means"]:
        raise Refusal(f"there is no measure {measure!r} there, but {', '.join(stage.facts['means'])}.")
    rows = pq.read_table(stage.path("per_query.parquet"), filters=[("measure", "=", measure)]).to_pylist()
    return {row["query_id"]: row["value"] for row in rows}


def of_all(stages, measure, texts, most):
    """Means, wins of the second over the first, losses, ties, and the queries with the largest differences."""
    one, two = (scores(stage, measure) for stage in stages)
    names = sorted(one)
    differences = np.array([two[name] - one[name] for name in names])
    means = [np.mean(list(values.values())) for values in (one, two)]
    lines = [
        f"{measure} of {len(names)} queries: A {means[0]:.4f}, B {means[1]:.4f}, B - A {differences.mean():+.4f}",
        f"B wins {(differences > 0).sum()}, loses {(differences < 0).sum()}, ties {(differences == 0).sum()}",
    ]
    largest = np.argsort(-np.abs(differences), kind="stable")[:most]
    for name, difference in ((names[row], differences[row]) for row in largest if differences[row]):
        lines.append(f"{difference:+.3f}  {one[name]:.3f} -> {two[name]:.3f}  {name}  {texts[name]}")
    return "\n".join(lines)


def of_query(stages, collection, split, query, text):
    """The first passages of both systems for a query, those judged relevant marked by their grade."""
    qrels = pq.read_table(collection.path(f"qrels.{split}.parquet"), filters=[("query_id", "=", query)]).to_pylist()
    grades = {row["doc_id"]: row["grade"] for row in qrels}
    lines = [f"{query}: {text}"]
    for system, stage in zip("AB", stages, strict=True):
        measures = stage.manifest["settings"]["measures"]
        lines += ["", f"{system}: {', '.join(f'{name} {scores(stage, name).get(query, 0):.3f}' for name in measures)}"]
        ids = list(islice((line[2] for line in run_lines(stage) if line[0] == query), PASSAGES))
        passages = passage_texts(collection, ids)
        for rank, name in enumerate(ids, 1):
            lines.append(f"{rank:3} {grades.get(name, '-'):>2}  {name}  {passages.get(name, '')[:CHARACTERS]}")
    return "\n".join(lines)
