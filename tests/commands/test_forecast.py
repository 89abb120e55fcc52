"""The forecast: sizes follow from counts, done stages show what they measured, and too small machines are named."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from commands.forecast.costs import collection as collection_costs
from commands.forecast.costs import encoder as encoder_costs
from commands.forecast.costs import search as search_costs
from commands.forecast.costs import stage_cost
from commands.forecast.costs.encoder import sharded
from commands.forecast.counts import Counts, encoder_shape, of_kind
from commands.forecast.flops import Shape, forward_flop, step_flop
from commands.forecast.forecast import Forecast, total
from commands.forecast.hardware import LINES, THIS, TORCH_BASE, Cost, Hardware, Place, read_hardware
from commands.forecast.left import left_of_run
from commands.forecast.printed import cost_sentence, disk_shortage, live_search, memory_shortages, render, shortages
from paths import REPOSITORY
from teleport.collection import answers, build
from teleport.cpu import int8
from teleport.encoder import tokens
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.plan.kinds import KINDS, Kind
from teleport.plan.plan import Plan
from teleport.plan.stage import Stage
from teleport.running.artefact import Artefact
from teleport.running.files import sha256_file
from teleport.search import approximate, errors, flat, flat_torch, lexical_index
from teleport.settings import read as config
from teleport.settings.encoder import PretrainedSettings
from teleport.settings.section import NoSettings

MARCO = """
collection:
  source: tsv
  corpus: corpus.tsv
  splits: {train: {queries: q.tsv, qrels: r.tsv}, dev: {queries: q.tsv, qrels: r.tsv}}
counts:
  passages: 8841823
  queries: {train: 502939, dev: 6980}
  positives: {train: 532761}
  passage_tokens: 76
  query_tokens: 9
encoder:
  checkpoint: {hub: nobody/bert-base, revision: "0"}
  pooling: cls
  normalize: false
  query_prefix: ""
  passage_prefix: ""
  max_query_tokens: 32
  max_passage_tokens: 128
negatives: {pool: 60}
training: {negatives_per_query: 31, batch_queries: 8, epochs: 3}
episodes: [{training: {stop_after_steps: 20000}}, {training: {stop_after_steps: 20000}}, {}]
experiments: {tele: {}}
evaluation: {splits: [dev], depth: 1000, measures: [RR@10]}
"""
RATES = dict.fromkeys(
    ["encode_flop", "train_flop", "search_flop", "rescored", "merge_rows", "texts", "tokens", "bm25_tokens",
     "bm25_scores", "run_rows", "disk", "host_flop", "looked", "launches", "listed", "exchanged"], 1e12,
)  # fmt: skip
UNIT = Hardware(source="test", startup=0.0, load=0.0, **RATES)


@pytest.fixture
def marco(tmp_path, monkeypatch):
    """The plan of MS MARCO at the paper's scale, in an empty folder: nothing is built, the files are empty."""
    monkeypatch.chdir(tmp_path)
    for name in ("corpus.tsv", "q.tsv", "r.tsv"):
        (tmp_path / name).touch()
    return make_plan()


def make_plan(**changes):
    return Plan(*config.load(config.merged(yaml.safe_load(MARCO), changes)))


def costs(plan, kind):
    """The costs of all stages of a kind, in the order of the plan."""
    return [stage_cost(stage, Counts(plan)) for stage in plan.stages.values() if stage.kind == kind]


def lines_of(plan, hardware=UNIT, **asked):
    """{kind: its `Line`} of a forecast, with "total"."""
    return {line.kind: line for line in Forecast(plan, hardware, **asked).lines}


def test_what_is_there_already_is_what_is_finished(marco, tmp_path, monkeypatch):
    """Not what nobody has asked for."""
    monkeypatch.chdir(tmp_path)
    first, second, third, *_ = marco.stages
    assert f"; 0 of {len(marco.stages)} stages are there already" in cost_sentence(marco, None, {first})
    monkeypatch.setattr("commands.forecast.printed.is_finished", {first, second, third}.__contains__)
    assert f"; 2 of {len(marco.stages)} stages are there already" in cost_sentence(marco, "h200", {first})


def test_counts_enter_no_key(marco):
    assert marco.stages.keys() == make_plan(counts=None).stages.keys()
    assert marco.stages.keys() == make_plan(counts={"passages": 7, "queries": {"dev": 1}}).stages.keys()


def test_sizes_of_marco_follow_from_its_counts(marco):
    texts = 8_841_823 + 502_939 + 6_980
    assert [cost.bytes for cost in costs(marco, "encode")] == [texts * 768 * 4] * 4
    searched = [(s.settings.split, stage_cost(s, Counts(marco)).bytes) for s in marco.stages.values()
                if s.kind == "retrieve"]  # fmt: skip
    assert Counter(searched) == {("train", 502_939 * (200 * 8 + 4)): 6, ("dev", 6_980 * (1000 * 8 + 4)): 4}
    assert [cost.bytes for cost in costs(marco, "merge")] == [502_939 * (60 * 14 + 8)] * 3
    steps = 20_000, 20_000, 188_601  # each has a line of losses.tsv; a checkpoint has its tokenizer's files
    assert [cost.bytes for cost in costs(marco, "train")] == [4 * 108_891_648 + 950_000 + 150 * n for n in steps]
    tokens = 8_841_823 * 74 + (502_939 + 6_980) * 7
    assert costs(marco, "tokens")[0].bytes == 2 * tokens + 8 * (texts + 3)


