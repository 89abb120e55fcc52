"""The forecast: sizes follow from counts, done stages show what they measured, and too small machines are named."""

import json
from argparse import ArgumentTypeError
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml

from commands.arguments import gpus_of_training
from commands.forecast.counts import Counts, encoder_shape, own_width
from commands.forecast.forecast import Forecast, stage_cost, total
from commands.forecast.hardware import LINES, Hardware, read_hardware
from commands.forecast.printed import cost_sentence, disk_shortage, memory_shortages, print_forecast, render, shortages
from teleport.costs import Cost, Place
from teleport.encoder.costs import sharded
from teleport.encoder.shape import Shape
from teleport.plan.kinds import KINDS, Kind
from teleport.plan.plan import Plan
from teleport.plan.stage import Stage
from teleport.refusal import Refusal
from teleport.running.artefact import Artefact
from teleport.running.files import sha256_file
from teleport.settings import read as config
from teleport.settings.encoder import PretrainedSettings
from teleport.settings.section import NoSettings
from teleport.training.costs import UPDATE_FLOP, train_steps

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
    [
        "encode_flop",
        "train_flop",
        "search_flop",
        "host_flop",
        "texts",
        "tokens",
        "rows",
        "bm25_tokens",
        "bm25_scores",
        "disk",
    ],
    1e12,
)
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


def of_kind(forecast, kind):
    return forecast.by_kind[kind]


def test_counts_enter_no_key(marco):
    assert marco.stages.keys() == make_plan(counts=None).stages.keys()
    assert marco.stages.keys() == make_plan(counts={"passages": 7, "queries": {"dev": 1}}).stages.keys()


def test_sizes_of_marco_follow_from_its_counts(marco):
    texts = {"passages": 8_841_823, "queries.train": 502_939, "queries.dev": 6_980}
    encoded = Counter(cost.bytes for cost in costs(marco, "encode"))
    assert encoded == {number * 768 * 4: 4 for number in texts.values()}
    searched = [(s.settings.split, stage_cost(s, Counts(marco)).bytes) for s in marco.stages.values()
                if s.kind == "retrieve"]  # fmt: skip
    assert Counter(searched) == {("train", 502_939 * (200 * 8 + 4)): 6, ("dev", 6_980 * (1000 * 8 + 4)): 4}
    assert [cost.bytes for cost in costs(marco, "merge")] == [502_939 * (60 * 15 + 8)] * 3
    steps = 20_000, 20_000, 188_601  # each has a line of losses.tsv; a checkpoint has its tokenizer's files
    assert [cost.bytes for cost in costs(marco, "train")] == [4 * 108_891_648 + 950_000 + 150 * n for n in steps]
    sizes = {2 * number * (74 if of == "passages" else 7) + 8 * (number + 1) for of, number in texts.items()}
    assert {cost.bytes for cost in costs(marco, "tokens")} == sizes


def test_what_a_stage_maps_is_in_no_memory_that_it_needs(marco):
    """Token ids and vectors of an encoding: clean pages of files, which the system takes back."""
    tokens, encode = (max(costs(marco, kind), key=lambda cost: cost.bytes) for kind in ("tokens", "encode"))
    assert encode.mapped == tokens.bytes + encode.bytes and encode.memory < 2e9 < 25e9 < encode.mapped
    shard, join = sharded(encode, 4)
    assert (shard.mapped, shard.bytes, join.bytes) == (encode.mapped / 4, encode.bytes / 4, 0)
    (index, *_), retrieve = costs(marco, "index"), costs(marco, "retrieve")[0]
    assert index.mapped == 8_841_823 * 768 * 4 < retrieve.memory


def test_work_of_marco_is_that_of_the_papers_table(marco):
    step = 10.115222962176e12 + UPDATE_FLOP * 108_891_648
    steps = [cost.work["train_flop"] / step for cost in costs(marco, "train")]
    assert steps == pytest.approx([20000, 20000, 188_601])
    queries = 2 * 502_939 * 8_841_823 * 768
    assert sum(cost.work["search_flop"] for cost in costs(marco, "retrieve")) == pytest.approx(
        6 * queries + 4 * 2 * 6_980 * 8_841_823 * 768
    )


