"""The schedule of a forecast: an example by hand, properties of random ones by plain loops, and real plans."""

import random
import re
from dataclasses import replace

import pytest
import yaml
from commands.forecast.costs.search import workspace
from commands.forecast.schedule import Job, critical_path, schedule, together

from commands.forecast.forecast import Forecast
from commands.forecast.hardware import read_hardware
from commands.forecast.printed import timing
from paths import REPOSITORY
from teleport.plan.kinds import KINDS, needs
from teleport.plan.plan import Plan
from teleport.settings.read import load, load_files, merged

ONE = {"cores": 1}
EXAMPLE = {
    "index": Job(2, (), ONE),
    "download": Job(3, (), ONE),
    "sort": Job(4, ("index",), {"cores": 2}),
    "encode": Job(1, ("download",), {"cores": 1, "gpu": 1}),
    "train": Job(5, ("download",), {"cores": 9, "gpu": 1}),
}


def of_kinds(jobs):
    """The jobs, each a kind of its own."""
    return {name: replace(job, kind=name) for name, job in jobs.items()}


def test_an_example_by_hand():
    """Two cores: `sort` needs both, so it waits for `download`; `train` asks for nine, gets both, and comes last."""
    room = {"cores": 2, "gpu": 1}
    times = schedule(EXAMPLE, room)
    assert times == {"index": (0, 2), "download": (0, 3), "sort": (3, 7), "encode": (7, 8), "train": (8, 13)}
    assert together(of_kinds(EXAMPLE), times) == {("download", "index"): 2}
    assert together(EXAMPLE, times) == {("", ""): 2}
    urgent = EXAMPLE | {"encode": replace(EXAMPLE["encode"], priority=1)}
    assert schedule(urgent, room) == times | {"encode": (3, 4), "sort": (4, 8)}
    three = schedule(EXAMPLE, {"cores": 3, "gpu": 1})
    assert three == {"index": (0, 2), "download": (0, 3), "sort": (2, 6), "encode": (3, 4), "train": (6, 11)}
    assert critical_path(EXAMPLE) == ["download", "train"]


def random_jobs(draw, number):
    """Jobs of 0 to 9 seconds, each after some of those before it."""
    jobs = {}
    for name in map(str, range(number)):
        after = tuple(draw.sample(list(jobs), draw.randint(0, min(3, len(jobs)))))
        needs = {"cores": draw.randint(1, 5), "gpu": draw.randint(0, 1)}
        jobs[name] = Job(draw.randint(0, 9), after, needs, draw.choice([0, 0, 0, 50]))
    return jobs


def longest(jobs):
    """The seconds of the longest chain, by all chains."""

    def until(name):
        return jobs[name].seconds + max(map(until, jobs[name].after), default=0)

    return max(map(until, jobs))


def running(times, moment):
    return {name for name, (start, end) in times.items() if start <= moment < end}


@pytest.mark.parametrize("seed", range(30))
def test_no_schedule_takes_more_than_there_is_or_leaves_a_job_that_fits(seed):
    draw = random.Random(seed)
    jobs, room = random_jobs(draw, 12), {"cores": draw.randint(1, 8), "gpu": draw.randint(1, 2)}
    times = schedule(jobs, room)
    whole, moments = (
        max(end for _, end in times.values()),
        sorted({moment for span in times.values() for moment in span}),
    )
    taken = {name: {what: min(size, room[what]) for what, size in job.needs.items()} for name, job in jobs.items()}

    def free(moment, what):
        return room[what] - sum(taken[name][what] for name in running(times, moment))

    assert times.keys() == jobs.keys() and all(
        end - start == jobs[name].seconds for name, (start, end) in times.items()
    )
    assert all(free(moment, what) >= 0 for moment in moments for what in room)
    for name, (start, _) in times.items():
        ready = max((times[earlier][1] for earlier in jobs[name].after), default=0)
        assert ready <= start
        for moment in (moment for moment in moments if ready <= moment < start):
            assert any(taken[name][what] > free(moment, what) for what in room), "it could have started"
    work = {what: sum(job.seconds * taken[name][what] for name, job in jobs.items()) for what in room}
    assert max(longest(jobs), *(work[what] / room[what] for what in room)) <= whole
    assert whole <= sum(job.seconds for job in jobs.values())
    path = critical_path(jobs)
    assert sum(jobs[name].seconds for name in path) == longest(jobs)
    assert all(one in jobs[two].after for one, two in zip(path, path[1:], strict=False))
    unlimited = schedule(jobs, {"cores": 1000, "gpu": 1000})
    assert max(end for _, end in unlimited.values()) == longest(jobs)
    seconds = together(of_kinds(jobs), times)
    for pair, together_for in seconds.items():
        (start, end), (other_start, other_end) = (times[name] for name in pair)
        assert together_for == min(end, other_end) - max(start, other_start) > 0


