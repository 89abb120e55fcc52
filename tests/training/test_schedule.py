"""Length of the schedule and learning rates: literal values, and transformers' linear scheduler as the reference."""

from types import SimpleNamespace

import pytest
import torch
from torch.optim.lr_scheduler import CyclicLR
from transformers import get_linear_schedule_with_warmup

from teleport.refusal import Refusal
from teleport.training.schedule import end_of_segment, schedule_steps
from teleport.training.step import learning_rate

FIELDS = {"epochs": None, "steps": None, "stop_after_steps": None, "batch_queries": 8, "triples": False}
FIELDS |= {"warmup_ratio": 0.0, "warmup_steps": None, "cycle_steps": None}


def training(**values):
    return SimpleNamespace(**(FIELDS | values))


def queries(number, without_negatives=0, without_positives=0, batch=8):
    """What the schedule asks of a `TrainingSet`."""
    counts = {"without_negatives": without_negatives, "without_positives": without_positives}
    return SimpleNamespace(rows=range(number), steps_per_epoch=number // batch, **counts)


def rate(step, total, peak, warmup_ratio=None, warmup_steps=None, cycle_steps=None, base=0.0):
    settings = {"warmup_ratio": warmup_ratio, "warmup_steps": warmup_steps, "cycle_steps": cycle_steps}
    return learning_rate(step, total, training(learning_rate=peak, base_learning_rate=base, **settings))


def test_a_warm_up_longer_than_the_epochs_is_refused():
    assert schedule_steps(training(epochs=2, warmup_steps=9), queries(40)) == 10
    assert schedule_steps(training(epochs=2, warmup_steps=99, cycle_steps=100), queries(40)) == 10
    with pytest.raises(Refusal, match="training.warmup_steps is 10, .* 2 epochs .* 10 steps"):
        schedule_steps(training(epochs=2, warmup_steps=10), queries(40))


def test_a_warm_up_of_all_steps_of_the_epochs_is_said(caplog):
    assert schedule_steps(training(epochs=1, warmup_ratio=0.1), queries(12)) == 1
    assert caplog.messages == ["all 1 steps warm up, so training.learning_rate is never reached. Lower warmup_ratio."]
    caplog.clear()
    assert schedule_steps(training(epochs=2, warmup_ratio=0.1), queries(12)) == 2 and not caplog.messages


def test_length_in_epochs_drops_the_last_incomplete_batch():
    assert schedule_steps(training(epochs=3), queries(502_939)) == 188_601  # MS MARCO: 62,867 steps an epoch
    assert schedule_steps(training(epochs=40), queries(79_168, batch=128)) == 24_720  # NQ: 618 steps an epoch
    assert schedule_steps(training(epochs=3), queries(15)) == 3


def test_length_in_steps():
    assert schedule_steps(training(steps=80), queries(15)) == 80


@pytest.mark.parametrize("length", [{"epochs": 3}, {"steps": 80}])
def test_fewer_queries_than_a_batch_is_an_error(length):
    counts = r"\(3 .* negatives, 5 .* positive\)"
    with pytest.raises(ValueError, match=f"batch_queries is 8, .* 7 training queries .*{counts}"):
        schedule_steps(training(**length), queries(7, 3, 5))
    triples = training(**length, triples=True, negatives_per_query=2)
    with pytest.raises(ValueError, match=f" 1 training queries with 2 triples .*{counts}"):
        schedule_steps(triples, queries(1, 3, 5))


@pytest.mark.parametrize(("first", "stop_after", "end"), [(0, None, 80), (0, 30, 30), (30, 30, 60), (60, 30, 80)])
def test_a_segment_stops_after_its_own_steps_or_with_the_schedule(first, stop_after, end):
    assert end_of_segment(training(steps=80, stop_after_steps=stop_after), 80, first) == end


def test_literal_rates():
    rates = [rate(step, 10, 1.0, 0.2) for step in range(10)]
    assert rates == [0, 0.5, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]


def test_no_warm_up():
    assert [rate(step, 4, 8.0, 0.0) for step in range(4)] == [8, 6, 4, 2]


def test_ms_marco_stops_just_after_the_warm_up():
    """20,000 of 188,601 steps: the warm-up ends at 18,861, the rate is at 99.3 % of its peak."""
    assert rate(18_861, 188_601, 5e-6, 0.1) == 5e-6
    assert rate(18_860, 188_601, 5e-6, 0.1) < 5e-6
    assert rate(20_000, 188_601, 5e-6, 0.1) / 5e-6 == pytest.approx(0.9933, abs=1e-4)


def test_nq_stops_within_the_warm_up():
    assert rate(2_000, 24_720, 5e-6, 0.1) / 5e-6 == pytest.approx(0.809, abs=1e-3)


@pytest.mark.parametrize(("total", "ratio", "warmup"), [(30, 0.1, 3), (7, 0.3, 3), (50, 0.0, 0)])
def test_equals_the_linear_scheduler_of_transformers(total, ratio, warmup):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3e-5)
    scheduler = get_linear_schedule_with_warmup(optimizer, warmup, total)
    for step in range(total):
        assert rate(step, total, 3e-5, ratio) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        scheduler.step()