def test_what_a_stage_maps_is_in_its_peak_and_not_in_what_it_needs(marco):
    """Token ids and vectors of an encoding: clean pages of files, which the system takes back."""
    (tokens,), (encode, *_) = costs(marco, "tokens"), costs(marco, "encode")
    assert encode.mapped == tokens.bytes + encode.bytes and encode.resident == encode.memory + encode.mapped
    assert encode.memory < 2e9 < 25e9 < encode.mapped
    forecast = Forecast(marco, UNIT.model_copy(update={"memory": 16e9}))
    assert not [text for text in memory_shortages(forecast) if "encode" in text]
    assert sharded(encode, 4)[0].mapped == encode.mapped / 4
    (index, *_), retrieve = costs(marco, "index"), costs(marco, "retrieve")[0]
    vectors = 8_841_823 * 768 * 4
    assert index.mapped == vectors and retrieve.memory > vectors > retrieve.mapped == retrieve.bytes


def test_work_of_marco_is_that_of_the_papers_table(marco):
    assert [cost.work["train_flop"] / 10.115222962176e12 for cost in costs(marco, "train")] == [20000, 20000, 188_601]
    queries = 2 * 502_939 * 8_841_823 * 768
    assert sum(cost.work["search_flop"] for cost in costs(marco, "retrieve")) == pytest.approx(
        6 * queries + 4 * 2 * 6_980 * 8_841_823 * 768
    )
    passages = 8_841_823 * 13.122994176e9
    assert costs(marco, "encode")[0].work["encode_flop"] == pytest.approx(passages, rel=0.01)


@pytest.mark.parametrize("hardware", ["h200", "a100"])
def test_all_searches_of_a_checkpoint_of_marco_take_minutes(tmp_path, monkeypatch, hardware):
    plan = Plan(*config.load_files([REPOSITORY / "config/marco.yaml"]))
    monkeypatch.chdir(tmp_path)
    forecast = Forecast(plan, read_hardware(hardware, measured="nowhere")[1])
    seconds = Counter()
    for stage in filter(lambda stage: stage.kind == "retrieve", plan.stages.values()):
        seconds[stage.inputs["index"].name] += forecast.stages[stage.name].seconds
    assert len(seconds) == 9 and max(seconds.values()) < 480


def test_all_positives_are_searched_when_all_are_anchors(marco):
    lines = {
        stage.settings.of: stage_cost(stage, Counts(plan)).bytes / 1604
        for plan in [make_plan(mining={"anchor": "all"})]
        for stage in plan.stages.values()
        if stage.kind == "retrieve" and stage.settings.split == "train"
    }
    assert lines == {"queries": 502_939, "positives": 532_761}


def test_the_released_pool_grows_by_every_episode(marco):
    plan = make_plan(negatives={"mode": "released_code", "per_source": 30})
    assert [cost.bytes for cost in costs(plan, "merge")] == [502_939 * (pool * 14 + 8) for pool in (60, 120, 180)]


