"""The published tables of ANCE, of STAR and ADORE, and of rank segments: their figures, and ours beside them.

Figures are compared with a transcription of the papers where it is at hand; the experiments are written out here.
"""

import pytest

from paths import REPOSITORY
from teleport.report.published import read_published

FOLDER = REPOSITORY / "config/published"
OF_ANCE = {
    "Rand Neg": "rand-neg",
    "NCE Neg": "nce",
    "BM25 Neg": "bm25-neg",
    "DPR (BM25 + Rand Neg)": "dpr",
    "BM25 -> Rand": "bm25-to-rand",
    "BM25 -> NCE Neg": "bm25-to-nce",
    "BM25 -> BM25 + Rand": "bm25-to-dpr",
    "ANCE (FirstP)": "ance",
    "ANCE (MaxP)": "ance-maxp",
}
OF_STAR_ADORE = {
    "In-Batch Neg": "in-batch",
    "Rand Neg": "rand-neg-star",
    "BM25 Neg": "bm25-neg",
    "ANCE": "ance",
    "STAR": "star",
    "ADORE+In-Batch Neg": "adore-in-batch",
    "ADORE+Rand Neg": "adore-rand-neg",
    "ADORE+BM25 Neg": "adore-bm25-neg",
    "ADORE+ANCE": "adore-ance",
    "ADORE+STAR": "adore-star",
}
BM25 = {"BM25": "BM25"}
COSTS = [
    *[None] * 4,
    *["encode seconds", "encode ms per query", "search ms per query", "encode and search ms per query"],
    *["encode seconds", "index seconds", "mining seconds per step", "training seconds per step"],
]
SWEEP = [
    *["ance", "ance-top-500", "ance-lr-2e-6", "ance-lr-2e-7-top-500-every-20k", "ance-lr-2e-7-top-1000-every-20k"],
    *["ance-lr-1e-5-top-100", "ance-lr-1e-6-top-100-every-20k", "ance-lr-1e-6-top-100-every-5k", "ance"],
    "ance-lr-1e-6",
]
PQ = ["PQ6", "PQ12", "PQ24", "PQ48", "PQ96"]
SEGMENTS = {
    "Top 20 + Bottom 20": "ranks-1-20-and-181-200",
    "Bottom 20": "ranks-181-200",
    "Top 20": "ranks-1-20",
    "Random 20": "ranks-1-200",
}
FIGURE_5 = {  # start, ADORE with RankNet, ADORE
    name: (OF_STAR_ADORE[name], f"{OF_STAR_ADORE[f'ADORE+{name}']}-ranknet", OF_STAR_ADORE[f"ADORE+{name}"])
    for name in ("In-Batch Neg", "Rand Neg", "BM25 Neg", "ANCE", "STAR")
}
CASES = ("ance-table-8", "ance-table-9")
# Table: (paper, table in the transcription, experiments by system or row by row; what has none is cited)
NAMES = {
    "ance-table-1": ("ance", "table1", BM25 | OF_ANCE),
    "ance-table-2": ("ance", "table2", BM25 | {"DPR": "dpr", "ANCE": "ance"}),
    "ance-table-3": ("ance", "table3", {}),
    "ance-table-4": ("ance", "table4", {}),
    "ance-table-5": ("ance", "table5", [figure and "ance" for figure in COSTS]),
    "ance-table-6": ("ance", "table6", BM25 | OF_ANCE | {"BM25 + Rand Neg": "dpr"}),
    "ance-table-7": ("ance", "table7", SWEEP),
    "ance-figure-3": (
        "ance",
        "fig3_and_sec63_overlap",
        {"Rand Neg": "rand-neg", "BM25 Neg": "bm25-neg", "ANCE": "ance"},
    ),
    "ance-table-8": ("ance", "table8", ["ance"] * 3),
    "ance-table-9": ("ance", "table9", ["ance"] * 3),
    "ance-appendix-a4": ("ance", "appendix_a4_win_loss_tie", ["ance"]),
    "star-adore-table-1": ("star_adore", "table1", OF_STAR_ADORE),
    "star-adore-table-2": ("star_adore", "table2", BM25 | OF_STAR_ADORE),
    "star-adore-table-3": ("star_adore", "table3", [None] * 4),
    "star-adore-table-4": ("star_adore", "table4", {"ANCE": "ance", "STAR": "star", "ADORE": "adore-bm25-neg"}),
    "star-adore-table-5": ("star_adore", "table5", [*(f"adore-bm25-neg-{pq.lower()}" for pq in PQ), "adore-bm25-neg"]),
    "star-adore-figure-3": ("star_adore", "fig3_text", ["rand-neg-star"]),
    "star-adore-figure-5": ("star_adore", "table2", [name for names in FIGURE_5.values() for name in names]),
    "rank-segments": ("rank_segments", "fig3_text", SEGMENTS),
}


