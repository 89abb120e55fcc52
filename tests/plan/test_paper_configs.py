"""The configurations at the papers' scale: their plans need no data, and say what the papers and their code say."""

import re

import pytest
import yaml

from commands.forecast.forecast import Forecast, total
from commands.forecast.hardware import read_hardware
from commands.forecast.printed import memory_shortages, print_forecast
from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.report.published import planned_table, read_published, stages_behind, untrained
from teleport.report.rows import measured_tables, needs_training
from teleport.settings.read import load, load_files, merged

pytestmark = pytest.mark.usefixtures("nothing_here")

CONFIG = REPOSITORY / "config"
# ANCE-Tele Table 5 and Appendix C.2, N as in the released scripts: lengths, batch, rate, warm-up, epochs, N, stops.
TABLE_5 = {
    "marco": (32, 128, 8, 5e-6, 0.1, 3, [15, 31, 31], [20000, 20000, None]),
    "nq": (32, 156, 128, 5e-6, 0.1, 40, [3, 7, 11], [2000, 2000, None]),
    "triviaqa": (32, 156, 128, 5e-6, 0.1, 40, [3, 7, 11], [2000, 2000, None]),
}


def read(*names):
    return load_files([CONFIG / f"{name}.yaml" for name in names])


@pytest.mark.parametrize("name", TABLE_5)
def test_values_are_those_of_table_5_and_the_released_scripts(name):
    _, experiments = read(name)
    experiment = experiments["ance-tele"]
    training = [episode.training for episode in experiment.method]
    encoder, last = experiment.encoder, training[-1]
    found = (encoder.max_query_tokens, encoder.max_passage_tokens, last.batch_queries, last.learning_rate)
    found += (last.warmup_ratio, last.epochs, [t.negatives_per_query for t in training])
    assert (*found, [t.stop_after_steps for t in training]) == TABLE_5[name]
    assert (encoder.pooling, encoder.normalize, encoder.scale, encoder.title) == ("cls", False, 1.0, "sep")
    assert {t.start_from for t in training} == {"pretrained"} and experiment.mining.depth == 200
    assert experiment.negatives.mode == "released_code" and experiment.negatives.keep_duplicates
    is_qa = name != "marco"
    assert experiment.negatives.per_source == (80 if is_qa else 30)
    assert (encoder.tied, last.positive) == ((False, "first") if is_qa else (True, "rotate"))


@pytest.mark.parametrize("name", TABLE_5)
def test_three_seeds_share_the_stages_of_the_first(name):
    alone, three = (Plan(*read(name, *variant)) for variant in ([], ["variants/three-seeds"]))
    assert alone.stages.keys() <= three.stages.keys()
    assert [len(plan.trajectories["ance-tele"]) for plan in (alone, three)] == [1, 3]


def kinds_of(plan):
    """The kind of every stage (list); vectors of queries are apart."""
    of_queries = [stage.kind == "encode" and stage.settings.of != "passages" for stage in plan.stages.values()]
    return [stage.kind + " queries" * of for stage, of in zip(plan.stages.values(), of_queries, strict=True)]


@pytest.mark.parametrize("name", TABLE_5)
def test_the_plan_has_all_stages_and_one_download_before_them(name):
    plan = Plan(*read(name))
    kinds = kinds_of(plan)
    splits = len(plan.config.evaluation.splits)
    released = len(plan.config.external)
    assert kinds.count("train") == kinds.count("merge") == 3 and kinds.count("encode") == 4 + released
    assert kinds.count("evaluate") == (5 + released) * splits
    assert kinds.count("encode queries") == 4 * (1 + splits) + released * splits
    files = {file for stage in plan.stages.values() if stage.kind == "download" for file in stage.settings.files}
    assert files == set(plan.config.collection.files) and kinds.count("download") == len(files)
    downloads = [stage for stage in plan.stages.values() if stage.kind in ("corpus", "split")]
    assert all(any(role.startswith("download.") for role in stage.inputs) for stage in downloads) and len(downloads) > 2
    assert measured_tables(plan)


@pytest.mark.parametrize("name", TABLE_5)
def test_without_released_checkpoints_our_own_stages_stay_as_they_are(name):
    """`external: null` takes away the entries of the file before; the table compares BM25 and ours as before."""
    whole, own = Plan(*read(name)), Plan(*read(name, "variants/without-released"))
    assert own.config.external == {} and set(own.experiments) == set(whole.experiments) - set(whole.config.external)
    kinds = kinds_of(own)
    assert {name.split("/")[0] for name in set(own.stages) - set(whole.stages)} <= {"check"}
    assert kinds.count("encode") == 4 and kinds.count("pretrained") == 1