def test_a_part_of_the_queries_costs_its_share(marco):
    """Five parts, and triples: rows of one negative each, of which a batch has 64."""
    training = {"loss": "nll", "triples": True, "negatives_per_query": 20, "batch_queries": 64}
    parts = {"mining": {"parts": 5}, "negatives": {"counts": {"query": 20}}, "training": training | {"epochs": 1}}
    plan = make_plan(**parts, episodes=[{}] * 5)
    lines = [502_939 // 5] * 4 + [502_939 - 4 * (502_939 // 5)]
    searched = [s for s in plan.stages.values() if s.kind == "retrieve" and s.settings.split == "train"]
    assert [stage_cost(s, Counts(plan)).bytes / 1604 for s in searched] == lines
    assert [cost.bytes for cost in costs(plan, "merge")] == [number * (20 * 14 + 8) for number in lines]
    flops = [cost.work["train_flop"] for cost in costs(plan, "train")]
    steps = [number * 20 // 64 for number in lines]
    assert np.divide(flops, flops[0]).tolist() == pytest.approx(np.divide(steps, steps[0]).tolist())
    plain = make_plan(training={"negatives_per_query": 1, "batch_queries": 64, "epochs": 1, "loss": "nll"})
    assert flops[0] / steps[0] == pytest.approx(costs(plain, "train")[2].work["train_flop"] / (502_939 // 64))


def test_untied_encoders_are_two(marco):
    plan = make_plan(encoder={"tied": False})
    assert costs(plan, "train")[0].bytes - costs(marco, "train")[0].bytes == 4 * 108_891_648 + 950_000


def test_a_projection_is_the_width_of_the_vectors(marco):
    plan = make_plan(encoder={"projection": 128})
    assert costs(plan, "encode")[0].bytes == (8_841_823 + 509_919) * 128 * 4


def test_chunks_are_more_and_shorter_texts(marco):
    """300 tokens a document: 128 / 128 / 44 as a mean would be, half a chunk more where the last ones vary."""
    changes = {"counts": yaml.safe_load(MARCO)["counts"] | {"passage_tokens": 300}}
    plain, chunked = make_plan(**changes), make_plan(**changes, encoder={"chunks": 4})
    vectors = 8_841_823 * (300 / 128 + 0.5)
    assert costs(chunked, "encode")[0].bytes == pytest.approx((vectors + 509_919) * 768 * 4)
    flop = vectors * forward_flop(Shape(), 300 / (300 / 128 + 0.5)) + 509_919 * forward_flop(Shape(), 9)
    assert costs(chunked, "encode")[0].work["encode_flop"] == pytest.approx(flop)
    searched = {s.settings.of: stage_cost(s, Counts(chunked)) for s in chunked.stages.values()
                if s.kind == "retrieve" and s.settings.split == "train"}  # fmt: skip
    assert searched["queries"].work["search_flop"] == pytest.approx(2 * 502_939 * vectors * 768)
    assert searched["positives"].bytes == pytest.approx((300 / 128 + 0.5) * searched["queries"].bytes)
    work = [costs(plan, "train")[0].work["train_flop"] for plan in (plain, chunked)]
    assert 2.2 < work[1] / work[0] < 300 / 128, "all tokens instead of 128, and less attention between them"
    assert costs(plain, "tokens")[0].bytes == costs(chunked, "tokens")[0].bytes


def test_without_given_tokens_texts_are_as_long_as_they_may_be(marco):
    counts = yaml.safe_load(MARCO)["counts"] | {"passage_tokens": None, "query_tokens": None}
    plan = make_plan(counts=counts)
    tokens = next(stage for stage in plan.stages.values() if stage.kind == "tokens")
    assert Counts(plan).tokens_per_text(tokens, "passages", 128) == 128
    assert Counts(plan).tokens_per_text(tokens, "queries.dev", 32) == 32


def test_a_training_maps_the_passages_of_its_pool(marco):
    """All of them with many steps; with few, what is around the places that are read."""
    small, large, short = (
        costs(make_plan(episodes=[{}], negatives={"counts": {"query": count}}, training=training), "train")[0].mapped
        for count, training in ((30, {}), (60, {}), (60, {"stop_after_steps": 10}))
    )
    assert large - small == pytest.approx(502_939 * 30 * 4)
    assert short == pytest.approx(10 * (8 + 8 * 32 + 8) * 2**16)


def test_the_questions_of_the_largest_split_are_in_memory_and_all_on_the_disk(marco):
    """502,939 questions with their judgments: 368 MB and 20 MB were measured beside 530,509 passages."""
    queries = yaml.safe_load(MARCO)["counts"]["queries"]
    few = make_plan(counts=yaml.safe_load(MARCO)["counts"] | {"queries": queries | {"train": 1_000}})
    (many,), (one,) = costs(make_plan(), "collection"), costs(few, "collection")
    assert many.memory - one.memory == pytest.approx((502_939 - 6_980) * 700)
    assert many.bytes - one.bytes == pytest.approx(501_939 * 40)


def test_a_collection_of_unknown_size_is_an_error_with_its_remedy(marco):
    with pytest.raises(
        ValueError, match=r"size of the collection is unknown: collection/\w+ is not built .* Add `counts"
    ):
        Counts(make_plan(counts=None))


def test_seconds_add_up():
    line = UNIT.model_copy(update={"encode_flop": 50.0, "disk": 20.0, "startup": 1.0, "load": 3.0})
    assert line.seconds(Cost(bytes=100.0, work={"encode_flop": 200.0}, model=True)) == 1 + 3 + 4 + 5
    assert line.seconds(Cost()) == 1


def test_beside_a_gpu_the_longer_of_products_and_scoring_counts():
    line = UNIT.model_copy(update={"search_flop": 10.0, "rescored": 5.0, "read": 2.0})
    work = [{"search_flop": flop, "rescored": 100.0, "read": 2.0} for flop in (300.0, 100.0)]
    searches = [Cost(work=each, at_once=(("search_flop", "rescored"),)) for each in work]
    assert [line.seconds(cost) for cost in searches] == [30 + 20 + 1, 10 + 20 + 1]
    assert line.seconds(Cost(work=work[0]), 1) == 30 + 20 + 1  # in a training step, one after the other
    assert [line.seconds(cost, 1) for cost in searches] == [30 + 1, 20 + 1]
    assert [line.seconds(cost, 2) for cost in searches] == [20 + 1, 20 + 1]
    assert line.seconds(Cost(work={"read": 2.0}), 1) == 1


def test_vectors_are_read_at_a_rate_of_their_own_or_else_at_that_of_the_disk():
    line = UNIT.model_copy(update={"disk": 2.0})
    assert line.seconds(Cost(work={"read": 6.0})) == 3 and line.read is None
    assert line.model_copy(update={"read": 6.0}).seconds(Cost(work={"read": 6.0, "disk": 2.0})) == 1 + 1


def test_a_kind_without_estimate_is_listed_and_not_counted(marco, monkeypatch):
    monkeypatch.setitem(KINDS, "coverage", Kind("teleport.evaluation.names"))
    stage = Stage("coverage", NoSettings(), {"collection": marco.collection})
    marco.stages[stage.name] = stage
    before, forecast = lines_of(make_plan())["total"], Forecast(marco, UNIT)
    assert [line.kind for line in forecast.lines[-2:]] == ["coverage", "total"]
    row = next(text for text in render(forecast).splitlines() if text.startswith("coverage"))
    assert row.split() == ["coverage", "1", "0", "0.000", "0.150", "0", "s"]
    assert lacking(marco) == {"coverage, of which there is no estimate"}
    assert len(forecast.lines[-1].stages) == len(marco.stages) == len(before.stages) + 1


def lacking(plan):
    """What is in no sum of a plan's forecast."""
    return {each.cost.lacks for each in Forecast(plan, UNIT).stages.values() if each.cost.lacks}


def test_the_encoder_is_read_from_a_local_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text(json.dumps({"hidden_size": 32, "num_hidden_layers": 2, "x": 1}))
    local = Stage("pretrained", PretrainedSettings(checkpoint={"folder": "bert"}), {})
    assert encoder_shape(local) == (Shape(hidden_size=32, num_hidden_layers=2), "bert/config.json")
    sizes = {"model_type": "distilbert", "dim": 32, "n_layers": 2, "hidden_dim": 64, "n_heads": 2}
    (tmp_path / "bert/config.json").write_text(json.dumps(sizes))
    local = Stage("pretrained", PretrainedSettings(checkpoint={"folder": "bert"}), {})
    distilbert = Shape(2, 32, 64, num_attention_heads=2, type_vocab_size=0)
    assert encoder_shape(local) == (distilbert, "bert/config.json")
    elsewhere = Stage("pretrained", PretrainedSettings(checkpoint={"hub": "nobody/none", "revision": "0"}), {})
    assert encoder_shape(elsewhere) == (Shape(), "BERT-base, because the checkpoint is not local")


def test_too_little_disk_memory_and_gpu_memory_is_said(marco, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 50e9}))
    assert disk_shortage(50e9, tmp_path / "results") == []
    (text,) = disk_shortage(51e9, tmp_path / "results")
    assert text.startswith(f"disk: 51.0 GB are needed below {tmp_path}/results, 50.0 GB are free. ")
    monkeypatch.setattr(
        "commands.forecast.printed.read_hardware", lambda: ("unit", UNIT.model_copy(update={"memory": 20e9}))
    )
    monkeypatch.setattr("glob.glob", lambda pattern: [])
    found = shortages(marco)
    assert [text.split(":")[0] for text in found] == ["disk", "memory"]
    assert found[1].startswith("memory: retrieve needs about 28.7 GB, there are 20.0 GB.")
    gpu = UNIT.model_copy(update={"memory": 20e9, "device_memory": 8e9})
    found = memory_shortages(Forecast(marco, gpu))
    assert [text.split(",")[0] for text in found] == [
        "memory: retrieve needs about 28.3 GB",
        "device memory: retrieve needs about 17.3 GB",
        "device memory: train needs about 8.8 GB",
    ]
    large = UNIT.model_copy(update={"memory": 1e12, "device_memory": 1e11})
    assert memory_shortages(Forecast(marco, large)) == []


def test_a_measurement_that_is_not_usable_stops_no_workflow(marco, monkeypatch):
    monkeypatch.setattr("glob.glob", lambda pattern: [])
    Path("results").mkdir()
    Path("results/hardware.json").write_text('{"source": "an older version"}')
    (text,) = shortages(marco)
    assert text.startswith("results/hardware.json: hardware line 'this-machine', encode_flop: Field required. ")
    for torn, said in (
        (b'{"source": "x', ", line 1: not YAML"),
        (b"\xff", ", line 1: not YAML"),
        (b"", ": the file is empty"),
    ):
        Path("results/hardware.json").write_bytes(torn)
        (text,) = shortages(marco)
        assert text.startswith(f"results/hardware.json{said}")


def test_what_is_left_of_a_run(marco, monkeypatch):
    """The stages that are to be made, also finished ones; nothing where nobody knows the GPUs of the machine."""
    monkeypatch.setattr("glob.glob", lambda pattern: [])
    train = next(name for name in marco.stages if name.startswith("train/"))
    left = left_of_run(marco, {train, "train/of-another"}, 1, {"cores": 3})
    assert left.jobs.keys() == {train} and left.room["cores"] == 3
    assert left.seconds({}, {}) == Forecast(marco, read_hardware()[1]).stages[train].seconds
    monkeypatch.setattr("glob.glob", lambda pattern: ["/dev/nvidia0"])
    assert left_of_run(marco, {train}, 1, {}) is None


def finish(stage, facts, wall_seconds, files=(), made=None):
    """A manifest as a finished stage leaves it."""
    folder = Path("results/stages") / stage.name
    folder.mkdir(parents=True)
    for name, array in files:
        np.save(folder / name, array)
    paths = {name: folder / name for name, _ in files}
    listed = {name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)} for name, path in paths.items()}
    made = {"wall_seconds": wall_seconds, "peak_memory_bytes": 123_000_000} | (made or {})
    manifest = {"kind": stage.kind, "key": stage.key, "facts": facts, "files": listed, "provenance": made}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_what_is_built_is_measured_and_not_forecast(marco):
    splits = {"train": {"queries": 3, "positives": 5}, "dev": {"queries": 2, "positives": 2}}
    finish(marco.collection, {"num_passages": 4, "splits": splits}, 7.5)
    tokens = next(stage for stage in marco.stages.values() if stage.kind == "tokens")
    offsets = np.cumsum([0, 8, 8, 8, 1000])  # 10, 10, 10 and, cut, 128 tokens as encoded
    queries = [(f"queries.{split}.offsets.npy", np.arange(n + 1) * 5) for split, n in (("train", 3), ("dev", 2))]
    encode = next(stage for stage in marco.stages.values() if stage.kind == "encode")
    finish(encode, {"earlier_seconds": 30.0}, 5.0)  # of shards or killed runs
    finish(tokens, {"passages": {"mean": 256.0}}, 2.5, [("passages.offsets.npy", offsets), *queries])
    counts = Counts(marco)
    assert (counts.passages, counts.queries, counts.positives["train"]) == (4, {"train": 3, "dev": 2}, 5)
    assert counts.tokens_per_text(tokens, "passages", 128) == (10 + 10 + 10 + 128) / 4
    assert counts.chunks_per_passage(tokens, 10, 4) == (1 + 1 + 1 + 4) / 4
    assert counts.chunks_per_passage(tokens, 9, 200) == (2 + 2 + 2 + 112) / 4
    lines = lines_of(marco)
    assert (lines["total"].done, total("took", lines["total"].stages)) == (3, 45.0)
    collected, tokenised = lines["collection"], lines["tokens"]
    assert total("memory", collected.stages) == 123_000_000 and not collected.left and not tokenised.left
    assert total("bytes", tokenised.stages) == 3 * 128 + (5 + 4 + 3) * 8
    assert tokenised.forecast_of_done == total("seconds", tokenised.stages) > 0


