"""Arms of equal further work: what config/arms.yaml plans, how rates are chosen, and that every p follows from data."""

import importlib
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY
from teleport.evaluation.significance import Scores, compare, holm
from teleport.plan.plan import Plan
from teleport.report.rows import measured_tables
from teleport.settings.read import load, merged_files

STEPS, TEXTS, PAIRS = 480, 64, 480 * 16
EQUAL_PAIRS = ("same-pairs", "random", "bm25", "mined", "refreshed", "momentum-lookahead")


@pytest.fixture
def bench():
    return importlib.import_module("arms")


@pytest.fixture
def table():
    return importlib.import_module("arms_table")


def plan_of(bench, *variants):
    """The plan of the arms, of two seeds and over passages that are installed."""
    files = [bench.CONFIG, *(REPOSITORY / f"config/variants/arms-{name}.yaml" for name in variants)]
    return Plan(*load(merged_files(map(str, files)) | {"seeds": [1, 2]}, list(map(str, files))))


@pytest.fixture
def plan(bench):
    return plan_of(bench, "pilot")


def read(trains):
    """(labelled pairs, passages, queries in their place) that some train stages read."""
    pairs = passages = queries = 0
    for train in trains:
        training = train.settings.training
        steps = min(training.stop_after_steps or training.steps, training.steps)
        pairs += steps * training.batch_queries
        if "passage" in training.trains:
            passages += steps * training.batch_queries * (1 + training.negatives_per_query)
        else:
            queries += steps * training.batch_queries
    return pairs, passages, queries