@pytest.mark.parametrize("name", TABLE_5)
def test_fewer_vectors_are_of_half_the_size_and_removed(name):
    plan = Plan(*read(name, "variants/fewer-vectors"))
    vectors = {stage.settings.vectors for stage in plan.stages.values() if stage.kind == "encode"}
    assert vectors == {"fp16", "fp32"} and plan.config.keep_vectors == "none" and plan.deleted_vectors
    assert all(plan.stages[name] in after for name, after in plan.deleted_vectors.items()), "made before it is deleted"


PAGES = "".join((REPOSITORY / page).read_text() for page in ("README.md", "docs/gpu.md"))
ROWS = re.findall(r"^\| `(config/[^`]*)` \| (.*) \|$", PAGES, re.MULTILINE)


@pytest.mark.parametrize(("files", "cells"), ROWS, ids=[files for files, _ in ROWS])
def test_the_pages_have_the_figures_of_the_forecast(files, cells, capsys):
    """Of one GPU and 16 cores, with nothing done: downloads, disk, GPU memory, memory, hours on an H200 and an A100."""
    said = {}
    for device in ("h200", "a100"):
        print_forecast(Plan.of_files([REPOSITORY / name for name in files.split()]), device)
        said[device] = " ".join(capsys.readouterr().out.split())
    download = re.search(r"download \d+ 0 (\S+)", said["h200"])[1]
    disk, memory, device_memory = re.search(r"total \d+ 0 (\S+) (\S+) (\S+)", said["h200"]).groups()
    if kept := re.search(r"at most about (\S+) GB more", said["h200"]):
        disk = kept[1]
    clocks = [re.search(r"wall clock: (?:(\d+) h )?(\d+) min", text).groups("0") for text in said.values()]
    sizes = [f"{float(download)} GB", f"{float(disk):.0f} GB", f"{device_memory} GB", f"{float(memory):.0f} GB"]
    assert cells.split(" | ") == [*sizes, *(f"{hours}:{minutes}" for hours, minutes in clocks)]


def training_warnings(config, experiments, device="h200"):
    """What `teleport forecast` says of a device's memory for training, and the largest training in GB."""
    _, hardware = read_hardware(device)
    forecast = Forecast(Plan(config, experiments), hardware)
    warned = [text for text in memory_shortages(forecast) if "memory: train" in text]
    return warned, total("device_memory", forecast.by_kind["train"]) / 1e9


@pytest.mark.parametrize("name", TABLE_5)
def test_every_training_fits_a_gpu_of_24_gb(name):
    warned, needed = training_warnings(*read(name))
    assert warned == [] and 8 < needed < 24


def test_the_remedies_for_a_training_that_does_not_fit_begin_with_those_that_change_nothing():
    file = CONFIG / "nq.yaml"
    raw = merged(yaml.safe_load(file.read_text()), {"training": {"gradient_caching": False}})
    (text,), needed = training_warnings(*load(raw, [file]), "a100")
    assert needed > 80
    places = [text.index(words) for words in ("gradient_caching: true", "train:gpu=N", "batch_queries", "changes the")]
    assert places == sorted(places)
    raw["training"] |= {"gradient_caching": True, "gradient_checkpointing": True}
    forecast = Forecast(Plan(*load(raw, [file])), read_hardware("a100")[1].model_copy(update={"device_memory": 1e9}))
    (text,) = [text for text in memory_shortages(forecast) if "memory: train" in text]
    assert text.endswith("training.gradient_caching is set: use encoder.lora or a device with more memory.")


def test_ms_marco_and_trec_dl_are_scored_by_their_own_measures():
    plan = Plan(*read("marco"))
    measures = {s.settings.split: s.settings.measures for s in plan.stages.values() if s.kind == "evaluate"}
    dl, papers = ["nDCG@10", "R(rel=2)@1000", "RR(rel=2)@10"], ["R@1000", "R@100", "Hole@10"]
    assert measures == {"dev": ["RR@10", "Success@1000", "R@1000", "R@100"], "dl19": dl + papers, "dl20": dl}
    check = next(stage for stage in plan.stages.values() if stage.kind == "check")
    assert check.settings.measures == measures
    spec = next(iter(measured_tables(plan).values()))
    assert spec["measures"] == measures


