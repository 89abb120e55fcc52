"""Length of the schedule and learning rates: literal values, and transformers' linear scheduler as the reference."""

from types import SimpleNamespace

import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from teleport.training.schedule import end_of_segment, learning_rate, schedule_steps


def training(**values):
    return SimpleNamespace(**({"epochs": None, "steps": None, "stop_after_steps": None, "batch_queries": 8} | values))


def queries(number, without_negatives=0, without_positives=0):
    """What the schedule asks of a `TrainingSet`."""
    counts = {"without_negatives": without_negatives, "without_positives": without_positives}
    return SimpleNamespace(rows=range(number), **counts)


def test_length_in_epochs_drops_the_last_incomplete_batch():
    assert schedule_steps(training(epochs=3), queries(502_939)) == 188_601  # MS MARCO: 62,867 steps an epoch
    assert schedule_steps(training(epochs=40, batch_queries=128), queries(79_168)) == 24_720  # NQ: 618 steps an epoch
    assert schedule_steps(training(epochs=3), queries(15)) == 3


def test_length_in_steps():
    assert schedule_steps(training(steps=80), queries(15)) == 80


@pytest.mark.parametrize("length", [{"epochs": 3}, {"steps": 80}])
def test_fewer_queries_than_a_batch_is_an_error(length):
    counts = r"only 7 training queries can be trained on \(3 are without negatives, 5 without a positive\)"
    with pytest.raises(ValueError, match=f"batch_queries is 8, but {counts}: lower training"):
        schedule_steps(training(**length), queries(7, 3, 5))


@pytest.mark.parametrize(("first", "stop_after", "end"), [(0, None, 80), (0, 30, 30), (30, 30, 60), (60, 30, 80)])
def test_a_segment_stops_after_its_own_steps_or_with_the_schedule(first, stop_after, end):
    assert end_of_segment(training(steps=80, stop_after_steps=stop_after), 80, first) == end


@pytest.mark.parametrize("first", [80, 90])
def test_no_step_left_is_an_error(first):
    with pytest.raises(ValueError, match=f"steps is 80, but .* have done {first} steps already: raise training.steps"):
        end_of_segment(training(steps=80), 80, first)


def test_literal_rates():
    rates = [learning_rate(step, 10, 1.0, 0.2) for step in range(10)]
    assert rates == [0, 0.5, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]


def test_no_warm_up():
    assert [learning_rate(step, 4, 8.0, 0.0) for step in range(4)] == [8, 6, 4, 2]


def test_ms_marco_stops_just_after_the_warm_up():
    """20,000 of 188,601 steps: the warm-up ends at 18,861, the rate is at 99.3 % of its peak."""
    assert learning_rate(18_861, 188_601, 5e-6, 0.1) == 5e-6
    assert learning_rate(18_860, 188_601, 5e-6, 0.1) < 5e-6
    assert learning_rate(20_000, 188_601, 5e-6, 0.1) / 5e-6 == pytest.approx(0.9933, abs=1e-4)


def test_nq_stops_within_the_warm_up():
    assert learning_rate(2_000, 24_720, 5e-6, 0.1) / 5e-6 == pytest.approx(0.809, abs=1e-3)


@pytest.mark.parametrize(("total", "ratio", "warmup"), [(30, 0.1, 3), (7, 0.3, 3), (50, 0.0, 0)])
def test_equals_the_linear_scheduler_of_transformers(total, ratio, warmup):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3e-5)
    scheduler = get_linear_schedule_with_warmup(optimizer, warmup, total)
    for step in range(total):
        assert learning_rate(step, total, 3e-5, ratio) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        scheduler.step()


def test_a_stop_after_the_end_is_said(caplog):
    assert end_of_segment(training(steps=80, stop_after_steps=80), 80, 0) == 80 and not caplog.text
    assert end_of_segment(training(steps=80, stop_after_steps=41), 80, 40) == 80
    assert "training.stop_after_steps is 41, but the schedule ends after 40" in caplog.text