def scheduled(scheduler, optimizer, steps):
    """The rates that a scheduler gives `steps` steps."""
    rates = []
    for _ in range(steps):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


def sgd(rate):
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)


def test_warm_up_in_steps_equals_the_linear_scheduler_of_transformers():
    optimizer = sgd(1e-6)
    expected = scheduled(get_linear_schedule_with_warmup(optimizer, 5, 40), optimizer, 40)
    assert [rate(step, 40, 1e-6, warmup_steps=5) for step in range(40)] == pytest.approx(expected, rel=1e-12)
    assert rate(5, 40, 1e-6, warmup_steps=5) == 1e-6 != rate(5, 40, 1e-6, warmup_ratio=0.1)


def test_a_schedule_may_be_longer_than_its_training():
    """ANCE: warm-up 5,000, decay to 0 at step 1,000,000; published is step 600,000, at 0.4 of the peak."""
    assert rate(5_000, 10**6, 1e-6, warmup_steps=5_000) == 1e-6
    assert rate(600_000, 10**6, 1e-6, warmup_steps=5_000) / 1e-6 == pytest.approx(400 / 995)
    assert end_of_segment(training(steps=10**6, stop_after_steps=10_000), 10**6, 590_000) == 600_000


@pytest.mark.parametrize(("up", "down", "base", "peak"), [(4, 6, 0.0, 1e-6), (3, 3, 1e-7, 1e-6), (1, 9, 2e-5, 3e-5)])
def test_cycles_equal_torchs_cyclic_scheduler(up, down, base, peak):
    optimizer = sgd(base)
    scheduler = CyclicLR(optimizer, base, peak, step_size_up=up, step_size_down=down, cycle_momentum=False)
    expected = scheduled(scheduler, optimizer, 35)
    cycle = {"warmup_steps": up, "cycle_steps": up + down, "base": base}
    found = [rate(step, 10**6, peak, **cycle) for step in range(35)]
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-18)
    assert max(found) == pytest.approx(peak) and found.count(found[0]) == len(range(0, 35, up + down))


def test_literal_cycle():
    """From 2 up to 10 in 2 steps, back in 4; the third cycle is cut by the end."""
    rates = [rate(step, 15, 10.0, warmup_steps=2, cycle_steps=6, base=2.0) for step in range(15)]
    assert rates == 2 * [2, 6, 10, 8, 6, 4] + [2, 6, 10]
    shares = [rate(step, 15, 10.0, warmup_ratio=1 / 3, cycle_steps=6, base=2.0) for step in range(15)]
    assert shares == rates


def test_cycles_as_long_as_a_refresh_are_schedules_that_restart():
    """A cycle is one schedule of its length, so a training warms up again with every refresh."""
    cycles = [rate(step, 40, 1e-6, warmup_steps=3, cycle_steps=10) for step in range(40)]
    assert cycles == 4 * [rate(step, 10, 1e-6, warmup_steps=3) for step in range(10)]


def test_a_stop_after_the_end_is_said(caplog):
    assert end_of_segment(training(steps=80, stop_after_steps=80), 80, 0) == 80 and not caplog.text
    assert end_of_segment(training(steps=80, stop_after_steps=41), 80, 40) == 80
    assert "training.stop_after_steps is 41, but the schedule ends after 40" in caplog.text