def read(name):
    return read_published(FOLDER / f"{name}.yaml")


@pytest.mark.ci(6)
@pytest.mark.parametrize("name", NAMES)
def test_figures_are_the_papers(papers, name):
    """Values that are settings, not results, stand in the names of the rows."""
    paper, table, _ = NAMES[name]
    published = papers[paper][table]
    values, skipped = [row["values"] for row in published["rows"]], {"ance-table-3": 3, "ance-table-7": 3}.get(name, 0)
    if name == "rank-segments":
        losses = {row["system"]: row["values"] for row in papers[paper]["fig4_text"]["rows"]}
        values = [row["values"] + losses[row["system"]] for row in published["rows"]]
    if name in CASES:
        values = [[rank, *labels] for _, rank, *labels in values]
        values = [[*line[:1], line[2], line[3], line[5], line[6]] for line in values]
    if name == "star-adore-figure-5":
        printed = {row["system"]: row["values"][0] for row in published["rows"]}
        values = [[value] for at in FIGURE_5 for value in (printed[at], None, printed[f"ADORE+{at}"])]
        assert [row.values for row in read(name).rows] == values
        return
    rows = read(name).rows
    assert [row.values for row in rows] == [found[skipped:] for found in values]
    for row, printed in zip(rows, published["rows"], strict=True):
        if name in ("ance-table-1", "ance-table-2", "ance-table-4", "ance-table-6", "ance-figure-3", "rank-segments"):
            assert row.system == printed["system"]
        if name.startswith("star-adore") and name != "star-adore-table-3":
            assert row.system == printed["system"]
        if name in CASES:
            assert (row.query, row.system) == (str(printed["values"][0]), f"query {printed['values'][0]}")
            assert all(printed["values"][at] in read(name).notes[1] for at in (2, 5))