def test_a_last_pool_costs_a_search_for_answers_only_if_it_may_have_some(marco):
    def looked_for(first):
        episodes = [{"negatives": {"remove": remove}} for remove in (first, "answers", "answers")]
        return [cost.work.get("answers", 0) for cost in costs(make_plan(episodes=episodes), "merge")]

    before, always = looked_for("judged"), looked_for("answers")
    assert before[0] == 0 and before[1] > 1.05 * always[1] > 0 and before[2] == always[2]


def test_a_collection_of_unknown_size_is_an_error_with_its_remedy(marco):
    with pytest.raises(ValueError, match=r"corpus/\w+ is not built.*`counts"):
        Counts(make_plan(counts=None))


def test_the_memory_of_a_search_counts_its_index(marco):
    """faiss holds the vectors of an IVF index in memory, in float32, with the lists."""
    memory = {}
    for index in ("Flat", "IVF4096,Flat nprobe=64", "PQ96"):
        changes = {"encoder": {"vectors": "fp16"}, "mining": {"index": index}}
        raw = config.merged(yaml.safe_load(MARCO), changes)
        plan = Plan(*config.load(raw, []))
        searches = [stage for stage in plan.stages.values() if stage.kind == "retrieve"]
        search = next(each for each in searches if (each.settings.split, each.settings.of) == ("train", "queries"))
        memory[index] = Forecast(plan, UNIT).stages[search.name].memory
    vectors = 8841823 * 768
    assert memory["IVF4096,Flat nprobe=64"] - memory["Flat"] == pytest.approx(2 * vectors + 8 * 8841823, rel=0.02)


def test_the_memory_of_bm25_is_what_two_processes_took(marco):
    """1.23 GB at these counts (docs/speed.md)."""
    plan = make_plan(bm25={})
    (stage,) = (stage for stage in plan.stages.values() if stage.kind == "bm25" and stage.settings.split == "dev")
    assert stage_cost(stage, Counts(plan), Place(threads=2, gpus=0)).memory == pytest.approx(1.23e9, rel=0.25)


def test_bm25_over_subwords_alone_can_be_forecast(marco):
    raw = yaml.safe_load(MARCO) | {"bm25": {"terms": "subwords"}}
    for name in ("experiments", "episodes", "training", "negatives"):
        del raw[name]
    plan = Plan(*config.load(raw, []))
    assert shortages(plan) == [] and Forecast(plan, UNIT).stages


def test_seconds_add_up_and_gpus_share_what_they_compute():
    line = UNIT.model_copy(update={"encode_flop": 50.0, "disk": 20.0, "startup": 1.0, "load": 3.0})
    assert line.seconds(Cost(bytes=100.0, work={"encode_flop": 200.0}, model=True)) == 1 + 3 + 4 + 5
    assert line.seconds(Cost(work={"encode_flop": 200.0}), gpus=4) == 1 + 1
    assert line.seconds(Cost()) == 1
    assert line.seconds(Cost(work={"read": 40.0})) == 3
    assert line.model_copy(update={"read": 40.0}).seconds(Cost(work={"read": 40.0})) == 2


def test_wall_clock_is_the_critical_path_or_the_work_for_each_device(marco):
    line = UNIT.model_copy(update={"device_memory": 1e12, "startup": 10.0, "cores": 64})
    forecast = Forecast(marco, line)
    longest, path = forecast.critical_path
    chained = [name for name in path if not forecast.stages[name].done]
    assert longest == pytest.approx(sum(forecast.stages[name].seconds for name in chained)) and len(chained) > 10
    for name, after in zip(path, path[1:], strict=False):
        assert name in marco.stages[after].input_names.values()
    on_gpus = sum(forecast.stages[n].seconds for n in forecast.left if forecast.place(marco.stages[n]).gpus)
    assert forecast.wall_seconds == pytest.approx(max(longest, on_gpus)) and on_gpus > longest
    eight = Forecast(marco, line.model_copy(update={"gpus": 8}))
    assert eight.wall_seconds == pytest.approx(longest)
    two = Forecast(marco, line.model_copy(update={"gpus": 2}), shards={"encode": 8, "retrieve": 8})
    assert two.wall_seconds >= 0.99 * on_gpus / 2, "shards are not less work"