def read(name, changes):
    file = REPOSITORY / f"config/{name}.yaml"
    return Plan(*load(merged(yaml.safe_load(file.read_text()), changes), [file]))


@pytest.fixture
def h200():
    return read_hardware("h200", measured="nowhere")[1]


def hours(plan, hardware, **machine):
    return Forecast(plan, hardware.model_copy(update=machine)).wall_seconds / 3600


def test_with_a_lag_two_gpus_mine_and_train_at_the_same_time(tmp_path, monkeypatch, h200):
    """Without one an episode is a chain, and a second GPU only evaluates and searches for the positives beside it."""
    monkeypatch.chdir(tmp_path)
    segments = {"training": {"continues": True, "start_from": "previous", "steps": 200_000, "epochs": None,
                             "stop_after_steps": 20_000, "negatives_per_query": 31}}  # fmt: skip
    found = {}
    for lag in (0, 1):
        episodes = [segments, segments | {"repeat": 7, "lag": lag}]
        plan = read("marco", {"episodes": episodes, "external": {}, "bm25": None, "published": []})
        found[lag] = [hours(plan, h200, gpus=gpus, cores=32) for gpus in (1, 2)]
    assert 0.97 * found[0][0] < found[1][0] < found[0][0], "one GPU: only what it has no part in overlaps"
    assert hours(plan, h200, gpus=2, cores=32, memory=28.1e9) > found[1][1], "two searches of 28 GB follow each other"
    assert found[0][1] > 0.8 * found[0][0] and found[1][1] < 0.67 * found[1][0], "searches of a checkpoint are a chain"


def test_what_is_printed_of_ms_marco_says_where_the_hours_go(tmp_path, monkeypatch, h200):
    monkeypatch.chdir(tmp_path)
    plan = read("marco", {})
    wall, path, shared, own, *others = timing(Forecast(plan, h200))
    assert re.fullmatch(
        r"wall clock: \d+ h \d\d min on 16 cores \(\d+ % in use\), 1 GPU \(\d+ % in use\), 128 GB of memory", wall
    )
    assert path.startswith("critical path: ") and shared.startswith("  shared: download ")
    assert own.startswith("  ance-tele: ") and ", 3 train " in own and ", 4 encode " in own
    assert others[0] == "at the same time:" and any("lexical_index" in line for line in others)
    alone = timing(Forecast(plan, h200.model_copy(update={"cores": 1})))
    assert alone[-1] == "at the same time: hardly anything"


VARIANTS = ("marco-ance", "marco-star-adore")


def test_stages_that_read_vectors_run_before_stages_that_make_more():
    """And those that lie between two of these: they have a priority, and the index over vectors that go a GPU token."""
    files = [REPOSITORY / f"config/{name}.yaml" for name in ("marco", *(f"variants/{name}" for name in VARIANTS))]
    plans = [Plan(*load_files(files)), read("nq", {}), read("systems", {})]
    stages = [stage for plan in plans for stage in plan.stages.values()]
    read_by = {stage.kind for stage in stages if any(read.kind == "encode" for read in stage.inputs.values())}
    assert read_by | {"positives"} == {kind for kind, row in KINDS.items() if 10 <= row.priority < 50} - {"evaluate"}
    assert KINDS["train"].priority < KINDS["retrieve"].priority == KINDS["evaluate"].priority, (
        "a row waits for no other"
    )
    assert KINDS["encode"].priority == 0
    index = next(stage for stage in stages if stage.kind == "index")
    assert needs(index).gpus == 0 and needs(index, {index.inputs["passages"].name}).gpus == 1
    assert needs(index, {"encode/another"}).gpus == 0