def test_every_arm_reads_as_many_passages_or_as_many_pairs(plan):
    arms = plan.config.ablations["arms"].experiments
    for arm in arms:
        for trajectory in plan.trajectories[arm]:
            pairs, passages, queries = read(trajectory.trains)
            assert passages + queries == (PAIRS if arm == "same-pairs" else STEPS * TEXTS), arm
            assert queries == (STEPS * TEXTS // 2 if arm == "star-adore" else 0), arm
            assert (pairs == PAIRS) == (arm in EQUAL_PAIRS), arm
    assert set(EQUAL_PAIRS) < set(arms) and len(arms) == 9


def test_the_pilot_is_equal_too(bench, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    plan = Plan.of_files(bench.part("pilot", bench.files("pilot", "layers-2"), bench.PILOT))
    for arm in plan.config.ablations["arms"].experiments:
        (trajectory,) = plan.trajectories[arm]
        _, passages, queries = read(trajectory.trains)
        assert passages + queries == (240 if arm == "same-pairs" else 960), arm


def test_every_arm_goes_on_from_the_warm_up_of_its_seed(plan):
    warm = {each.seed: each.trains[-1].name for each in plan.trajectories["warm-up"]}
    assert len(set(warm.values())) == 2
    for arm in plan.config.ablations["arms"].experiments:
        for trajectory in plan.trajectories[arm]:
            assert trajectory.trains[0].inputs["checkpoint"].name == warm[trajectory.seed], arm
            dev = {train.inputs["dev"].name for train in trajectory.trains}
            assert len(dev) == 1, "one pool of dev passages for all episodes"


def test_contrasts_differ_in_what_they_ask_alone(plan):
    """e and c in the source; f from e in when it is mined, by whom, and in segments of one schedule; g from f in
    sources."""

    def of(arm):
        (pools, trains) = ([p.settings for p in plan.trajectories[arm][0].pools], plan.trajectories[arm][0].trains)
        return pools, trains

    (mined,), (train,) = of("mined")
    (random,), (other,) = of("random")
    assert list(mined.sources) == ["query"] and list(random.sources) == ["random"]
    assert mined.sources["query"].count == random.sources["random"].count == 30
    assert train.settings == other.settings
    pools, trains = of("refreshed")
    assert [pool.sources for pool in pools] == 3 * [mined.sources]
    miners = [pool.inputs["query"].inputs["index"].name for pool in plan.trajectories["refreshed"][0].pools]
    assert len(set(miners)) == 3 and [each.settings.training.steps for each in trains] == 3 * [STEPS]
    assert [each.inputs.get("continued") for each in trains] == [None, *trains[:2]]
    pools, trains_of_g = of("momentum-lookahead")
    assert [sum(draw.count for draw in pool.sources.values()) for pool in pools] == 3 * [30]
    assert "momentum" in pools[1].sources and "lookahead" in pools[0].sources
    assert [each.settings for each in trains_of_g] == [each.settings for each in trains]


def test_the_rows_with_a_teacher_read_as_much_from_the_same_candidates(bench):
    files = [str(bench.CONFIG.parent / f"{name}.yaml") for name in bench.OTHER_TABLES["teachers"]["docstrings"]]
    plan = Plan(*load(merged_files(files) | {"seeds": [1]}, files))
    (rows,) = (table.experiments for table in plan.config.ablations.values())
    one = {row: plan.trajectories[row][0] for row in rows}
    assert list(one) == ["uniform", "filter", "relabel", "distill"]
    assert len({read(trajectory.trains) for trajectory in one.values()}) == 1
    pools = {row: trajectory.pools[0] for row, trajectory in one.items()}
    assert len({pool.inputs["query"].name for pool in pools.values()}) == 1
    assert pools["distill"].name == pools["uniform"].name and "scores.whole" in one["distill"].trains[0].inputs
    assert "scores.whole" in pools["filter"].inputs and one["relabel"].trains[0].inputs["negatives"].kind == "relabel"


def test_the_tables_of_the_workflow_have_a_row_for_every_arm(plan):
    tables = measured_tables(plan)
    rows = [row["system"] for row in tables["arms"]["rows"]]
    assert rows == [
        "BM25",
        "Warm-up",
        *(plan.experiments[arm].label for arm in plan.config.ablations["arms"].experiments),
    ]


def test_a_rate_at_the_edge_is_no_choice(bench):
    low, middle, high = bench.FIRST_RATES["layers-2"]
    assert bench.edge({low: 0.1, middle: 0.3, high: 0.2}) is None
    assert bench.edge({low: 0.3, middle: 0.3, high: 0.2}) == bench.GRID[1], "the lowest of equals is the edge"
    assert bench.edge({low: 0.1, middle: 0.2, high: 0.3}) == bench.GRID[5]
    assert bench.edge({bench.GRID[0]: 0.3, bench.GRID[1]: 0.2, low: 0.1}) is None, "the grid has no further one"


@pytest.mark.ci(0)
def test_the_parts_of_a_collection(bench, monkeypatch, tmp_path):
    """The grid has a seed that the table lacks, widens for one arm alone, and the table has each arm's best rate."""
    monkeypatch.chdir(tmp_path)
    made, best = [], {"warm-up": 2e-5, "mined": 6e-4}

    def run_parts(parts):
        made.extend((Plan.of_files(files), [stage.name for stage in stages]) for files, stages in parts)

    def artefact(path):
        name = "/".join(path.parts[-2:])
        plan = next(plan for plan, names in made if name in names)
        arm = next(arm for arm in plan.trajectories if bench.last_training(plan, arm).name == name)
        rate = plan.experiments[arm].training.learning_rate
        score = -abs(bench.GRID.index(rate) - bench.GRID.index(best.get(arm, 6e-5)))
        return SimpleNamespace(facts={"dev": {"score": score}})

    monkeypatch.setattr(bench, "Artefact", artefact)
    bench.run("toy", bench.files("pilot", "layers-2"), bench.FIRST_RATES["layers-2"], run_parts)
    *grid, (finals, evaluated) = made
    assert {seed for plan, _ in grid for each in plan.experiments.values() for seed in each.seeds} == {bench.GRID_SEED}
    # warm-up: three rates and a lower one; arms: three rates, 6e-4 and 2e-3 for the one that wants more, 6e-6 for none
    assert [len(stages) for _, stages in grid] == [1, 1, 1, 1, 9, 9, 9, 1, 1]
    rates = {arm: finals.experiments[arm].training.learning_rate for arm in finals.trajectories}
    assert rates == dict.fromkeys(rates, 6e-5) | best
    assert finals.experiments["mined"].seeds == [1, 2, 3, 4, 5] and len(evaluated) == len(set(evaluated)) == 51
    written = json.loads((tmp_path / "results/arms/toy.json").read_text())
    assert dict(written["grid"]["mined"]).keys() == {*bench.FIRST_RATES["layers-2"], 6e-4, 2e-3}


def test_contrasts_name_arms(bench, table, plan):
    arms = {"warm-up", *plan.config.ablations["arms"].experiments}
    asked = table.CONTRASTS["contrasts"]["arms"]
    assert [each["name"] for each in asked] == ["e − c", "e − a", "f − e", "g − f", "h − e"]
    labels = {arm: plan.experiments[arm].label for arm in arms}
    for each in asked:
        assert each["name"] == f"{labels[each['ours']][1]} − {labels[each['theirs']][1]}"


def test_every_contrast_that_has_run_says_what_it_can_find(table):
    """The figures are of these scores: a new simulation of one finds four in five, give or take three errors."""
    data, scores = table.read_saved(table.DATA / "arms.json"), table.read_scores(table.SCORES)
    significance = importlib.import_module("significance")
    pairs = {}
    for name, part in data.items():
        pairs[name] = {asked["name"]: pair for asked, pair, *_ in table.contrasts(part["table"], scores[name])}
        assert pairs[name].keys() == part["smallest"].keys()
    ours, theirs = pairs["draws-docstrings"]["around − uniform"]
    smallest = data["draws-docstrings"]["smallest"]["around − uniform"]
    assert smallest > 2 * table.half_width(ours, theirs) / 3
    difference = ours.values_QR - theirs.values_QR
    assert 0.65 < significance.share_found(150, difference, smallest) < 0.95
    assert significance.share_found(150, difference, 0.0) < 0.12


def scores_of(rows, queries=40, seeds=(1, 2, 3)):
    """A frame as `measured` gives it, of rows that are better by `gain` each ({row: gain})."""
    rng, lines = np.random.default_rng(0), []
    base = rng.random(queries)
    for row, gain in rows.items():
        for seed in [None] if row == "BM25" else seeds:
            for measure in ("RR@10", "R@100"):
                values = np.round(base + gain + rng.normal(0, 0.02, queries), 3)
                own = pd.DataFrame({"query": [f"q{i}" for i in range(queries)], "value": values})
                lines.append(own.assign(part="arms-toy-layers-2", row=row, seed=seed, measure=measure))
    return pd.concat(lines)


@pytest.fixture
def toy(table, monkeypatch, tmp_path):
    """(data, frame of scores) of a part that is there as arms.parquet."""
    gains = {"BM25": 0.5, "warm-up": 0.0, "same-passages": 0.1, "random": 0.1, "mined": 0.2, "refreshed": 0.2}
    gains |= {"momentum-lookahead": 0.2, "star-adore": 0.0}
    monkeypatch.setattr(table, "SCORES", tmp_path / "arms.parquet")
    frame = scores_of(gains)
    table.write_scores(table.SCORES, frame)
    rows = [{"row": row, "label": row, "seeds": 1 if row == "BM25" else 3} for row in gains]
    made = {"commits": ["a" * 40], "machine": "2 cores of X", "time": "1 stage", "seeds": [1, 2, 3], "budget": "none"}
    return {
        "arms-toy-layers-2": {"table": "arms", "rows": rows, "curves": [], "smallest": {"e − c": 0.1}, "made": made}
    }, frame


def test_every_p_follows_from_the_scores(table, toy):
    data, frame = toy
    (scores,) = table.read_scores(table.SCORES).values()
    assert scores["BM25", "RR@10"].seeds == () and scores["mined", "RR@10"].seeds == (1, 2, 3)
    one = frame[(frame["row"] == "mined") & (frame["measure"] == "RR@10") & (frame["seed"] == 2)].sort_values("query")
    np.testing.assert_array_equal(scores["mined", "RR@10"].values_QR[:, 1], one["value"])
    found = table.contrasts("arms", scores)
    expected = [
        compare(*(Scores(scores[name, "RR@10"].values_QR, (1, 2, 3)) for name in (asked["ours"], asked["theirs"])))
        for asked, *_ in found
    ]
    assert [each.p for *_, each, _ in found] == [each.p for each in expected]
    assert [p for *_, p in found] == holm([each.p for each in expected])
    text = table.page(data, table.read_scores(table.SCORES))
    assert "| e − c: does mining teach more than chance? | +0." in text and "| higher |" in text
    assert "| h − e: do STAR and then ADORE? | -0." in text and "| lower |" in text
    assert "Smallest true difference" in text and "e − c 0.1." in text and "pilot" not in text


def test_an_arm_of_fewer_seeds_is_compared_by_those_that_both_have(table, toy, tmp_path):
    data, _ = toy
    frame = scores_of({"same-passages": 0.1, "mined": 0.2, "refreshed": 0.21}, seeds=(1, 2, 3, 4))
    fewer = frame[(frame["row"] != "refreshed") | (frame["seed"] < 4)]
    table.write_scores(table.SCORES, fewer)
    (scores,) = table.read_scores(table.SCORES).values()
    ((_, pair, found, _),) = table.contrasts("arms", {key: scores[key] for key in scores if key[0] != "same-passages"})
    values = [scores[name, "RR@10"].values_QR[:, :3] for name in ("refreshed", "mined")]
    assert found == compare(*(Scores(each, (1, 2, 3)) for each in values)) and pair[1].seeds == (1, 2, 3)
    rows = [
        {"row": row, "label": row, "seeds": 3 if row == "refreshed" else 4} for row in ("same-passages", "refreshed")
    ]
    text = table.arms_text("part", data["arms-toy-layers-2"] | {"rows": rows}, scores)
    less = values[0].mean() - scores["same-passages", "RR@10"].values_QR[:, :3].mean()
    assert "| refreshed, 3 seeds |" in text and f"| {less:+.3f} |" in text and "same-passages, " not in text


def test_at_the_ends_of_an_interval_the_test_is_just_not_significant(table, toy):
    (scores,) = table.read_scores(table.SCORES).values()
    ours, theirs = (scores[name, "RR@10"] for name in ("mined", "random"))
    difference, half = ours.values_QR.mean() - theirs.values_QR.mean(), table.half_width(ours, theirs)
    assert 0 < half < difference
    for end in (difference - half, difference + half):  # as the true difference
        assert compare(Scores(ours.values_QR - end, ours.seeds), theirs).p == pytest.approx(table.LEVEL)


def test_a_row_of_the_figure_says_which_part_it_is(table):
    data = table.read_saved(table.DATA / "arms.json")
    figure = table.figure(data, table.read_scores(table.SCORES))
    rows = [row["title"] for row in figure["vconcat"]]
    assert rows == [name for name in data if name.startswith("arms-")]
    assert {"arms-cloud-words", "arms-docstrings-words"} < set(rows)
    assert "exploratory" in table.HEAD and "not compare arms" in table.CAPTION


def test_few_seeds_are_a_pilot(table, toy):
    data, _ = toy
    for row in data["arms-toy-layers-2"]["rows"]:
        row["seeds"] = min(row["seeds"], 2)
    assert "**arms-toy-layers-2 is a pilot**" in table.page(data, table.read_scores(table.SCORES))


def test_the_page_is_what_its_data_say(table):
    """And so is every p on it: none is kept anywhere."""
    data = table.read_saved(table.DATA / "arms.json")
    assert table.PAGE.read_text() == table.page(data, table.read_scores(table.SCORES)), "python bench/arms_table.py"
    assert all("p" not in row for part in data.values() for row in part["rows"])
    assert not data or table.SCORES.stat().st_size < 4e6


SMALL = {
    "collection": {"source": "folder", "path": "toy"},
    "counts": None,
    "encoder": {
        "checkpoint": {"folder": "bert", "package": None, "sha256": None}, "layers": None,
        "max_query_tokens": 12, "max_passage_tokens": 16,
    },
    "mining": {"depth": 40},
    "seeds": [1],
    "training": {
        "batch_queries": 2, "steps": 6, "evaluate_every": 3, "precision": "fp32",
        "dev": {"queries": 8, "passages": 60, "random": 20},
    },
    "experiments": {"warm-up": {"training": {"batch_queries": 8, "steps": 4, "evaluate_every": 2}}},
    "ablations": {
        "arms": {
            "experiments": {
                "same-passages": {"training": {"batch_queries": 8}},
                "refreshed": {"training": {"stop_after_steps": 2}},
                "momentum-lookahead": {"training": {"stop_after_steps": 2}},
                "large-batch": {"training": {"batch_queries": 16, "steps": 3, "evaluate_every": 1}},
                "star-adore": {
                    "training": {"steps": 3},
                    "episodes": [
                        {"training": {"loss": "ranknet"}},
                        {
                            "negatives": {"counts": {}, "live": {"depth": 20}},
                            "training": {
                                "start_from": "previous", "loss": {"kind": "lambda", "metric_cut": 10},
                                "trains": ["query"], "negatives_per_query": 0, "batch_queries": 8,
                            },
                        },
                    ],
                },
            }
        }
    },
}  # fmt: skip


@pytest.mark.slow
def test_from_the_grid_to_the_page(bench, table, monkeypatch, tmp_path):
    """All stages at toy size in this process: work by arithmetic, mining where something is mined, a page."""
    monkeypatch.syspath_prepend(REPOSITORY / "tests/workflow")
    from toy import make_checkpoint, make_data

    from collection_world import WORDS

    monkeypatch.chdir(tmp_path)
    make_data(tmp_path / "toy")
    make_checkpoint(tmp_path / "bert", WORDS)
    bench.run("arms-toy-layers-2", bench.part("base", [str(bench.CONFIG)], SMALL), [1e-3], bench.here(1))
    monkeypatch.setattr(table, "DATA", tmp_path)
    monkeypatch.setattr(table, "SCORES", tmp_path / "arms.parquet")
    monkeypatch.setattr(table, "PAGE", tmp_path / "arms.md")
    table.write()
    (part,) = json.loads((tmp_path / "arms.json").read_text()).values()
    rows = {row["row"]: row for row in part["rows"]}
    assert len(rows) == 11 and rows["mined"]["grid"][0][0] == rows["mined"]["rate"] == 1e-3
    assert {name: (row["pairs"], row["passages"]) for name, row in rows.items() if name != "BM25"} == (
        dict.fromkeys(EQUAL_PAIRS, (12, 48))
        | {"warm-up": (32, 32), "same-passages": (48, 48), "same-pairs": (12, 12)}
        | {"large-batch": (48, 48), "star-adore": (6 + 24, 24)}
    )
    without = {"same-passages", "same-pairs", "large-batch", "warm-up"}
    assert {name for name, row in rows.items() if row.get("mining") == 0} == without
    assert rows["refreshed"]["mining"] > rows["mined"]["mining"] > rows["random"]["mining"] > 0
    assert part["smallest"] == {}, "one seed has no deviation"
    ends = [point for point in part["curves"] if point["row"] == "refreshed"]
    assert [point["pairs"] for point in ends] == [0, 4, 4, 8, 8, 12] and ends[-1]["seconds"] > ends[0]["seconds"]
    assert "| (e) Mined once |" in (tmp_path / "arms.md").read_text() and (tmp_path / "arms.svg").is_file()
    written = [(tmp_path / f"arms.{form}").read_bytes() for form in ("json", "parquet", "md")]
    begun, lines = table.measured()
    fewer = {name: part | {"rows": part["rows"][1:]} for name, part in begun.items()}
    for new in ({}, fewer):
        monkeypatch.setattr(table, "measured", lambda new=new: (new, lines))
        table.write()
    assert [(tmp_path / f"arms.{form}").read_bytes() for form in ("json", "parquet", "md")] == written, "data is lost"


def cells_of(text, columns):
    """[cells (list)] of the rows of a table in Markdown with so many columns, without its head."""
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in rows if len(row) == columns and not set(row[1]) <= set("-:")]


ROWS_OF_DRAWS = {
    "draws": ["draw around", "draw the top", "draw from every"],
    "teachers": ["filter", "relabel", "the teacher's"],
}
STARTS = {"cloud": ("whole", "layers-2", "words"), "docstrings": ("whole", "layers-2", "words")}
CELLS = [f"arms-{collection}-{start}" for collection, starts in STARTS.items() for start in starts]


def test_readme_and_results_say_what_the_scores_are(bench, table):
    """Their tables of arms, contrasts, draws and teachers, and README's table, from the scores of the queries."""
    parts, results = table.read_scores(table.SCORES), (REPOSITORY / "docs/results.md").read_text()
    mining, draws = results.split("\n## Does a draw")

    def mean_of(part, row):
        """A mean as the pages print it, – if the arm has not run."""
        found = parts[part].get((row, table.MEASURE))
        return f"{found.values_QR.mean():.3f}"[1:] if found else "–"

    def contrasts(part, name):
        return {asked["name"]: (found.difference, p) for asked, _, found, p in table.contrasts(name, parts[part])}

    def same(shown, found):
        """Whether "+.025 (.00096)" has a difference and a p (as precise as it is) of `contrasts`."""
        if not found:
            return shown == "–"
        difference, p = shown.rstrip(")").split(" (")
        digits = len(p.lstrip("-.0"))
        return float(difference) == pytest.approx(found[0], abs=5e-4) and float(f"{found[1]:.{digits}g}") == float(p)

    letters = dict(zip("abcdefghi", bench.arms_of([str(bench.CONFIG)]), strict=True))
    arms = {"BM25": "BM25", "warm-up": "warm-up"} | {f"({letter})": arm for letter, arm in letters.items()}
    shown = {row[0].partition(":")[0]: row[1:] for row in cells_of(mining, 7) if " − " in row[0]}
    found = {part: contrasts(part, "arms") for part in CELLS}
    assert list(shown) == [asked["name"] for asked in table.CONTRASTS["contrasts"]["arms"]]
    for name, cells in shown.items():
        for part, cell in zip(CELLS, cells, strict=True):
            assert same(cell, found[part].get(name)), (name, part)
    rows = {row[0].split(" ")[0]: row[1:] for row in cells_of(mining, 7) if row[0].split(" ")[0] in arms}
    assert rows == {name: [mean_of(part, arm) for part in CELLS] for name, arm in arms.items()}
    asked_by_recall = [*table.CONTRASTS["contrasts"]["arms"], *table.CONTRASTS["exploratory"]["contrasts"]]
    by_recall = {
        (part.removeprefix("arms-"), asked["name"]): (found.difference, found.p)
        for part in CELLS
        for asked, _, found in table.compared(asked_by_recall, table.RECALL, parts[part])
    }
    said = re.search(
        r"By R@100, f − e and g − f go both ways, from (\S+) to (\S+) where p is below .01; i − e is (\S+) \((\S+)\) "
        r"on cloud with two layers",
        " ".join(mining.split()),
    ).groups()
    clear = [own[0] for (_, name), own in by_recall.items() if name in ("f − e", "g − f") and own[1] < 0.01]
    assert [float(each) for each in said[:2]] == pytest.approx([min(clear), max(clear)], abs=5e-4)
    assert same(f"{said[2]} ({said[3]})", by_recall["cloud-layers-2", "i − e"])
    of_i = {}
    for part in CELLS:
        exploratory = table.compared(table.CONTRASTS["exploratory"]["contrasts"], table.MEASURE, parts[part])
        of_i[part] = {asked["name"]: (found.difference, found.p) for asked, _, found in exploratory}
    said = (
        r"above \(a\) in all six cases; on docstrings, i − e is (\S+) \(p (\S+)\) with all layers, (\S+) \(p (\S+)\) "
    )
    said = re.search(said + r"with two, (\S+) \(p (\S+)\) with words\.", " ".join(mining.split())).groups()
    for part, difference, p in zip(CELLS[3:], said[::2], said[1::2], strict=True):
        assert same(f"{difference} ({p})", of_i[part]["i − e"])
    assert all(found["i − a"][0] > 0 for found in of_i.values())
    lines = cells_of(draws.split("\n## ")[0], 3)[1:]
    for name, starts in ROWS_OF_DRAWS.items():
        of = [contrasts(f"{name}-{collection}", name) for collection in ("cloud", "docstrings")]
        for start, asked in zip(starts, table.CONTRASTS["contrasts"][name], strict=True):
            (cells,) = [cells for label, *cells in lines if label.startswith(start)]
            assert all(same(cell, each[asked["name"]]) for cell, each in zip(cells, of, strict=True)), start
    uniform = re.search(r"uniform draws \((\.\d+) on cloud, (\.\d+) on docstrings\)", " ".join(draws.split())).groups()
    assert list(uniform) == [mean_of(f"draws-{collection}", "uniform") for collection in ("cloud", "docstrings")]
    misled = " ".join(results.split("## Dev sets that mislead")[1].split("\n## ")[0].split())
    part = "arms-docstrings-layers-2-start-pools"
    difference, p = re.search(r"e − c and e − a were (\S+) here \(p (\S+) each", misled).groups()
    assert all(same(f"{difference} ({p})", contrasts(part, "arms")[name]) for name in ("e − c", "e − a"))
    shown = re.search(r"\(a\) (\S+), \(c\) (\S+), \(e\) (\S+), warm-up (\S+)\.", misled).groups()
    assert list(shown) == [mean_of(part, arm) for arm in ("same-passages", "random", "mined", "warm-up")]
    above = [
        f"({letter})"
        for letter, arm in letters.items()
        if (ours := parts[part].get((arm, table.MEASURE)))
        and ours.values_QR.mean() > parts[part]["warm-up", table.MEASURE].values_QR.mean()
    ]
    assert f"only {' and '.join(above)} were above their warm-up" in misled
    smallest = [
        each for part in CELLS for each in table.read_saved(table.DATA / "arms.json")[part]["smallest"].values()
    ]
    page = " ".join((REPOSITORY / "docs/significance.md").read_text().split())
    assert f"detects a true difference of {min(smallest):g} to {max(smallest):g} in four of five" in page
    assert "With five seeds, a [contrast]" in page
    readme = (REPOSITORY / "README.md").read_text()
    for part, (_, *means, difference) in zip(CELLS, cells_of(readme.split("| passages, encoder")[1], 5), strict=True):
        assert means == [mean_of(part, arm) for arm in ("same-passages", "random", "mined")]
        assert same(difference, found[part]["e − a"])
    text = " ".join(readme.split())
    shown = re.search(
        r"Mining again \(ANCE\) gains (\S+) in the fourth row and costs (\S+) in the first; momentum and lookahead "
        r"\(ANCE-Tele\) cost (\S+) in the third; no other such difference is significant\.",
        text,
    ).groups()
    said = [(CELLS[3], "f − e", 1), (CELLS[0], "f − e", -1), (CELLS[2], "g − f", -1)]
    for (part, contrast, way), name in zip(said, shown, strict=True):
        difference, p = found[part][contrast]
        assert p < table.LEVEL and float(name) == pytest.approx(way * difference, abs=5e-4)
    marked = {(part, name) for part in CELLS for name in ("f − e", "g − f") if found[part][name][1] < table.LEVEL}
    assert marked == {each[:2] for each in said}
    large = [mean_of(part, "large-batch") for part in CELLS]
    mining_arms = ("mined", "refreshed", "momentum-lookahead", "star-adore")
    best = [max(mean_of(part, arm) for arm in mining_arms) for part in CELLS]
    least = [min(mean_of(part, arm) for arm in mining_arms) for part in CELLS]
    assert all(mean < other for mean, other in zip(large[:3], least[:3], strict=True))
    assert all(mean > other for mean, other in zip(large[3:5], best[3:5], strict=True)) and large[5] < best[5]
    rows = r"is above every mining method in the fourth and fifth rows\*\* \((\S+), (\S+)\), below all in the "
    rows += r"first three \((\S+), (\S+), (\S+)\); it has (\S+) in the last\. "
    rows += r".*BM25 reads all of it, and has (\S+) and (\S+)\. "
    lexical = [mean_of(part, "BM25") for part in CELLS[2:4]]
    assert list(re.search(rows, text).groups()) == [*large[3:5], *large[:3], large[5], *lexical]
    beaten = (
        f"on docstrings with all layers** ({large[3]}; at best {best[3]}) **and with two** ({large[4]}; {best[4]}),"
    )
    assert f"is above all that mine {beaten} and below all on cloud." in " ".join(mining.split())