@pytest.mark.parametrize("given", ["encode:gpu=8", "retrieve:gpu=2", "train:mem_mb=8", "train:gpu=0", "train:gpu="])
def test_only_a_training_computes_on_several_gpus(given):
    assert gpus_of_training("train:gpu=8") == {"train": 8}
    with pytest.raises(ArgumentTypeError, match=given if "train:gpu" not in given else "at least 1"):
        gpus_of_training(given)


def test_a_training_takes_no_more_gpus_than_there_are(marco, monkeypatch, capsys):
    with pytest.raises(Refusal, match="4 GPUs, but a100 has 1. Add --gpus 4"):
        print_forecast(marco, "a100", {"train": 4})
    for gpus in (1, 4):
        print_forecast(marco, "a100", {"train": gpus}, machine={"gpus": 4})
    one, four = (line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("train "))
    assert float(four[4]) > float(one[4]) and float(four[5]) < float(one[5])  # memory of more processes, less of a GPU
    print_forecast(marco, "cpu-2-cores", {"train": 4})  # processes


def test_a_kind_without_estimate_is_listed_and_not_counted(marco, monkeypatch):
    monkeypatch.setitem(KINDS, "coverage", Kind("teleport.evaluation.names"))
    stage = Stage("coverage", NoSettings(), {"corpus": marco.corpus})
    marco.stages[stage.name] = stage
    forecast = Forecast(marco, UNIT)
    assert list(forecast.by_kind)[-1] == "coverage"
    row = next(text for text in render(forecast).splitlines() if text.startswith("coverage"))
    assert row.split() == ["coverage", "1", "0", "0.000", "0.150", "0", "s", "0", "s"]
    assert {each.cost.lacks for each in forecast.left.values()} == {"", "coverage (no estimate)"}


def module(name, path, kind="Transformer"):
    return {"idx": int(name), "name": name, "path": path, "type": f"sentence_transformers.models.{kind}"}


def test_the_encoder_is_read_from_a_local_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text(json.dumps({"hidden_size": 32, "num_hidden_layers": 2, "x": 1}))
    local = Stage("pretrained", PretrainedSettings(checkpoint={"folder": "bert"}), {})
    assert encoder_shape(local) == (Shape(hidden_size=32, num_hidden_layers=2), "bert/config.json")
    for layers in (0, 1):
        cut = Stage("pretrained", PretrainedSettings(checkpoint={"folder": "bert"}, layers=layers), {})
        assert encoder_shape(cut)[0] == Shape(hidden_size=32, num_hidden_layers=layers)
    sizes = {"model_type": "distilbert", "dim": 32, "n_layers": 2, "hidden_dim": 64, "n_heads": 2}
    (tmp_path / "bert/config.json").write_text(json.dumps(sizes))
    local = Stage("pretrained", PretrainedSettings(checkpoint={"folder": "bert"}), {})
    distilbert = Shape(2, 32, 64, num_attention_heads=2, type_vocab_size=0)
    assert encoder_shape(local) == (distilbert, "bert/config.json")
    (tmp_path / "bert/modules.json").write_text(json.dumps([module("0", ""), module("2", "2_Dense", "Dense")]))
    (tmp_path / "bert/2_Dense").mkdir()
    (tmp_path / "bert/2_Dense/config.json").write_text(json.dumps({"in_features": 32, "out_features": 12}))
    own_width.cache_clear()
    assert [own_width(each) for each in (local, cut)] == [12, None]
    elsewhere = Stage("pretrained", PretrainedSettings(checkpoint={"hub": "nobody/none", "revision": "0"}), {})
    assert encoder_shape(elsewhere) == (Shape(), "BERT-base, because the checkpoint is not local")


def test_too_little_disk_memory_and_gpu_memory_is_said(marco, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 50e9}))
    assert disk_shortage(50e9) == []
    (text,) = disk_shortage(51e9)
    assert text.startswith("disk: 51.0 GB are needed below results/stages, 50.0 GB are free. ")
    found = shortages(marco)
    assert found[0].startswith("disk: ")
    gpu = UNIT.model_copy(update={"memory": 20e9, "device_memory": 8e9})
    found = memory_shortages(Forecast(marco, gpu))
    assert [text.split(" needs")[0] for text in found] == [
        "memory: retrieve",
        "device memory: retrieve",
        "device memory: train",
    ]
    large = UNIT.model_copy(update={"memory": 1e12, "device_memory": 1e11})
    assert memory_shortages(Forecast(marco, large)) == []


