"""Two systems side by side: queries won, lost and tied, and what each finds for one query."""

import gzip

import numpy as np
import pyarrow.parquet as pq

from commands.export import collection_of, passage_texts
from teleport.runtime.artefact import Artefact

PASSAGES, CHARACTERS = 10, 70


def compare(first, second, measure, query, most):
    """The comparison of two evaluate stages (folders, or links to them) as text: of all queries, or of one.

    measure: a name in both, by default the first; most: how many of the largest differences are listed. Raises
    ValueError for stages of other kinds, collections or splits, and for a measure or a query that they lack.
    """
    stages = [Artefact(path.resolve()) for path in (first, second)]
    for path, stage in zip((first, second), stages, strict=True):
        if stage.manifest["kind"] != "evaluate":
            raise ValueError(
                f"{path} is a {stage.manifest['kind']} stage: give evaluate stages, such as evaluate-test."
            )
    collections = {stage.manifest["inputs"]["collection"] for stage in stages}
    splits = {stage.manifest["settings"]["split"] for stage in stages}
    if len(collections) > 1 or len(splits) > 1:
        raise ValueError(f"{first} and {second} are of two collections or splits: their queries differ.")
    collection = collection_of(stages[0])
    queries = pq.read_table(collection.path(f"queries.{splits.copy().pop()}.parquet"))
    texts = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    if query is not None:
        if query not in texts:
            raise ValueError(f"the split has no query {query!r}. Its first is {next(iter(texts))!r}.")
        return of_query(stages, collection, splits.pop(), query, texts[query])
    return of_all(stages, measure, texts, most)


def scores(stage, measure):
    """{query id: value} of a measure. Raises ValueError when the stage has no such measure."""
    if measure not in stage.manifest["facts"]["means"]:
        raise ValueError(f"there is no measure {measure!r} there, but {', '.join(stage.manifest['facts']['means'])}.")
    table = pq.read_table(stage.path("per_query.parquet"), filters=[("measure", "=", measure)])
    return dict(zip(table["query_id"].to_pylist(), table["value"].to_pylist(), strict=True))


def of_all(stages, measure, texts, most):
    """Means, wins of the second over the first, losses, ties, and the queries with the largest differences."""
    measure = measure or stages[0].manifest["settings"]["measures"][0]
    one, two = (scores(stage, measure) for stage in stages)
    names = sorted(one)
    differences = np.array([two[name] - one[name] for name in names])
    means = [np.mean(list(values.values())) for values in (one, two)]
    lines = [
        f"{measure} of {len(names)} queries: A {means[0]:.4f}, B {means[1]:.4f}, B - A {differences.mean():+.4f}",
        f"B wins {(differences > 0).sum()}, loses {(differences < 0).sum()}, ties {(differences == 0).sum()}",
    ]
    order = np.argsort(-np.abs(differences), kind="stable")[:most]
    for place in (place for place in order if differences[place]):
        name = names[place]
        lines.append(f"{differences[place]:+.3f}  {one[name]:.3f} -> {two[name]:.3f}  {name}  {texts[name]}")
    return "\n".join(lines)


def of_query(stages, collection, split, query, text):
    """The first passages of both systems for a query, those judged relevant marked by their grade."""
    qrels = pq.read_table(collection.path(f"qrels.{split}.parquet"), filters=[("query_id", "=", query)]).to_pylist()
    grades = {row["doc_id"]: row["grade"] for row in qrels}
    lines = [f"{query}: {text}"]
    for system, stage in zip("AB", stages, strict=True):
        measures = stage.manifest["settings"]["measures"]
        lines += ["", f"{system}: {', '.join(f'{name} {scores(stage, name).get(query, 0):.3f}' for name in measures)}"]
        with gzip.open(stage.path(f"{split}.run.gz"), "rt", encoding="utf-8") as file:
            found = [fields[2] for fields in map(str.split, file) if fields[0] == query][:PASSAGES]
        passages = passage_texts(collection, found)
        for rank, name in enumerate(found, 1):
            lines.append(f"{rank:3} {grades.get(name, '-'):>2}  {name}  {passages.get(name, '')[:CHARACTERS]}")
    return "\n".join(lines)
