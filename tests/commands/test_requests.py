"""What jobs ask of a cluster: near their forecast, more with every attempt, within the limits that a profile names."""

import json
import math
from collections import Counter
from types import SimpleNamespace

import networkx
import pytest
import yaml
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string

from commands.forecast.forecast import Forecast
from commands.forecast.hardware import read_hardware
from commands.forecast.requests import FOLLOWING, Requests, group_of
from paths import REPOSITORY
from teleport.plan.kinds import KINDS, needs
from teleport.plan.plan import Plan
from teleport.running.artefact import MANIFEST, STAGES, is_finished
from teleport.settings.read import load, merged

pytestmark = pytest.mark.usefixtures("empty_folder")

PROFILE = yaml.safe_load((REPOSITORY / "profiles/slurm/config.yaml").read_text())


class Asked(dict):
    """Resources of a job as the executor reads them."""

    __getattr__ = dict.__getitem__


def marco(**changes):
    file = REPOSITORY / "config/marco.yaml"
    return Plan(*load(merged(yaml.safe_load(file.read_text()), changes), [file]))


@pytest.mark.parametrize("hardware", ["a100", "h200"])
@pytest.mark.parametrize("name", ["marco", "nq", "triviaqa"])
def test_the_group_of_a_checkpoint_asks_for_little_more_than_its_forecast(name, hardware):
    """Its members follow each other, and their minutes add up: each asks for a minute at least."""
    plan = Plan.of_files([REPOSITORY / f"config/{name}.yaml"])
    forecast = Forecast(plan, read_hardware(hardware)[1])
    requests, groups = Requests(plan, PROFILE["config"]["cluster"] | {"hardware": hardware}), {}
    for stage in plan.stages.values():
        if name := group_of(stage):
            groups.setdefault(name, []).append(stage)
    assert len(groups) > 4 and max(map(len, groups.values())) > 5
    for stages in groups.values():
        minutes = sum(forecast.estimate(stage).seconds for stage in stages) / 60
        asked = sum(requests.of(stage).minutes for stage in stages)
        assert 2 * minutes - len(stages) <= asked <= 2 * minutes + 2 + len(stages)


CONFIGURATIONS = [
    "config",
    "marco",
    "nq",
    "triviaqa",
    "marco-doc",
    "systems",
    "arms variants/arms-docstrings",
    "nq variants/nq-ance",
]
CONFIGURATIONS += [f"marco-doc variants/marco-doc-{more}" for more in ("dynamic", "systems")]
CONFIGURATIONS += ["marco variants/marco-ance variants/marco-star-adore", "apidocs ablations/dynamic"]


@pytest.mark.ci(4)
@pytest.mark.parametrize("names", CONFIGURATIONS)
def test_no_job_of_several_stages_waits_for_one_that_waits_for_it(names):
    """Also where passages are frozen, and each checkpoint encodes queries alone (ADORE)."""
    require_no_circle(Plan.of_files([REPOSITORY / f"config/{name}.yaml" for name in names.split()]))


def test_searches_of_queries_that_stay_are_in_the_job_of_the_passages_that_were_trained():
    require_no_circle(marco(training={"trains": ["passage"], "start_from": "previous"}))


def require_no_circle(plan):
    job_of = {stage.name: group_of(stage) or stage.name for stage in plan.stages.values()}
    waits = {(job_of[s.name], job_of[read.name]) for s in plan.stages.values() for read in s.inputs.values()}
    assert networkx.is_directed_acyclic_graph(networkx.DiGraph(edge for edge in waits if len(set(edge)) > 1))
    assert max(Counter(job_of.values()).values()) > 3, "not vacuous"


def test_every_stage_asks_for_what_the_page_says_and_twice_as_much_at_each_attempt():
    """docs/cluster.md: twice the time, plus two minutes, and 1.5 times the memory of the forecast; 4 GB at least."""
    plan = marco()
    forecast = Forecast(plan, read_hardware("a100")[1])
    requests = Requests(plan, {"hardware": "a100"})
    for stage in plan.stages.values():
        cost, seconds = forecast.cost(stage)
        first, second, third = (requests.of(stage, attempt) for attempt in (1, 2, 3))
        follows = stage.kind in FOLLOWING or stage.kind == "encode" and stage.settings.of != "passages"
        assert first.minutes == max(1, round(2 * seconds / 60)) + (0 if follows else 2) or cost.lacks
        assert first.mem_mb == max(4000, math.ceil(1.5 * cost.memory / 1e6)) or cost.lacks
        assert (second.minutes, third.mem_mb) == (2 * first.minutes, 4 * first.mem_mb)
    encode = next(stage for stage in plan.stages.values() if stage.kind == "encode")
    assert requests.of(encode, shards=8).minutes < requests.of(encode).minutes / 3


def test_no_attempt_asks_for_more_than_the_profile_says():
    plan = marco()
    requests = Requests(plan, {"hardware": "cpu-2-cores", "minutes": 1440, "mem_mb": 30000})
    train = next(stage for stage in plan.stages.values() if stage.kind == "train")
    assert requests.of(train) == (1440, requests.of(train).mem_mb)
    assert max(requests.of(stage, 3).mem_mb for stage in plan.stages.values()) == 30000


