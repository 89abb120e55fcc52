"""What the forecast says of the papers' workflows at their size, against what they are to take at most."""

import pytest

from commands.forecast.forecast import Forecast
from commands.forecast.hardware import read_hardware
from paths import REPOSITORY
from teleport.plan.plan import Plan

pytestmark = pytest.mark.usefixtures("empty_folder")


def forecast(hardware, *names):
    plan = Plan.of_files([REPOSITORY / f"config/{name}.yaml" for name in names])
    return Forecast(plan, read_hardware(hardware)[1])


def of_pq(stage):
    """Whether a stage trains with, makes or searches a PQ index."""
    if stage.kind == "train":
        live = stage.settings.live
        return bool(live) and live.index.kind == "pq"
    index = stage.inputs.get("index", stage)
    return index.kind == "index" and index.settings.index.kind == "pq"


@pytest.mark.ci(1)
@pytest.mark.parametrize("hardware", ["h200", "a100"])
def test_all_of_adores_pq_takes_at_most_ten_hours(hardware):
    found = forecast(hardware, "marco", "variants/marco-ance", "variants/marco-star-adore")
    stages = list(filter(of_pq, found.plan.stages.values()))
    kinds = [stage.kind for stage in stages]
    assert (kinds.count("train"), kinds.count("index")) == (5, 5) and kinds.count("retrieve") > 20
    assert 1200 < sum(found.estimate(stage).seconds for stage in stages) < 10 * 3600


def test_all_searches_of_marco_take_at_most_twelve_minutes():
    """Each job costs its start, and reads the vectors of its checkpoint."""
    found = forecast("h200", "marco")
    searches = [each for each in found.stages.values() if each.kind == "retrieve"]
    assert len(searches) == 33 and 60 < sum(each.seconds for each in searches) < 720


def test_queries_in_the_archive_of_the_passages_are_found_by_unpacking_it():
    """52 s on two cores, of which other splits take one or two."""
    found = forecast("cpu-2-cores", "marco")
    seconds = {stage.settings.split: found.estimate(stage).seconds for stage in map(found.plan.split, ("dev", "dl19"))}
    assert 45 < seconds["dev"] < 65 and seconds["dl19"] < 6


def test_adore_on_a_gpu_leaves_the_room_that_its_search_demands():
    """The stage refuses to begin if its vectors and `STEP_RESERVE` do not fit."""
    from teleport.training import live

    found = forecast("h200", "marco", "variants/marco-ance", "variants/marco-star-adore")
    adore = [each for each in found.plan.stages.values() if each.kind == "train" and each.settings.live]
    vectors = 2 * 8_841_823 * 768
    assert len(adore) > 5
    for stage in adore:
        assert found.estimate(stage).device_memory >= vectors + live.STEP_RESERVE