def test_vectors_that_are_gone_take_no_room_and_those_that_will_go_make_some(marco):
    plan = make_plan(keep_vectors="none")
    encode = next(stage for stage in plan.stages.values() if stage.kind == "encode")
    before = Forecast(plan, UNIT).bytes_to_come
    finish(encode, {}, 5.0, [("passages.npy", np.zeros(1000))])
    size = 1000 * 8 + 128

    def disk_of_encode():
        line = lines_of(plan)["encode"]
        return total("bytes", line.stages) - total("bytes", line.left)

    there = Forecast(plan, UNIT).bytes_to_come
    assert disk_of_encode() == size and there <= before - size
    Artefact(Path("results/stages") / encode.name).delete_files()
    gone = Forecast(plan, UNIT).bytes_to_come
    assert disk_of_encode() == 0 and gone == there + size  # nothing of it is left to go


def test_every_hardware_line_is_complete_and_says_where_it_is_from():
    for name in yaml.safe_load(LINES.read_text()):
        assert read_hardware(name, measured="nowhere")[1].source
    lines = {name: read_hardware(name, measured="nowhere")[1] for name in ("a100", "h200")}
    assert all("estimate" in line.source for line in lines.values())


def test_the_measured_line_of_this_machine_is_the_default(tmp_path):
    measured = tmp_path / "hardware.json"
    assert read_hardware(measured=measured)[0] == next(iter(yaml.safe_load(LINES.read_text())))
    measured.write_text(UNIT.model_dump_json())
    assert read_hardware(measured=measured) == (THIS, UNIT)
    assert read_hardware("h200", measured=measured)[0] == "h200"


