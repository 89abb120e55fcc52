"""The figures of published tables, from finished stages: measures, hours, costs, single queries and analyses."""

import inspect
from itertools import chain

import numpy as np
import pyarrow.parquet as pq

# figure of the kind `analyses`: (the analysis, the fact of its stage)
ANALYSES = {name: ("errors", name.replace(" ", "_")) for name in ("errors", "errors per positive", "top errors")}
ANALYSES |= {name: ("contrast", name) for name in ("overlap", "wins", "losses", "ties")}
ANALYSES |= {"negatives": ("negatives", "overlap"), "forgetting": ("forgetting", "rate")}
DECADES = {"queries with errors": ("errors", "queries"), "errors of queries with errors": ("errors", "errors")}
ANALYSES |= DECADES  # … from 1, 10, 100, ...: by the histogram
# figure of the kind `queries`: the column of contrast.parquet, where a passage without a judgment counts as grade 0
OF_QUERY = {name: name.replace(" ", "_") for name in ("value", "reference value", "rank", "grade", "reference grade")}
SECONDS = 3600


def figures(cell, runs, stages):
    """A cell's figure (float) per finished run (seed), in the table's units; runs: [{role: [stage names]}]."""
    kind, figure, scale = cell.kind, cell.figure, cell.scale
    done = [run for run in runs if all(map(stages.finished, chain(*run.values())))]
    artefacts = [{role: [stages.artefact(name) for name in names] for role, names in run.items()} for run in done]
    if kind == "hours":
        return [hours(run, figure) * scale for run in artefacts]
    if kind == "queries":
        values = [of_query(run["contrast"][0], cell.row.query, figure) for run in artefacts]
        return [value * scale for value in values if value is not None]
    if kind == "measures":
        return [run["evaluate"][0].facts["means"][cell.column.measure] * scale for run in artefacts]
    if kind == "costs":
        return [float(COSTS[figure](*(run[role] for role in cost_roles(figure)))) * scale for run in artefacts]
    return [analysis(run, figure) * scale for run in artefacts]


def over_seeds(figures):
    """(mean, standard deviation with ddof 1) of a figure of each seed (floats); None without figures, or of one.
    A NaN among them gives NaN."""
    mean = float(np.mean(figures)) if len(figures) else None
    return mean, float(np.std(figures, ddof=1)) if len(figures) > 1 else None


def hours(run, figure):
    """A figure of ANCE-Tele's Table 6 from the stages' manifests. "episode N", "training": of the training loop, over
    all attempts; "refresh": mean hours of one refresh; "refreshes": their number; "overall": all of them."""
    refreshes = sum(stage.manifest["kind"] == "merge" for stage in run.get("refresh", []))
    refreshing = sum(map(seconds, run.get("refresh", []))) / SECONDS
    training = sum(stage.facts["train_seconds"] for stage in run.get("train", [])) / SECONDS
    if figure == "refreshes":
        return float(refreshes)
    return refreshing / refreshes if figure == "refresh" else refreshing + training


def analysis(run, figure):
    """A figure of the kind `analyses` from the facts of its stage; "NAME from N": the sum over the histogram's decades
    from N on."""
    name, _, lowest = figure.partition(" from ")
    analysis, fact = ANALYSES[name]
    facts = run[analysis][0].facts
    if lowest:
        return sum(decade[fact] for decade in facts["histogram"] if decade["from"] >= int(lowest))
    return float(facts[fact])


def of_query(contrast, query, figure):
    """A figure of the kind `queries` of a contrast stage; None for a query that the stage does not have, as in a
    miniature."""
    column = OF_QUERY[figure]
    lines = pq.read_table(contrast.path("contrast.parquet"), columns=["query_id", column]).to_pylist()
    return next((float(line[column] or 0) for line in lines if line["query_id"] == query), None)


def seconds(stage):
    """Return the seconds that a stage took, with its shards and with the work kept from killed runs, as if one job ran
    after another."""
    return stage.manifest["provenance"]["wall_seconds"] + stage.facts.get("earlier_seconds", 0.0)


def query_ms(queries):
    """Milliseconds to encode a query of the split."""
    return 1000 * queries[0].facts["encode_seconds"] / queries[0].facts["texts"]


def search_ms(search):
    """Milliseconds to search for a query, over all attempts and shards."""
    return 1000 * search[0].facts["seconds"] / search[0].facts["lines"]


def index_gigabytes(index):
    """Return the size of an index in 1e9 bytes: its file, or the vectors if it is flat."""
    written = sum(file["bytes"] for name, file in index[0].manifest["files"].items() if name == "index.faiss")
    return (written or index[0].facts["bytes"]) / 1e9


# The costs of single stages (ANCE, Table 5): {figure of the kind `costs`: function of the Artefacts of its roles}
COSTS = {
    "encode seconds": lambda passages: seconds(passages[0]),
    "encode ms per passage": lambda passages: 1000 / passages[0].facts["texts_per_second"],
    "encode ms per query": query_ms,
    "index seconds": lambda index: seconds(index[0]),
    "index GB": index_gigabytes,
    "search ms per query": search_ms,
    "encode and search ms per query": lambda queries, search: query_ms(queries) + search_ms(search),
    # The seconds of the searches and the merge; the vectors and the index have figures of their own.
    "mining seconds per step": lambda mining, train: sum(map(seconds, mining)) / train[0].facts["steps"],
    "training seconds per step": lambda train: train[0].facts["train_seconds"] / train[0].facts["steps"],
}


def cost_roles(figure):
    """The roles of the stages that a figure of the kind `costs` needs: the arguments of its function."""
    return list(inspect.signature(COSTS[figure]).parameters)