def with_all_systems(name):
    """The names of a configuration, all ablations of the papers, and the variants of it that add systems."""
    variants = sorted((CONFIG / "variants").glob(f"{name}-*.yaml"))
    variants += (CONFIG / "variants").glob("qa-*.yaml") if name in ("nq", "triviaqa") else []
    others = name == "marco" and {path for path in variants if path.stem.startswith("marco-doc-")} or set()
    adding = [p for p in variants if p not in others and "ablations" in yaml.safe_load(p.read_text())]
    own = {"recipes", "forgetting", "analysis", "dynamic"}  # of no paper, or in small
    own |= {"bm25"} if name in ("nq", "triviaqa") else set()  # its coCondenser is that of MS MARCO
    ablations = [path for path in sorted((CONFIG / "ablations").glob("*.yaml")) if path.stem not in own]
    files = [*ablations, *adding] if name != "marco-doc" else adding
    return [name, *(str(path.relative_to(CONFIG).with_suffix("")) for path in files)]


@pytest.mark.ci(1)
@pytest.mark.parametrize("name", [*TABLE_5, "marco-doc"])
def test_every_figure_of_ours_can_be_filled(name):
    """All figures of the published tables that belong to a configuration are those of an experiment that it plans."""
    plan, found = Plan(*read(*with_all_systems(name))), set()
    for path in sorted((CONFIG / "published").glob("*.yaml")):
        if path.stem not in ("schema", "released-checkpoints"):
            planned, missing = planned_and_missing(plan, path)
            assert not missing, path.stem
            found |= planned
    assert "ance" in found


def planned_and_missing(plan, path):
    """Figures that a plan should have beside a table's: the experiments of those that it plans, and of those that it
    does not (two sets).
    """
    table = read_published(path)
    lines = planned_table(path, plan)["lines"]
    lines = {(line["row"], line["column"]) for line in lines if line["ours"]}
    planned, missing = set(), set()
    for place, cell in table.cells.items():
        printed = cell.value is not None or not any(cell.row.values)
        if cell.ours and printed and cell.column.configuration == plan.config.name:
            (planned if place in lines else missing).add(cell.ours.experiment)
    return planned, missing


def all_specs(plan):
    """{table: what is planned} of the published tables of a plan."""
    return {table: planned_table(CONFIG / f"published/{table}.yaml", plan) for table in plan.config.published}


@pytest.mark.parametrize("name", TABLE_5)
def test_released_checkpoints_are_scored_without_any_training(name):
    config, experiments = read(name)
    path = CONFIG / "published/released-checkpoints.yaml"
    planned, missing = planned_and_missing(Plan(config, experiments), path)
    assert (planned, missing) == (set(config.external), {"adore-star-released"} if name == "marco" else set())
    plan = Plan(config, experiments)
    found = untrained(plan, all_specs(plan))
    assert list(found) == ["released-checkpoints"]
    stages = [plan.stages[name] for table in found.values() for name in stages_behind(table)]
    assert stages and not any(map(needs_training, stages))
    labels = {experiments[name].label for name in config.external}
    assert all(label.endswith("(released)") for label in labels)


# OpenMatch's came to the hub after the index of 2021 that has the others' commits.
UNPINNED = {
    "OpenMatch/ance-tele_msmarco_qry-psg-encoder", "OpenMatch/ance-tele_coco-base_msmarco_qry-psg-encoder",
    "OpenMatch/ance-tele_nq_psg-encoder", "OpenMatch/ance-tele_nq_qry-encoder",
    "OpenMatch/ance-tele_triviaqa_psg-encoder", "OpenMatch/ance-tele_triviaqa_qry-encoder",
}  # fmt: skip


def test_checkpoints_are_pinned_where_their_commit_is_known():
    lines = [line.partition("#")[0] for path in CONFIG.rglob("*.yaml") for line in path.read_text().splitlines()]
    named = re.findall(r"\bhub: ([\w.-]+/[\w.-]+)(?=[,}\s])(?:,?\s+revision: (\w+))?", "\n".join(lines))
    assert {hub for hub, revision in named if not re.fullmatch("[0-9a-f]{40}", revision)} == UNPINNED
    assert len(named) > 20 and len(dict(named)) == len(set(named)), "each repository at one commit"


def test_a_plan_warns_of_those_without_a_commit_in_one_sentence():
    warned = [Plan(*read(name)).warnings for name in TABLE_5]
    assert all(len(warnings) == 1 for warnings in warned)
    assert set(re.findall(r"[(]main of ([^ ,)]+)", str(warned))) == UNPINNED


