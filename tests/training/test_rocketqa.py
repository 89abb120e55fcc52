"""The pipeline of config/methods/rocketqa.yaml at toy size, stage by stage in this process: a dual encoder mines, a
cross-encoder is trained on what it has mined, and leaves out negatives of the next dual encoder."""

import contextlib

import numpy as np
import yaml
from toy import CONFIG, make_checkpoint, make_data, short_rocketqa

from collection_world import WORDS
from teleport.plan.plan import Plan
from teleport.running.artefact import Artefact
from teleport.running.job import Job, spec_of
from teleport.running.run import run


def make(stage):
    """Make a planned stage after those that it reads; returns its folder."""
    for read in stage.inputs.values():
        make(read)
    job = Job(spec_of(stage) | {"code": "test"})
    if not (job.folder / "manifest.json").exists():
        job.open_resume()
        run(job)
    return job.folder.absolute()


def test_false_negatives_by_a_cross_encoder_that_was_trained_on_the_raw_pool(tmp_path):
    experiments = short_rocketqa()
    with contextlib.chdir(tmp_path):
        make_data(tmp_path / "data/toy")
        make_checkpoint(tmp_path / "data/bert", WORDS)
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG | {"experiments": experiments}))
        plan = Plan.of_files(["config.yaml"])
        (raw,), (trajectory,) = (plan.trajectories[name] for name in experiments)
        pool = trajectory.pools[-1]
        scored = pool.inputs["scores.ranker"]
        trained = scored.inputs["ranker"]
        assert trained.inputs["negatives"].name == raw.pools[-1].name
        folders = [make(stage) for stage in (scored, pool)]
        facts = Artefact(make(trained)).facts
    assert facts["steps"] == 4 and facts["dev"]["queries"] == 20 and facts["dev"]["passages"] >= 200
    table, drawn = (
        [np.load(folder / f"{name}.npy") for name in ("offsets", "passages", "scores")] for folder in folders
    )
    assert 0 < table[2].min() < table[2].max() < 1, "probabilities"
    dropped = 0
    for row in range(80):  # the positive of query q is passage q
        own = slice(*table[0][row : row + 2])
        score_of = dict(zip(table[1][own].tolist(), table[2][own].tolist(), strict=True))
        assert all(score_of[p] <= score_of[row] for p in drawn[1][slice(*drawn[0][row : row + 2])].tolist())
        dropped += sum(score > score_of[row] for passage, score in score_of.items() if passage != row)
    assert dropped > 100 and len(drawn[1]) > 80, "not vacuous"