def test_a_gpu_that_nobody_measured_has_no_hours(marco, monkeypatch, capsys):
    """Neither those of another machine, nor none at all: disk and memory are still told."""
    monkeypatch.setattr("glob.glob", lambda pattern: ["/dev/nvidia0"])
    with pytest.raises(Refusal, match="unmeasured: "):
        read_hardware()
    said = cost_sentence(marco, None, set(marco.stages))
    assert "is unmeasured: " in said and "GB of disk" in said and "cpu-2-cores" not in said
    print_forecast(marco)
    text = capsys.readouterr().out
    assert "hardware: unmeasured" in text and "wall clock" not in text and "cpu-2-cores" not in text
    row = next(line for line in text.splitlines() if line.startswith("train ")).split()
    assert row[-2:] == ["–", "–"] and float(row[5]) > 8
    print_forecast(marco, "h200")
    assert "wall clock: " in capsys.readouterr().out


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
    finish(marco.corpus, {"num_passages": 4}, 7.5)
    for split, queries, positives in (("train", 3, 5), ("dev", 2, 2)):
        finish(marco.split(split), {"queries": queries, "positives": positives}, 0.0)
    tokens = next(stage for stage in marco.stages.values() if stage.kind == "tokens")
    offsets = np.cumsum([0, 8, 8, 8, 1000])  # 10, 10, 10 and, cut, 128 tokens as encoded
    encode = next(stage for stage in marco.stages.values() if stage.kind == "encode")
    finish(encode, {"earlier_seconds": 30.0}, 5.0)  # of shards or killed runs
    finish(tokens, {"mean": 256.0}, 2.5, [("passages.offsets.npy", offsets)])
    counts = Counts(marco)
    assert (counts.passages, counts.queries, counts.positives["train"]) == (4, {"train": 3, "dev": 2}, 5)
    assert counts.tokens_per_text(tokens, "passages", 128) == (10 + 10 + 10 + 128) / 4
    assert counts.chunks_per_passage(tokens, 10, 4) == (1 + 1 + 1 + 4) / 4
    assert counts.chunks_per_passage(tokens, 9, 200) == (2 + 2 + 2 + 112) / 4
    forecast = Forecast(marco, UNIT)
    collected, tokenised = forecast.stages[marco.corpus.name], forecast.stages[tokens.name]
    assert sum(each.done for each in forecast.stages.values()) == 5 and total("took", forecast.stages.values()) == 45.0
    assert collected.memory == 123_000_000 and collected.done and tokenised.done
    assert tokenised.bytes == 128 + 5 * 8


def test_of_vectors_that_go_once_they_are_read_two_checkpoints_are_there(marco):
    plan = make_plan(keep_vectors="none")
    vectors = (8_841_823 + 502_939 + 6_980) * 768 * 4
    kept, gone = (Forecast(each, UNIT).bytes_to_come for each in (marco, plan))
    assert kept - gone == pytest.approx(2 * vectors)
    encode = next(stage for stage in plan.stages.values() if stage.kind == "encode")
    finish(encode, {}, 5.0, [("passages.npy", np.zeros(1000))])
    assert Forecast(plan, UNIT).stages[encode.name].bytes == 1000 * 8 + 128
    Artefact(Path("results/stages") / encode.name).delete_files()
    assert Forecast(plan, UNIT).stages[encode.name].bytes == 0


def test_every_hardware_line_is_complete_and_says_where_it_is_from():
    for name in yaml.safe_load(LINES.read_text()):
        assert read_hardware(name)[1].source
    with pytest.raises(Refusal, match="no hardware line 'nothing'"):
        read_hardware("nothing")


def test_a_segment_goes_on_where_the_one_before_ended(marco):
    training = {"continues": True, "start_from": "previous", "epochs": None, "steps": 100}
    plan = make_plan(training=training, episodes=[{"training": {"stop_after_steps": 30}}] * 2)
    trains = [stage for stage in plan.stages.values() if stage.kind == "train"]
    assert [train_steps(stage, Counts(plan)) for stage in trains] == [(0, 30), (30, 60)]
