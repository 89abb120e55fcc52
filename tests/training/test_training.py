"""The whole train stage on a tiny BERT: what it learns, reports, and refuses."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from teleport.encoder.load import load_encoders
from teleport.training import train
from teleport.training.data import read_training_set
from teleport.training.dual_encoder import Trainer
from teleport.training.optimizers import make_optimizer
from teleport.training.step_metrics import StepMetrics
from training_world import NUM_QUERIES, World, facts_of, losses_of, make_trainer, texts, weights


@pytest.fixture
def world(stages):
    return World(stages)


def test_training_lowers_the_loss_and_reports(world):
    job = world.finished(world.job({"steps": 30}))
    facts, (rates, losses) = facts_of(job), losses_of(job)
    assert facts["last_loss"] < 0.7 * facts["first_loss"]
    assert facts["first_loss"] == pytest.approx(np.mean([float(loss) for loss in losses[:10]]))
    assert facts["last_loss"] == pytest.approx(np.mean([float(loss) for loss in losses[-10:]]))
    assert (facts["steps"], facts["schedule_steps"], facts["stopped_early"]) == (30, 30, False)
    assert (facts["queries"], facts["queries_without_negatives"]) == (NUM_QUERIES, 0)
    assert (facts["attempts"], facts["resumed_from"]) == (1, 0)
    assert (facts["precision"], facts["device"]) == ("float32", "cpu")
    assert facts["train_seconds"] > 0
    assert len(rates) == 30 and float(rates[3]) == 3e-3


def test_tokens_are_counted_and_none_is_padding(world):
    """Against a count by hand of two steps."""
    job = world.job({"steps": 2})
    facts, data = train.run(job), read_training_set(job, train.derive_seed(42, "train", 1))
    queries, passages = texts()
    real = 0
    for step in range(2):
        batch = data.batch(step)
        for rows, lists, longest in ((batch.queries_Q, queries, 8), (batch.passages_P, passages, 24)):
            real += sum(min(len(lists[row]) + 2, longest) for row in rows)
    assert facts["real_tokens"] == real


def test_episodes_and_seeds_draw_differently(world):
    changes = {}, {"episode": 2}, {"seed": 1}
    losses = [losses_of(world.finished(world.job({"steps": 2}, **change)))[1] for change in changes]
    assert losses[0] != losses[1] != losses[2] != losses[0]


def test_one_epoch_sees_every_query_once(world):
    job = world.job({"steps": None, "epochs": 2})
    facts = train.run(job)
    assert facts["steps"] == 2 * NUM_QUERIES // 4


def test_stopping_early_keeps_the_full_schedule(world):
    long = world.finished(world.job({"steps": 12}))
    short = world.finished(world.job({"steps": 12, "stop_after_steps": 5}))
    assert [column[:5] for column in losses_of(long)] == list(losses_of(short))
    facts = facts_of(short)
    assert (facts["steps"], facts["schedule_steps"], facts["stopped_early"]) == (5, 12, True)
    other = world.finished(world.job({"steps": 5}))
    assert losses_of(other)[0] != losses_of(short)[0]


def test_an_episode_may_start_from_the_previous_checkpoint(world):
    first = world.finished(world.job({"steps": 30}))
    fresh = world.finished(world.job({"steps": 2}, episode=2))
    continued = world.finished(world.job({"steps": 2}, inputs={"checkpoint": first}, episode=2))
    first_losses = [float(losses_of(job)[1][0]) for job in (fresh, continued)]  # before any update: the rate is 0
    assert first_losses[1] < 0.7 * first_losses[0]


def test_untied_encoders_are_both_trained(stages):
    world = World(stages, tied=False)
    job = world.finished(world.job({"steps": 3}))
    before = {side: weights(world.inputs["checkpoint"], side) for side in ("query", "passage")}
    for side, old in before.items():
        new = weights(job, side)
        assert any(not torch.equal(new[name], old[name]) for name in old)
        assert (job.folder / "checkpoint" / side / "README.md").is_file()
    assert not torch.equal(*(weights(job, side)["encoder.layer.0.output.dense.weight"] for side in before))


@pytest.mark.parametrize(("tied", "copies"), [(True, 1), (False, 2)])
def test_tied_encoders_share_their_parameters(stages, tied, copies):
    world = World(stages, tied=tied)
    job = world.job()
    trainer = make_trainer(job)
    one = sum(p.numel() for p in load_encoders(job.input("checkpoint", "checkpoint"))[0].parameters())
    optimised = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    assert sum(p.numel() for p in optimised) == sum(p.numel() for p in trainer.encoders.parameters()) == copies * one
    assert sum(t.numel() for t in trainer.encoders.state_dict().values()) == copies * one
    assert len({id(p) for p in optimised}) == len(optimised)


def test_only_matrices_decay():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3))
    torch.nn.init.ones_(module[0].weight)
    optimizer = make_optimizer("adamw", module, weight_decay=0.5)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(module[0].weight, torch.full((3, 3), 0.95))
    assert torch.equal(module[1].weight, torch.ones(3))


def test_gradients_are_clipped(world):
    """A tiny bound on the norm leaves the first steps of Adam alone, so look at the gradients themselves."""
    job = world.job({"max_grad_norm": 1e-3})
    trainer = make_trainer(job)
    trainer.optimizer.zero_grad = lambda: None
    trainer.step(0)
    norm = math.sqrt(sum(p.grad.square().sum().item() for p in trainer.encoders.parameters() if p.grad is not None))
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_queries_without_negatives_are_left_out_and_counted(stages, caplog):
    sizes = np.full(NUM_QUERIES, 10)
    sizes[[3, 7, 8]] = 0
    world = World(stages, sizes=sizes)
    with caplog.at_level("INFO", logger="teleport"):
        job = world.finished(world.job({"steps": None, "epochs": 1}))
    facts = facts_of(job)
    assert (facts["queries"], facts["queries_without_negatives"], facts["steps"]) == (17, 3, 4)
    assert "3 of 20 training queries have no negatives" in caplog.text


def test_no_negatives_at_all_is_an_error(stages):
    world = World(stages, sizes=np.zeros(NUM_QUERIES, int))
    with pytest.raises(ValueError, match=r" 0 training queries .*\(20 .*, 0 "):
        train.run(world.job())


def test_a_loss_that_is_not_finite_names_step_and_queries_and_publishes_nothing(world):
    """The first rate of the warm-up is 0, the second ruins the weights, so the third loss is not a number."""
    job = world.job({"learning_rate": 1e30})
    with pytest.raises(ValueError, match=r"step 3: loss nan.*query-\d\d, query-\d\d") as error:
        train.run(job)
    data = read_training_set(job, train.derive_seed(42, "train", 1))
    assert all(data.query_ids[row] in str(error.value) for row in data.batch(2).queries_Q)
    assert not (job.folder / "checkpoint").exists() and not job.outputs


@pytest.mark.parametrize("values", [(math.nan, 1.0), (math.inf, 1.0), (2.0, math.inf), (2.0, math.nan)])
def test_a_gradient_that_is_not_finite_stops_too(values):
    data = SimpleNamespace(query_ids=["a", "b"])
    trainer = SimpleNamespace(data_of=lambda step: data)
    batch = SimpleNamespace(queries_Q=[1])
    with pytest.raises(ValueError, match="step 8.*queries b"):
        Trainer.finish(trainer, StepMetrics(7, batch, torch.tensor(values)))
    assert Trainer.finish(trainer, StepMetrics(7, batch, torch.tensor([2.0, 1.0]))) == [2.0, 1.0]


def test_log_has_step_rate_eta_loss_and_learning_rate(world, caplog):
    with caplog.at_level("INFO", logger="teleport"):
        train.run(world.job({"steps": 3}))
    assert "step 3: loss " in caplog.text and "learning rate 0.0015" in caplog.text
    assert "3/3 steps, " in caplog.text and "s left" in caplog.text


def test_too_little_disk_is_said_before_training(world, monkeypatch):
    monkeypatch.setattr("teleport.running.files.shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("trained before looking at the disk"))
    with pytest.raises(ValueError, match="free some space"):
        train.run(world.job())


def test_a_rate_is_known_after_the_first_step(world, monkeypatch, clock):
    monkeypatch.setattr(Trainer, "step", clock.spend(6.0, Trainer.step))
    train.run(world.job({"steps": 3}))
    assert [done for _, done, _ in clock.reports][:2] == [0, 1] and clock.first_rate() == 6


def test_every_step_and_every_process_draws_its_own_dropout(stages, monkeypatch):
    """Of one batch, so that dropout alone can differ; a step that is done again draws the same."""
    job = World(stages, dropout=0.3).job()
    made = make_trainer(job)
    batch = made.data.batch(0)
    monkeypatch.setattr(made.data, "batch", lambda step: batch)
    made.optimizer.step = lambda: None
    first, second, again = (made.finish(made.step(step))[0] for step in (0, 1, 0))
    assert first == again and abs(first - second) > 1e-3