def test_an_unknown_or_incomplete_line_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no hardware line 'abacus'.*h200"):
        read_hardware("abacus", measured="nowhere")
    (tmp_path / "lines.yaml").write_text("mine: {source: me, encode_flop: 0}")
    with pytest.raises(
        ValueError, match="lines.yaml: hardware line 'mine', encode_flop: Input should be greater than 0"
    ):
        read_hardware("mine", measured="nowhere", lines=tmp_path / "lines.yaml")


def test_the_command_prints_the_forecast_and_strict_fails_on_a_warning(marco, tmp_path):
    (tmp_path / "marco.yaml").write_text(MARCO)
    small = yaml.safe_load(LINES.read_text())["h200"] | {"device_memory": 1e9}
    (tmp_path / "results").mkdir(exist_ok=True)
    (tmp_path / "results/hardware.json").write_text(json.dumps(small))

    def run(*arguments):
        command = [sys.executable, REPOSITORY / "workflow_scripts/manage.py", "forecast", "marco.yaml", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    relaxed = run("--gpus", "3", "--cores", "24", "--memory", "64")
    assert relaxed.returncode == 0, relaxed.stderr
    first, second = relaxed.stdout.splitlines()[:2]
    assert first == "collection: 8,841,823 passages; queries: 502,939 train, 6,980 dev (from `counts` of the"
    assert second == "    configuration)" and max(map(len, relaxed.stdout.splitlines())) <= 100
    assert re.search(r"wall clock: .* on 24 cores \(.*\), 3 GPUs \(.*\), 64 GB of memory", relaxed.stdout)
    assert "hardware: this-machine" in relaxed.stdout
    assert "warning: device memory: train needs about" in relaxed.stdout
    encode = next(line for line in relaxed.stdout.splitlines() if line.startswith("encode "))
    assert encode.split()[1:4] == ["4", "0", "114.9"]
    assert "argument --gpus: '0' is no whole number from 1 on" in run("--gpus", "0").stderr
    missing = run("--hardware", "abacus")
    assert missing.returncode == 1 and missing.stderr.startswith("error: there is no hardware line 'abacus'")


def test_paper_scale_configurations_can_be_forecast_without_their_data():
    """Whatever configuration of the repository has counts states them; MS MARCO's are the published ones."""
    counts = yaml.safe_load((REPOSITORY / "config/marco.yaml").read_text())["counts"]
    assert counts["passages"] == 8_841_823 and counts["queries"]["train"] == 502_939


def test_smaller_batches_at_once_need_less_memory_and_a_second_forward_pass_more_work(marco, monkeypatch):
    """A step of 8 x (9 + 32 x 76) tokens: halves of it; chunks of 16,384 tokens; and those of the halves (9,764)."""
    monkeypatch.setitem(TOKEN_BUDGET["train"], "cuda", 16384)
    used = {"accumulate": 2}, {"gradient_caching": True}, {"accumulate": 2, "gradient_caching": True}
    plain, *others = (costs(make_plan(training=changes), "train")[0] for changes in ({}, *used))
    states = 18 * 108_891_648  # weights, gradients and moments of BERT-base
    kept = [(cost.device_memory - states) / (plain.device_memory - states) for cost in others]
    tokens = 8 * (9 + 32 * 76)
    assert kept == pytest.approx([1 / 2, 16384 / tokens, 1 / 2], rel=1e-3)
    work = [cost.work["train_flop"] / plain.work["train_flop"] for cost in others]
    assert work == pytest.approx([1, 4 / 3, 4 / 3])


def test_without_a_gpu_each_thread_has_a_batch_or_the_gradients_of_a_part_in_memory(marco):
    def memory(**changes):
        lines = lines_of(marco, UNIT.model_copy(update=changes)).values()
        return {line.kind: total("memory", line.stages) for line in lines}

    one, three, sixteen = (memory(cores=cores) for cores in (1, 3, 16))
    assert three["encode"] - one["encode"] == pytest.approx(2 * 64 * 4096 * 768)
    assert three["train"] - one["train"] == pytest.approx(2 * 4 * 12 * 12 * 768**2)
    assert sixteen["encode"] - one["encode"] == pytest.approx(7 * 64 * 4096 * 768)  # a stage has eight threads at most
    assert three["merge"] == one["merge"]
    assert three["lexical_index"] - one["lexical_index"] == pytest.approx(3 * 0.25e9)  # processes that count terms
    on_gpus = [memory(cores=cores, device_memory=1e12) | {"lexical_index": 0} for cores in (16, 1)]
    assert on_gpus[0] == on_gpus[1]


def test_looking_for_answers_reads_whole_row_groups_and_takes_as_many_processes_as_threads():
    counts = SimpleNamespace(passages=2**20, corpus_tokens=2**20 * 100)
    again, group = collection_costs.READ_AGAIN, collection_costs.row_group(counts)
    one, few = collection_costs.looking_for_answers(1, counts)
    many, memory = collection_costs.looking_for_answers(4 * 2**20, counts, threads=2)
    assert one["texts"] == pytest.approx(again * group, rel=0.1) and many["texts"] == pytest.approx(again * 2**20)
    assert memory - few == 2 * collection_costs.PROCESS_MEMORY
    assert 2**20 < many["answers"] < 2 * 2**20  # of each some further questions


@pytest.mark.parametrize("module", ["teleport.search.distil", "teleport.distilled.teach"])
def test_a_kind_without_a_function_of_its_cost_is_said_not_to_be_counted(marco, monkeypatch, module):
    """Whether its package has costs of others or none at all."""
    stage = next(iter(marco.stages.values()))
    monkeypatch.setitem(KINDS, "teach", Kind(module))
    cost = stage_cost(SimpleNamespace(kind="teach", settings=stage.settings), Counts(marco))
    assert cost.lacks == "teach, of which there is no estimate"


def test_batches_are_as_large_as_those_of_the_stages():
    assert answers.PASSAGES == collection_costs.PASSAGES
    assert (flat.MARGIN, flat.CANDIDATES) == (search_costs.MARGIN, search_costs.CANDIDATES)
    assert (int8.QUERIES, int8.WIDTH) == (search_costs.INT8_LINES, search_costs.INT8_WIDTH)
    assert int8.NEAR == search_costs.INT8_NEAR
    assert search_costs.workspace(768) == flat_torch.workspace(768)
    assert (lexical_index.BLOCK_GROUPS, lexical_index.LEAST_GROUPS) == (
        search_costs.LEXICAL_GROUPS,
        search_costs.LEAST_GROUPS,
    )
    assert approximate.TRAIN_PER_LIST == search_costs.TRAIN_PER_LIST
    assert tokens.CHUNK_TEXTS == encoder_costs.TOKENISED
    assert build.ROW_GROUP == collection_costs.ROW_GROUP
    assert build.ROW_GROUP_CHARACTERS == collection_costs.ROW_GROUP_CHARACTERS
    assert (errors.BLOCK_PAIRS, errors.BLOCK_ROWS) == (search_costs.ERROR_PAIRS, search_costs.ERROR_ROWS)


def test_a_dev_set_costs_a_forward_pass_of_its_texts_at_every_evaluation(marco):
    """Of 8 queries and 8 x 32 passages a step; 100 and 400 texts before it, every 400th of 1,000 steps, and after."""
    plain, watched = (
        costs(make_plan(training={"epochs": None, "steps": 1000} | changes), "train")[0]
        for changes in ({}, {"evaluate_every": 400, "select": "dev", "dev": {"split": "train"}})
    )
    a_passage = 76 / 9  # in texts of a query's length: attention hardly counts at these lengths
    step, evaluation = 3 * (8 + 256 * a_passage), 100 + 400 * a_passage
    more = watched.work["train_flop"] / plain.work["train_flop"] - 1
    assert more == pytest.approx(4 * evaluation / (1000 * step), rel=0.02) and more < 0.01
    assert watched.scratch - plain.scratch == 2 * 4 * 108_891_648


def test_the_state_that_is_written_while_training_goes_on_is_in_memory(marco):
    """Weights and two moments, also beside a GPU, and of one process alone; with `select: dev` the best weights too."""
    (kept,), weights = costs(make_plan(episodes=[{}]), "train"), 4 * 108_891_648
    assert kept.memory == pytest.approx(TORCH_BASE + (1 + 3) * weights)
    watched = {"evaluate_every": 400, "select": "dev", "dev": {"split": "train"}}
    assert costs(make_plan(episodes=[{}], training=watched), "train")[0].memory - kept.memory == weights
    untied = make_plan(episodes=[{}], encoder={"tied": False})
    assert costs(untied, "train")[0].memory == pytest.approx(TORCH_BASE + (2 + 6) * weights)
    (stage,) = (stage for stage in untied.stages.values() if stage.kind == "train")
    eight = stage_cost(stage, Counts(untied), Place(gpus=8)).memory
    assert eight == pytest.approx(8 * (TORCH_BASE + 2 * weights) + 6 * weights)


def test_a_pool_is_as_large_as_its_counts_and_costs_what_its_sources_offer(marco):
    """Lists of 200 of the query, of BM25 and, here unread, of a file; twice the random ones; the last pool whole."""
    Path("file.jsonl").write_text("{}\n")
    counts = {"query": 10, "momentum": 5, "bm25": 3, "random": 2, "file": 4}
    negatives = {"counts": counts, "file": {"path": "file.jsonl"}}
    plan = make_plan(negatives=negatives)
    assert [cost.bytes for cost in costs(plan, "merge")] == [502_939 * (size * 14 + 8) for size in (19, 24, 24)]
    candidates = 502_939 * (2 * 200.5 + 100.5 + 2 * 2)
    momentum = [0, 19 * 502_939, 24 * 502_939]
    assert [cost.work["merge_rows"] for cost in costs(plan, "merge")] == [candidates + n for n in momentum]
    dev, train = (costs(plan, "bm25")[n] for n in (1, 0))
    (index,) = costs(plan, "lexical_index")
    assert index.work["bm25_tokens"] == 8_841_823 * 74 and index.memory < 4e9 < train.memory + index.memory
    assert train.bytes == 502_939 * (200 * 8 + 4) and dev.bytes == 6_980 * (1000 * 8 + 4)
    assert train.work["bm25_scores"] == 502_939 * 8_841_823
    assert costs(plan, "negatives_file")[0].bytes == 502_939 * (100 * 8 + 4)
    plain = costs(plan, "merge")[0]
    filtered = costs(make_plan(negatives=negatives | {"filters": {"relative_margin": 0.05}}), "merge")[0]
    assert filtered.work["rescored"] == candidates * 768 and "rescored" not in plain.work
    assert filtered.memory - plain.memory == (8_841_823 + 502_939) * 768 * 4


def test_a_frozen_side_is_neither_encoded_nor_trained(marco):
    adore = {"training": {"start_from": "previous", "trains": ["query"]}}
    plan = make_plan(episodes=[{}, adore], encoder={"tied": False})
    assert [cost.bytes for cost in costs(plan, "encode")][-1] == 509_919 * 768 * 4
    both, query = costs(plan, "train")
    assert query.work["train_flop"] == pytest.approx(188_602 * 8 * 3 * forward_flop(Shape(), 9), rel=1e-5)
    assert query.bytes == both.bytes > 2 * 4 * 108_891_648 and query.scratch == both.scratch / 2
    assert query.device_memory < 0.6 * both.device_memory
    tied = costs(make_plan(episodes=[{}, adore]), "train")[1]
    assert tied == query  # what was one encoder is two from here on


def test_a_training_without_own_negatives_has_one_passage_a_query(marco):
    plan = make_plan(training={"negatives_per_query": 0, "steps": 100, "epochs": None}, episodes=[{}])
    assert not costs(plan, "merge")
    assert costs(plan, "train")[0].work["train_flop"] == 100 * step_flop(Shape(), 8, 8, 9, 76)


def test_segments_share_a_schedule_and_hand_on_two_moments(marco):
    training = {"continues": True, "start_from": "previous", "epochs": None, "steps": 2500, "stop_after_steps": 1000}
    found = costs(make_plan(training=training, episodes=[{"repeat": 3}]), "train")
    step = step_flop(Shape(), 8, 256, 9, 76)
    assert [cost.work["train_flop"] / step for cost in found] == [1000, 1000, 500]
    assert [cost.bytes // (4 * 108_891_648) for cost in found] == [3, 3, 3]


def test_looking_for_answers_reads_each_retrieved_passage_once(marco):
    """MS MARCO's 200 neighbours of each question are all passages; a hundredth of the questions has a few of them."""
    plan = make_plan(collection={"positives": "answers"}, negatives={"remove": "answers"})
    pairs = 502_939 * 200
    found = [cost.work["answers"] for cost in costs(plan, "positives")]
    work = 8_841_823 + 0.25 * (pairs - 8_841_823)
    assert found == pytest.approx([work] * 3, rel=1e-4)
    assert costs(plan, "positives")[0].bytes == 502_939 * 12
    merges = [cost.work["answers"] for cost in costs(plan, "merge")]
    assert merges == pytest.approx([2 * work] * 3, rel=1e-2), "query and lookahead"
    assert not any("answers" in cost.work for cost in costs(make_plan(), "merge"))
    counts = yaml.safe_load(MARCO)["counts"] | {"queries": {"train": 5_029, "dev": 6_980}}
    few = costs(make_plan(collection={"positives": "answers"}, counts=counts), "positives")[0].work["answers"]
    assert 0.9 * 5_029 * 200 < few < 5_029 * 200


def downloading(tmp_path, **changes):
    """A plan whose passages of 4,000 bytes and questions of unknown size have to be fetched."""
    files = {"corpus.tsv": {"mirrors": ["https://nowhere/corpus.tsv"], "bytes": 4000}}
    files |= {name: {"mirrors": [f"https://nowhere/{name}"]} for name in ("q.tsv", "r.tsv")}
    splits = {split: {"queries": "q.tsv", "qrels": "r.tsv"} for split in ("train", "dev")}
    raw = yaml.safe_load(MARCO)
    collection = {"source": "downloads", "files": files, "corpus": {"file": "corpus.tsv"}, "splits": splits}
    raw["counts"] |= changes.pop("counts", {})
    return Plan(*config.load(raw | {"collection": collection | changes}))


def test_what_is_downloaded_comes_at_the_rate_of_the_network(marco, tmp_path):
    slow = UNIT.model_copy(update={"network": 10.0, "disk": 1000.0})
    (cost,) = costs(plan := downloading(tmp_path), "download")
    assert cost.bytes == 4000 and slow.seconds(cost) == 400 + 4
    assert lacking(plan) == {"q.tsv, r.tsv, because their sizes are unknown (counts.download_bytes)"}
    plan = downloading(tmp_path, counts={"download_bytes": 5000})
    assert costs(plan, "download")[0].bytes == 5000 and not lacking(plan)
    for name, size in {"corpus.tsv": 4000, "q.tsv": 300}.items():
        path = tmp_path / "data/downloads" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    (cost,) = costs(plan, "download")
    assert (cost.bytes, cost.work) == (700, {"network": 700, "disk": 4300})
    (cost,) = costs(downloading(tmp_path, local="data/downloads"), "download")
    assert (cost.bytes, cost.work) == (0, {"network": 0, "disk": 4300})
    assert read_hardware("h200", measured="nowhere")[1].network == 100e6 / 8


def test_weights_that_are_not_in_the_hubs_cache_are_downloaded(marco, monkeypatch):
    (cost,) = costs(marco, "pretrained")
    assert cost.work == {"network": 4 * 108_891_648}
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda hub, name, revision: f"/there/{name}")
    assert costs(make_plan(), "pretrained")[0].work == {"network": 0}


LIVE_TRAINING = {
    "loss": {"kind": "lambda", "metric_cut": 200},
    "trains": ["query"],
    "negatives_per_query": 0,
    "batch_queries": 32,
}


def live_plan(live, **training):
    """ADORE on MS MARCO for 1,000 steps of 32 queries."""
    steps = {"steps": 1000, "epochs": None, "start_from": "previous"}
    adore = {"negatives": {"live": live}, "training": LIVE_TRAINING | steps | training}
    return make_plan(episodes=[{}, adore])


def test_a_live_search_reads_all_passages_at_every_step(marco):
    """A pass costs a GPU no less than 70 queries; vectors are in memory, and once more on the device, in fp16."""
    adore, frozen = (
        live_plan({}),
        make_plan(episodes=[{}, {"training": {"trains": ["query"], "start_from": "previous"}}]),
    )
    cost = costs(adore, "train")[1]
    assert cost.work["search_flop"] == 1000 * 2 * 70 * 8_841_823 * 768
    assert costs(live_plan({}, batch_queries=256), "train")[1].work["search_flop"] == 1000 * 2 * 256 * 8_841_823 * 768
    two = costs(live_plan({}, accumulate=2), "train")[1]
    assert two.work["search_flop"] == 2 * cost.work["search_flop"] and two.work["train_flop"] == cost.work["train_flop"]
    vectors = 8_841_823 * 768 * 4
    assert cost.memory - costs(frozen, "train")[1].memory == vectors and cost.device_memory > vectors / 2
    assert "search_flop" not in costs(adore, "train")[0].work


def test_a_live_search_of_pq_codes_is_a_flat_one_on_a_gpu_and_one_by_codes_without(marco):
    """A GPU has their vectors, decoded once; a processor adds up numbers of a table."""
    plan, flat = live_plan({"index": {"kind": "pq", "m": 48}}), costs(live_plan({}), "train")[1]
    assert sorted({cost.bytes for cost in costs(plan, "index")}) == [0, 8_841_823 * 48]
    cost, train = costs(plan, "train")[1], of_kind(plan, "train")[1]
    assert cost.work == flat.work | {"rescored": flat.work["rescored"] + 8_841_823 * 768}
    assert cost.device_memory == flat.device_memory and cost.memory == flat.memory + 8_841_823 * 48
    cost = stage_cost(train, Counts(plan), Place(8, 0))
    assert cost.work["rescored"] == 1000 * 32 * (8_841_823 * 48 + 200 * 768) and "search_flop" not in cost.work


def test_by_codes_a_search_takes_the_processor(marco):
    searched = make_plan(search_index={"kind": "pq", "m": 24})
    assert not lacking(searched)
    index = next(cost for cost in costs(searched, "index") if "host_flop" in cost.work)
    compared = 8_841_823 + 25 * 256 * 256  # k-means compares 256 vectors a centroid, 25 times
    assert index.work["host_flop"] == 2 * compared * 256 * 768
    graph = make_plan(mining={"index": {"kind": "hnsw"}})
    assert lacking(graph) == {"linking the passages of hnsw indexes"}
    dev = [s for s in searched.stages.values() if s.kind == "retrieve" and s.settings.scores == "compressed"]
    found = stage_cost(dev[0], Counts(searched))
    assert len(dev) == 4 and found.work["rescored"] == 6_980 * 8_841_823 * 24
    assert found.memory < 1.5e9 and found.device_memory == 0


def test_the_forecast_says_what_live_search_costs(marco):
    plan = live_plan({})
    (sentence,) = live_search(Forecast(plan, UNIT))
    flop, scored = 2 * 70 * 8_841_823 * 768, 32 * (232 + 200) * 768
    each = 1e3 * (flop + scored) / 1e12 + 8_841_823 * 768 * 4 / 1e12
    assert f"live search takes {each / 60:.0f} min of " in sentence and f"{each:.1f} of " in sentence
    assert live_search(Forecast(make_plan(), UNIT)) == []


def test_a_step_of_adore_is_no_faster_than_its_operations_are_handed_out(marco):
    """Encoding 32 queries of 9 tokens takes an H200 0.4 ms; 12 layers of 61 operations, 42 others, 60 of the update."""
    plan, (_, hardware) = live_plan({}), read_hardware("h200", measured="nowhere")
    cost = costs(plan, "train")[1]
    assert cost.work["launches"] == 1000 * (12 * 61 + 42 + 60) and cost.work["listed"] == 1000 * 32 * 200
    assert 0.015 < hardware.seconds(cost, 1) / 1000 - 0.009 - 0.012 < 0.020, "without reading the vectors, and loading"
    pool = costs(marco, "train")[0]
    bound = hardware.model_copy(update={"launches": 1e12}).seconds(pool, 1)
    assert hardware.seconds(pool, 1) == pytest.approx(bound), "256 passages keep the GPU busy"


def test_reranking_and_analyses_have_estimates(marco):
    asked = {"errors": "dev", "against": {"run": "BM25"}, "negatives": True, "forgetting": True}
    plan = make_plan(evaluation={"rerank": {"dev": {"bm25": 1000}}, "analyses": asked})
    (rerank, *others) = costs(plan, "rerank")
    assert len(others) == 3 and rerank.work["rescored"] == 6_980 * 1000 * 768
    (errors, *_) = costs(plan, "errors")
    assert errors.work["host_flop"] == 2 * 6_980 * 8_841_823 * 768 and errors.bytes == 6_980 * 24
    assert errors.work["looked"] == pytest.approx(6_980 * 540) and errors.device_memory == 0
    _, hardware = read_hardware("h200", measured="nowhere")
    assert hardware.seconds(errors, 1) == hardware.seconds(errors, 0) > 200, "20 hours for 279 of them, not 2"
    (overlap, *_) = costs(plan, "negatives_overlap")
    assert overlap.work["merge_rows"] == 502_939 * (200 + 60)
    (forgetting, *_) = costs(plan, "forgetting")
    assert forgetting.work["run_rows"] == 2 * 502_939 * 200
    assert all(cost is not None for kind in ("contrast", "evaluate") for cost in costs(plan, kind))


def test_runs_without_an_encoder_have_a_forecast(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("qrels.txt", "a.run"):
        (tmp_path / name).touch()
    raw = {"collection": {"source": "judgments", "splits": {"dev": {"qrels": "qrels.txt"}}}}
    raw |= {"external": {"a": {"runs": {"dev": "a.run"}}}, "counts": {"passages": 9000, "queries": {"dev": 43}}}
    raw["evaluation"] = {"splits": ["dev"], "significance": {"baseline": "a"}}
    plan = Plan(*config.load(raw))
    assert list(lines_of(plan)) == ["collection", "evaluate", "external", "total"] and not lacking(plan)