def test_settings_in_names_of_rows_are_the_papers(papers):
    rows = read("ance-table-7").rows
    for row, printed in zip(rows, papers["ance"]["table7"]["rows"], strict=True):
        rate, top, every = printed["values"][:3]
        words = row.system.replace(",", "").split()
        assert (float(words[1]), int(words[3]), int(words[6].removesuffix("k")) * 1000) == (rate, top, every)
        assert row.group == printed["system"]
    sizes = [row.system for row in read("ance-table-3").rows]
    assert sizes == [
        "250 million documents, 768 dimensions, exact search",
        "8 billion documents, 64 dimensions, exact search",
        "8 billion documents, 64 dimensions, approximate search",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_which_experiment_stands_beside_a_row(name):
    rows, experiments = read(name).rows, NAMES[name][2]
    found = [row.ours and row.ours.experiment for row in rows]
    expected = experiments if isinstance(experiments, list) else [experiments.get(row.system) for row in rows]
    assert found == expected
    if isinstance(experiments, dict) and name not in ("ance-table-6", "ance-table-2"):
        assert set(experiments.values()) == {experiment for experiment in found if experiment}
    assert not any(row.released or (row.ours and (row.ours.episode != "last" or row.ours.figure)) for row in rows)


def cells(name):
    """{(system, column): (experiment, episode, figure)} of the cells that differ from their rows; None is cited."""
    return {
        (row.system, column): ours and (ours.experiment, ours.episode, ours.figure)
        for row in read(name).rows
        for column, ours in row.cells.items()
    }


def test_cells_with_an_experiment_of_their_own():
    parts = {"with PQ24": "pq24", "with PQ48": "pq48", "with PQ96": "pq96", "uncompressed": "none"}
    assert cells("star-adore-table-3") == {
        (f"trained {row}", f"MRR@10 searched {column}"): (f"adore-train-{a}-test-{b}", "last", None)
        for row, a in parts.items()
        for column, b in parts.items()
    }
    own = {pq: pq.lower() for pq in PQ} | {"uncompressed": "none"}
    assert cells("star-adore-table-5") == {
        (row, "index's own MRR@10"): (f"adore-train-{pq}-test-{pq}", 0, None) for row, pq in own.items()
    }
    assert cells("rank-segments") == {(s, "nDCG at the start"): (name, 0, None) for s, name in SEGMENTS.items()}
    assert cells("ance-table-5") == {("encode corpus", "ms per document"): ("ance", "last", "encode ms per passage")}
    at_the_start = {"Rand Neg": None, "BM25 Neg": None, "ANCE": ("ance", 1, None)}
    assert cells("ance-figure-3") == {(system, "at the start"): ours for system, ours in at_the_start.items()}
    others = set(NAMES) - {"star-adore-table-3", "star-adore-table-5", "rank-segments", "ance-table-5", "ance-figure-3"}
    assert not any(cells(name) for name in others)


def test_figures_of_costs_and_hours():
    assert [row.figure for row in read("ance-table-5").rows] == COSTS
    assert [(c.name, c.kind, c.figure) for c in read("star-adore-table-5").columns if c.kind] == [
        ("index GB", "costs", "index GB"), ("hours", "hours", "training")
    ]  # fmt: skip
    assert [(c.name, c.configuration, c.figure) for c in read("star-adore-table-4").columns] == [
        ("GPUs", None, None), ("hours", "marco", "overall"), ("speed-up", None, None)
    ]  # fmt: skip


P, D = "marco", "marco-doc"
# (configuration, split, measure or figure, re-ranked, scale); None: cited
COLUMNS = {
    "ance-table-1": [
        (P, "dev", "RR@10", False, None), (P, "dev", "R@1000", False, None), (P, "dl19", "nDCG@10", True, None),
        (P, "dl19", "nDCG@10", False, None), (D, "dl19", "nDCG@10", True, None), (D, "dl19", "nDCG@10", False, None),
    ],
    "ance-table-2": [
        *((set_, "test", f"Cov@{k}", False, None) for set_ in ("nq", "triviaqa") for k in (20, 100)), *[None] * 4,
    ],
    "ance-table-3": [None],
    "ance-table-4": [None, None],
    "ance-table-5": [(D, None, None, False, None)] * 3,
    "ance-table-6": [
        (P, "dl19", "R@1000", False, None), (P, "dl19", "Hole@10", False, 100), (P, "dl19", "overlap", False, 100),
        (D, "dl19", "R@100", False, None), (D, "dl19", "Hole@10", False, 100), (D, "dl19", "overlap", False, 100),
    ],
    "ance-table-7": [(P, "dev", "RR@10", False, None), (D, "dl19", "nDCG@10", False, None)],
    "ance-figure-3": [(P, None, "negatives", False, None)] * 2,
    **dict.fromkeys(
        ("ance-table-8", "ance-table-9"),
        [(D, "dl19", f, False, None) for f in ("rank", "grade", "value", "reference grade", "reference value")],
    ),
    "star-adore-figure-5": [(P, "dev", "RR@10", False, None)],
    "ance-appendix-a4": [*((D, "dl19", figure, False, None) for figure in ("wins", "losses", "ties")), None],
    "star-adore-table-1": [(P, "dev", "errors", False, None), (P, "dev", "top errors", False, None)],
    "star-adore-table-2": [
        (P, "dev", "RR@10", False, None), (P, "dev", "R@100", False, None), (P, "dl19", "nDCG@10", False, None),
        (P, "dl19", "R@100", False, None), (D, "dev", "RR@100", False, None), (D, "dev", "R@100", False, None),
        (D, "dl19", "nDCG@10", False, None), (D, "dl19", "R@100", False, None),
    ],
    "star-adore-table-3": [(P, "dev", "RR@10", False, None)] * 4,
    "star-adore-table-4": [None, (P, None, "overall", False, None), None],
    "star-adore-table-5": [
        (P, None, "index GB", False, None), (P, "dev", "RR@10", False, None), (P, None, "training", False, None),
        (P, "dev", "RR@10", False, None), (P, "dl19", "nDCG@10", False, None),
    ],
    "star-adore-figure-3": [
        (P, "dev", f"{what} with errors from 100000", False, None) for what in ("queries", "errors of queries")
    ],
    "rank-segments": [
        (P, "dev", "nDCG@10", False, None), None, None, (P, "dev", "nDCG@10", False, None), None, None,
    ],
}  # fmt: skip
SCALES = {name: 100 for name in ("ance-table-2", "ance-figure-3", "star-adore-figure-3")}


@pytest.mark.parametrize("name", NAMES)
def test_what_the_columns_measure(name):
    table = read(name)
    found = [(c.configuration, c.split, c.measure or c.figure, c.reranked, c.scale) for c in table.columns]
    assert [place if place[0] else None for place in found] == COLUMNS[name]
    assert table.scale == SCALES.get(name, 1)