def test_adore_star_is_two_headed_folders_with_a_space_before_each_text(monkeypatch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adore")
    for side in ("star", "adore-star"):
        (folder / "data/released" / side).mkdir(parents=True)
        (folder / "data/released" / side / "pytorch_model.bin").write_bytes(side.encode())
    config, experiments = read("marco", "variants/marco-adore-star")
    with monkeypatch.context() as there:
        there.chdir(folder)
        plan = Plan(config, experiments)
    (trajectory,) = plan.trajectories["adore-star-released"]
    texts = [trajectory.tokens_of(of).settings for of in ("queries.dev", "passages")]
    assert [(text.prefix, text.lower_case, text.title) for text in texts] == [(" ", True, "none")] * 2
    encoder = experiments["adore-star-released"].encoder
    assert (encoder.tied, encoder.projection, encoder.max_passage_tokens) == (False, 768, 256)
    assert list(untrained(plan, all_specs(plan))) == ["released-checkpoints"]


def test_continuing_starts_each_episode_from_the_last_checkpoint():
    plan = Plan(*read("marco", "ablations/continue-training"))
    starts = {}
    for name in ("ance-tele", "continue-training"):
        (trajectory,) = plan.trajectories[name]
        trains = [row.stage for row in trajectory.rows if row.stage.kind == "train"]
        starts[name] = [train.inputs["checkpoint"].kind for train in trains]
        assert all("forgetting" in found for found in (e.analyses for e in trajectory.episodes[1:]))
    assert starts == {"ance-tele": ["pretrained"] * 3, "continue-training": ["pretrained", "train", "train"]}


def test_digests_decide_the_collection_and_places_do_not():
    config, experiments = read("marco")

    def key(**changes):
        file = config.collection.files["qrels.train.tsv"].model_copy(update=changes.pop("file", {}))
        files = config.collection.files | {"qrels.train.tsv": file}
        collection = config.collection.model_copy(update=changes | {"files": files})
        made = Plan(config.model_copy(update={"collection": collection}), experiments)
        return made.corpus.key, made.split("train").key

    assert key() == key(local="/elsewhere") == key(licences={}) == key(file={"mirrors": []})
    assert len({key(), key(file={"md5": "0" * 32}), key(file={"bytes": 1}), key(positive_grade=2)}) == 4
    assert key()[0] == key(file={"md5": "0" * 32})[0] == key(positive_grade=2)[0], "the passages stay"


def test_the_ablations_of_tables_2_3_and_8():
    names = ["alpha-beta", "negatives", "checkpoints", "duplicates", "titles"]
    plan = Plan(*read("marco", *(f"ablations/{name}" for name in names)))
    measured_tables(plan)
    starts = {
        name: plan.experiments[name].encoder.checkpoint.hub for name in ("q-neg", "q-neg-bert", "q-neg-condenser")
    }
    assert list(starts.values()) == ["Luyu/co-condenser-marco", "google-bert/bert-base-uncased", "Luyu/condenser"]
    assert not plan.experiments["without-overlap"].negatives.keep_duplicates
    assert plan.experiments["without-titles"].encoder.title == "none"


def test_n_of_table_2_in_all_episodes_or_from_the_second_on():
    """Released: 15 in Episode 1, whatever N is; the paper: one N."""
    for files, first in ((["marco"], 15), (["marco", "variants/marco-same-n"], 47)):
        experiment = read(*files, "ablations/alpha-beta")[1]["alpha-0.5-beta-0.5-n-47"]
        training = [episode.training for episode in experiment.method]
        assert [t.negatives_per_query for t in training] == [first, 47, 47]
        assert [t.stop_after_steps for t in training] == [20000, 20000, None]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corpus": {"file": "nowhere.tsv"}}, "marco.yaml, line .*: collection: .*nowhere.tsv"),
        ({"splits": {"dev": {"qrels": None}}}, "collection.splits.dev: qrels .*tsv"),
        ({"splits": {"dev": {"all_questions": "queries.tar.gz"}}}, "all_questions .*dpr"),
        ({"files": {"../up.tsv": {}}}, "collection.files.*: string should match"),
        ({"files": {"queries.tar.gz": {"mirrors": ["file:///etc/passwd"]}}}, "pattern"),
        ({"files": {"queries.tar.gz": {"sha256": "1234"}}}, "collection.files.queries.tar.gz.sha256"),
    ],
)
def test_mistakes_in_downloads_are_named(change, message):
    file = CONFIG / "marco.yaml"
    with pytest.raises(ValueError, match=message):
        load(merged(yaml.safe_load(file.read_text()), {"collection": change}), [file])


def test_measures_by_split_must_name_every_split():
    file = CONFIG / "marco.yaml"
    raw = yaml.safe_load(file.read_text())
    raw["evaluation"]["measures"].pop("dl20")
    with pytest.raises(ValueError, match="evaluation: .*missing: dl20"):
        load(raw, [file])