@pytest.mark.parametrize("attempt", [1, 3])
def test_no_job_of_several_stages_asks_for_more_than_the_profile_says(attempt):
    """Their minutes add up; each keeps its share of them, and within the limit all that it asks for."""
    plan, jobs = marco(), {}
    free = Requests(plan, {"hardware": "cpu-2-cores"})
    limit = 1 + max(free.of(stage).minutes for stage in plan.stages.values() if group_of(stage))
    requests = Requests(plan, {"hardware": "cpu-2-cores", "minutes": limit})
    for stage in plan.stages.values():
        if name := group_of(stage):
            jobs.setdefault(name, []).append(stage)
    asked, wanted = ([[of.of(s, attempt).minutes for s in job] for job in jobs.values()] for of in (requests, free))
    assert any(sum(minutes) > limit > max(minutes) for minutes in wanted) or attempt > 1, "no job is above the limit"
    for got, want in zip(asked, wanted, strict=True):
        assert sum(got) <= limit and (sum(want) > limit or got == want)
        assert all(abs(g - w * min(1, limit / sum(want))) < 1 for g, w in zip(got, want, strict=True))
    encode = next(stage for stage in plan.stages.values() if stage.kind == "encode")
    assert requests.of(encode, shards=64) == free.of(encode, shards=64)


def test_without_hardware_or_size_a_stage_asks_for_what_its_kind_does():
    for plan, cluster in ((marco(), {}), (marco(counts=None), {"hardware": "h200"})):
        for stage in plan.stages.values():
            row = needs(stage)
            assert Requests(plan, cluster).of(stage, 2) == (2 * row.minutes, 2 * row.mem_mb)


def test_once_the_collection_is_built_whose_size_nobody_said_stages_ask_by_their_forecast():
    """Snakemake asks when a job can begin, and the one process of a run asks for all of them."""
    plan = marco(counts=None)
    requests, (encode, *_) = (
        Requests(plan, {"hardware": "h200"}),
        [s for s in plan.stages.values() if s.kind == "encode"],
    )
    before = requests.of(encode)
    for stage in (plan.corpus, *plan.collection["splits"].values()):
        facts = {"num_passages": 9} if stage.kind == "corpus" else {"queries": 9, "positives": 9}
        (STAGES / stage.name).mkdir(parents=True)
        manifest = {"kind": stage.kind, "key": stage.key, "facts": facts, "files": {}, "provenance": {}}
        (STAGES / stage.name / MANIFEST).write_text(json.dumps(manifest))
    assert before == (needs(encode).minutes, needs(encode).mem_mb)
    assert requests.of(encode).mem_mb < before.mem_mb and requests.of(encode).minutes < before.minutes


def test_what_a_forecast_lacks_is_asked_for_by_kind():
    plan = marco(mining={"index": "HNSW32"})
    index = next(s for s in plan.stages.values() if s.kind == "index" and s.settings.index.kind == "hnsw")
    assert Requests(plan, {"hardware": "h200"}).of(index) == (needs(index).minutes, needs(index).mem_mb)


def test_a_mistake_in_the_profile_is_one_sentence():
    with pytest.raises(ValueError, match="config.cluster.hours: unknown key"):
        Requests(marco(), {"hours": 24})
    with pytest.raises(ValueError, match="no hardware line 'v100'"):
        Requests(marco(), {"hardware": "v100"})


def test_the_profile_has_what_the_page_of_clusters_says():
    page = (REPOSITORY / "docs/cluster.md").read_text()
    assert "**A failed job** is submitted twice more" in page and PROFILE["retries"] == 2
    assert f"`latency-wait: {PROFILE['latency-wait']}`" in page


def test_what_needs_a_network_runs_where_snakemake_does():
    """`corpus` and `split` need one with ir_datasets alone."""
    rules = (REPOSITORY / "rules/stages.smk").read_text()
    local = rules.partition("localrules:")[2].partition("rule ")[0]
    assert {kind for kind, row in KINDS.items() if row.network and f"    {kind},\n" in local} == {
        "download",
        "pretrained",
        "ranker",
    }
    assert {kind for kind, row in KINDS.items() if row.network} == {
        "download",
        "pretrained",
        "ranker",
        "corpus",
        "split",
    }


def test_a_search_whose_vectors_are_there_starts_a_job_of_its_own():
    plan = marco()
    requests = Requests(plan, {"hardware": "a100"})
    search = next(stage for stage in plan.stages.values() if stage.kind == "retrieve")
    before, read = requests.of(search).minutes, [search.inputs[role] for role in ("queries", "passages", "index")]
    assert before >= 1
    for stage in read:
        assert requests.of(search).minutes == before
        (STAGES / stage.name).mkdir(parents=True)
        (STAGES / stage.name / MANIFEST).touch()
    assert requests.of(search).minutes == before + 2


def test_a_job_whose_finished_stages_rerun_keeps_within_the_limit():
    """Their manifests still lie there when Snakemake asks for the job's time."""
    plan, jobs = marco(), {}
    for stage in plan.stages.values():
        if name := group_of(stage):
            jobs.setdefault(name, []).append(stage)
    job = max(jobs.values(), key=len)
    for stage in job:
        (STAGES / stage.name).mkdir(parents=True)
        (STAGES / stage.name / MANIFEST).touch()
    whole = sum(Requests(plan, {"hardware": "a100"}, lambda name: False).of(stage).minutes for stage in job)
    cluster = {"hardware": "a100", "minutes": whole - 5}
    sums = [
        sum(Requests(plan, cluster, finished).of(stage).minutes for stage in job)
        for finished in (lambda name: False, is_finished)
    ]
    assert sums[0] <= whole - 5 < sums[1]


def test_slurm_gives_a_job_with_several_gpus_one_node():
    """With `--gpus` alone it may take as many nodes as these are spread over (sbatch(1), `--nodes`)."""
    job = SimpleNamespace(threads=8, resources=Asked(PROFILE["default-resources"] | {"gpu": 8}))
    named = dict.fromkeys(("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir"), "name")
    assert "--gpus=8" in set_gres_string(job) and " --nodes=1 " in get_submit_command(job, named)
