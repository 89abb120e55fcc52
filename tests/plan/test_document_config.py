"""config/marco-doc.yaml: its plan needs no data and says what ANCE's paper and code say; MaxP goes on from FirstP."""

import pytest
import yaml

from commands.forecast.counts import Counts
from commands.forecast.forecast import stage_cost
from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.settings.read import load, merged

pytestmark = pytest.mark.usefixtures("nothing_here")

FILE = REPOSITORY / "config/marco-doc.yaml"


def plan(**changes):
    return Plan(*load(merged(yaml.safe_load(FILE.read_text()), changes), [FILE]))


# Reference page §1.5: rate, warm-up steps, batch, steps of the published checkpoint (MaxP: to the next 10,000).
RELEASED = {"ance": (5e-6, 3000, 64, 210_000), "ance-maxp": (1e-5, 500, 128, 140_000)}


@pytest.mark.parametrize("name", RELEASED)
def test_values_are_those_of_the_released_scripts(name):
    experiment = plan().experiments[name]
    trainings = [episode.training for episode in experiment.method]
    (training,) = {t.model_copy(update={"start_from": "previous"}).model_dump_json() for t in trainings}
    training = trainings[-1]
    found = (training.learning_rate, training.warmup_steps, training.batch_queries)
    assert (*found, sum(t.stop_after_steps for t in trainings)) == RELEASED[name]
    assert (training.steps, training.stop_after_steps, training.optimizer) == (1_000_000, 10_000, "lamb")
    assert (training.loss.kind, experiment.mining.depth, experiment.negatives.counts) == ("nll", 200, {"query": 20})
    assert [episode.lag for episode in experiment.method] == [0] + [1] * (len(trainings) - 1)
    (trajectory,) = plan().trajectories[name]
    mined = [pool.inputs["query"].inputs["queries"].inputs["checkpoint"].name for pool in trajectory.pools]
    checkpoints = [episode.checkpoint.stage.name for episode in trajectory.episodes]
    assert mined == [checkpoints[0], *checkpoints[:-2]]  # the first two segments with the start, then one behind
    encoder = experiment.encoder
    assert (encoder.max_query_tokens, encoder.max_passage_tokens, encoder.max_characters) == (64, 512, 10_000)
    assert (encoder.projection, encoder.lower_case, encoder.pooling) == (768, True, "cls")
    assert encoder.chunks == (4 if name == "ance-maxp" else 1)


def test_both_start_from_one_warm_up_and_share_its_texts():
    planned = plan()
    first, chunked = (planned.trajectories[name][0] for name in RELEASED)
    (warm_up,) = planned.trajectories["bm25-neg"]
    assert (
        first.episodes[0].checkpoint.stage.name == chunked.episodes[0].checkpoint.stage.name == warm_up.trains[0].name
    )
    assert first.tokens_of("passages").name == chunked.tokens_of("passages").name
    assert first.pretrained.name == chunked.pretrained.name
    vectors = [trajectory.episodes[0].vectors.passages for trajectory in (first, chunked)]
    assert [stage.settings.chunks for stage in vectors] == [1, 4] and vectors[0].name != vectors[1].name
    assert [t.settings.chunks for t in (*first.trains, *chunked.trains)] == [1] * 21 + [4] * 14
    assert {stage.inputs["passages"].settings.chunks for stage in chunked.episodes[-1].runs["dev"].inputs.values()
            if stage.kind == "retrieve"} == {4}  # fmt: skip
    assert chunked.tokens_of("passages").settings.max_characters == 10_000


def test_a_checkpoint_of_another_architecture_is_no_start():
    with pytest.raises(ValueError, match="bm25-neg .*`encoder`"):
        plan(experiments={"ance-maxp": {"encoder": {"lower_case": False}}})


def test_training_fits_24_gb_and_chunks_cost_what_they_hold():
    planned = plan()
    counts = Counts(planned)
    costs = {stage: stage_cost(stage, counts) for stage in planned.stages.values() if stage.kind != "download"}
    assert max(cost.device_memory for stage, cost in costs.items() if stage.kind == "train") < 24e9
    sizes = {stage.settings.chunks: cost.bytes / 1e9 for stage, cost in costs.items()
             if stage.kind == "encode" and stage.settings.of == "passages"}  # fmt: skip
    assert sizes[1] == pytest.approx(9.87, rel=0.01), "the papers' 9.2 GiB of FirstP"
    assert sizes[4] == pytest.approx(3_213_835 * (900 / 512 + 0.5) * 768 * 4 / 1e9)
    plain, chunked = (next(c for s, c in costs.items() if s.kind == "train" and s.settings.chunks == n and
                           s.settings.training.steps == 1_000_000) for n in (1, 4))  # fmt: skip
    assert chunked.work["train_flop"] > 3 * plain.work["train_flop"], "twice the batch of 900 tokens instead of 512"


def test_documents_are_scored_as_the_papers_score_them():
    scored = {s.settings.split: s.settings.measures for s in plan().stages.values() if s.kind == "evaluate"}
    dl = ["nDCG@10", "R@100", "Hole@10"]
    assert scored == {"dev": ["RR@100", "R@100"], "dl19": dl, "dl20": dl}