def most_by_moments(forecast):
    """The most bytes at a time, by a look at every moment at which a job begins; everything is still to do."""
    plan, times, most = forecast.plan, forecast.times, 0
    costs = {name: each.cost for name, each in forecast.stages.items()}
    assert times.keys() == plan.stages.keys()
    gone = {name: max(times[reader.name][1] for reader in readers) for name, readers in plan.deleted_vectors.items()}
    for now, _ in times.values():
        there = [name for name, (start, _) in times.items() if start <= now < gone.get(name, float("inf"))]
        most = max(most, sum(costs[n].bytes + costs[n].scratch * (now < times[n][1]) for n in there))
    return most


@pytest.mark.parametrize("gpus", [1, 2])
def test_of_vectors_that_go_there_is_one_set_for_each_gpu(tmp_path, monkeypatch, h200, gpus):
    """MS MARCO, and what its released checkpoints are compared with; 45 GB is what a person may plan with."""
    monkeypatch.chdir(tmp_path)
    hardware, found = h200.model_copy(update={"gpus": gpus}), {}
    for keep in ("all", "last", "none"):
        plan = read("marco", {"keep_vectors": keep, "encoder": {"vectors": "fp16"}})
        forecast = Forecast(plan, hardware)
        found[keep] = forecast.bytes_to_come
        assert found[keep] == pytest.approx(most_by_moments(forecast))
        costs = [each.cost for each in forecast.stages.values()]
        whole, scratch = (sum(getattr(cost, what) for cost in costs) for what in ("bytes", "scratch"))
        sets = [forecast.stages[name].cost.bytes for name in plan.deleted_vectors]
        most = whole - sum(sets) + gpus * max(sets, default=0) + scratch
        assert found[keep] <= most
    assert found["none"] < found["last"] < found["all"] and found["all"] >= whole
    if gpus == 1:
        assert found["none"] < 45e9


def test_a_training_on_eight_gpus_and_an_encoding_in_eight_shards(tmp_path, monkeypatch, h200):
    """What GPUs share takes an eighth of the time and of the device; loading and the disk take as long as before."""
    monkeypatch.chdir(tmp_path)
    plan, eight = read("marco", {}), h200.model_copy(update={"gpus": 8, "cores": 64, "launches": 1e12})
    alone, many = Forecast(plan, eight), Forecast(plan, eight, {"train": 8, "retrieve": 8}, shards=8)
    one, other = (
        {
            kind: next(each for each in f.stages.values() if each.kind == kind)
            for kind in ("train", "encode", "retrieve")
        }
        for f in (alone, many)
    )
    exchanged = other["train"].cost.work["exchanged"]
    steps = one["train"].cost.work["train_flop"] / eight.train_flop
    assert other["train"].seconds == pytest.approx(one["train"].seconds - steps * 7 / 8 + exchanged / eight.exchanged)
    states = 18 * 108_891_648
    kept = [each["train"].device_memory - states for each in (one, other)]
    assert kept[0] == pytest.approx(8 * kept[1])
    searched = [each["retrieve"].device_memory - workspace(768) for each in (one, other)]
    assert searched[0] == pytest.approx(8 * searched[1])
    name, encode = next((name, stage) for name, stage in plan.stages.items() if stage.kind == "encode")
    shards = [many.jobs[f"{name}/{number}"] for number in range(1, 9)]
    join = many.jobs[name]
    assert set(join.after) >= {f"{name}/{number}" for number in range(1, 9)} and join.bytes == 0
    assert sum(job.bytes for job in shards) == pytest.approx(alone.jobs[name].bytes)
    assert join.scratch == shards[0].bytes and shards[0].seconds < alone.jobs[name].seconds / 4
    assert many.bytes_to_come < alone.bytes_to_come + 8 * max(job.scratch for job in many.jobs.values())
    assert many.wall_seconds < 0.7 * alone.wall_seconds


def test_an_encoding_of_queries_alone_is_one_job_also_where_passages_are_sharded(tmp_path, monkeypatch, h200):
    monkeypatch.chdir(tmp_path)
    adore = {"training": {"trains": ["query"], "start_from": "previous"}}
    plan = read("marco", {"episodes": [{}, adore]})
    jobs = Forecast(plan, h200, shards=8).jobs
    sides = {stage.name: stage.settings.sides for stage in plan.stages.values() if stage.kind == "encode"}
    sharded = {name for name in sides if f"{name}/1" in jobs}
    assert sharded == {name for name, of in sides.items() if "passage" in of} and 1 <= len(sharded) < len(sides)
