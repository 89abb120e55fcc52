"""Artefacts: atomic, checked when read, resumed only when code and inputs are the same."""

import errno
import json
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import run_stage
from stages import spec_file
from teleport.arrays import save_array
from teleport.refusal import Refusal
from teleport.running import artefact
from teleport.running import run as running_run
from teleport.running.artefact import Artefact
from teleport.running.blocks import RowBlocks
from teleport.running.code import files_digest, stage_code
from teleport.running.files import require_free_space
from teleport.running.job import Job
from teleport.running.run import publish_outputs
from teleport.settings.section import Section


def write(text):
    def run(job):
        job.output("a.txt").write_text(text)
        folder = job.output("folder")
        folder.mkdir()
        (folder / "b.txt").write_text("b" * len(text))
        return {"length": len(text)}

    return run


@pytest.fixture
def made(stages):
    return stages.run(write("hello"), "merge")


def test_an_artefact_is_read_through_its_manifest(stages, made):
    reader = stages.make("train", inputs={"negatives": made})
    assert reader.input("negatives", "a.txt").read_text() == "hello"
    assert (reader.input("negatives", "folder") / "b.txt").read_text() == "bbbbb"
    assert reader.facts("negatives") == {"length": 5}
    with pytest.raises(ValueError, match="no artefact 'c.txt'; its manifest lists"):
        reader.input("negatives", "c.txt")


def test_an_artefact_has_a_name_a_root_and_inputs(stages, made):
    reader = stages.run(write("more"), "train", inputs={"negatives": made})
    stage = Artefact(reader.folder)
    assert stage.name == f"train/{reader.key}" and (stage.root / "results/stages" / stage.name) == reader.folder
    assert stage.input("negatives").folder == made.folder and stage.input("corpus") is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.write_text("hell"), "a.txt has 4 bytes, but 5 "),
        (lambda p: p.write_text("hallo"), "a.txt does not match"),
        (lambda p: p.unlink(), "a.txt is missing"),
    ],
)
def test_a_torn_or_edited_artefact_is_named(stages, made, damage, message):
    damage(made.folder / "a.txt")
    with pytest.raises(ValueError, match=message.replace(".", r"\.")) as error:
        stages.make("train", inputs={"negatives": made}).input("negatives", "a.txt")
    assert f"again with --forcerun results/stages/merge/{made.key}/manifest.json: " in str(error.value)


def test_a_large_edited_file_is_found_on_request(made, monkeypatch):
    assert artefact.ALWAYS_HASHED_BYTES == 64 * 2**20, "docs/reliability.md"
    monkeypatch.setattr(artefact, "ALWAYS_HASHED_BYTES", 3)
    (made.folder / "a.txt").write_text("hallo")
    finished = Artefact(made.folder)
    assert finished.path("a.txt").name == "a.txt"
    with pytest.raises(ValueError, match="SHA-256"):
        finished.verify()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ('{"kind": "merge", "key": "0"}', "describes merge/0, another stage"),
        ('{"facts": {"lines": 7}, "sha256": "0f"}', "own SHA-256: .*torn"),
        ("[]", "own SHA-256"),
        ("[" * 9999, "not valid JSON"),
        (None, "is missing: .*--forcerun"),
    ],
)
def test_a_bad_manifest_is_named(made, text, message):
    manifest = made.folder / "manifest.json"
    manifest.write_text(text) if text else manifest.unlink()
    with pytest.raises(ValueError, match=message):
        Artefact(made.folder)


def test_a_failing_stage_leaves_nothing_under_a_final_name(stages):
    def fails(job):
        job.output("a.txt").write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        stages.run(fails, "merge")
    assert [path.name for path in stages.root.rglob("*") if path.is_file() and path.name != "stamp.json"] == [
        "a.txt.part"
    ]


def test_a_kill_between_link_and_manifest_leaves_nothing_behind(stages):
    """Where the final name is a link to the rows in the resume folder, renaming another link onto it does nothing."""

    def fill(job):
        blocks = RowBlocks(job, {"rows.npy": (np.float32, (4, 2))}, block_rows=2)
        for start, stop in blocks:
            blocks["rows.npy"][start:stop] = start
        blocks.publish()

    job = stages.make("encode")
    for _ in range(2):  # killed before the manifest, then finished
        fill(job)
        publish_outputs(job)
    assert [path.name for path in job.folder.iterdir()] == ["rows.npy"]
    assert np.load(job.folder / "rows.npy")[:, 0].tolist() == [0, 0, 2, 2]


def test_files_are_on_the_disk_before_the_manifest(stages, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda number: synced.append(Path(os.readlink(f"/proc/self/fd/{number}")).name))
    stages.run(write("hello"), "merge")
    assert sorted(synced) == ["a.txt", "b.txt"]


def test_an_announced_output_must_be_written(stages):
    with pytest.raises(RuntimeError, match="announced the output 'x.npy'"):
        stages.run(lambda job: {"x": str(job.output("x.npy"))}, "merge")


def test_resume_state_is_kept_only_for_the_same_code_and_inputs(stages, made):
    def reopened(code="test", source=made):
        job = Job(spec | {"code": code, "inputs": {"in": f"merge/{source.key}"}}, root=stages.root)
        return job.open_resume(), job

    spec = {"kind": "train", "key": "a" * 12, "settings": {}, "code": "test", "inputs": {}}
    assert reopened()[0] is False  # nothing there yet
    same, job = reopened()
    (job.resume / "state").write_text("step 5")
    assert same and reopened()[0] and (job.resume / "state").exists()
    assert reopened(code="edited")[0] is False and not (job.resume / "state").exists()
    (job.resume / "state").write_text("step 5")
    assert reopened(code="edited", source=stages.run(write("other"), "merge"))[0] is False
    assert not (job.resume / "state").exists()


def test_equal_artefacts_have_equal_digests(stages, made):
    same, other = stages.run(write("hello"), "merge"), stages.run(write("hallo"), "merge")
    digests = [Artefact(job.folder).digest for job in (made, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_files_that_stay_where_they_are_count_as_content(stages):
    """A download publishes nothing; what is made from its files must not be taken for another version of them."""
    files = [{"files": {"a.tsv": {"path": "a.tsv", "bytes": 1, "sha256": digit * 64}}} for digit in "001"]
    digests = [Artefact(stages.finish(stages.make("download"), facts).folder).digest for facts in files]
    assert digests[0] == digests[1] != digests[2]


def test_too_little_disk_is_said_before_the_work(tmp_path):
    with pytest.raises(ValueError, match=r"1000000000000.00 GB, .* GB free"):
        require_free_space(tmp_path / "not" / "there", 10**21)
    require_free_space(tmp_path, 1)


def test_a_small_lack_is_told_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=4096))
    with pytest.raises(ValueError, match="81,920 bytes, .* 4,096 bytes free"):
        require_free_space(tmp_path, 81_920)


CODE = stage_code("merge", {})


def command(monkeypatch, tmp_path, run, *digests, settings=None):
    """Run run_stage.main on a stage whose function is `run`; returns what it exits with."""
    monkeypatch.chdir(tmp_path)
    spec = spec_file(tmp_path, {"kind": "merge", "key": "b" * 12, "settings": settings or {}, "inputs": {}})
    monkeypatch.setattr("sys.argv", ["run_stage.py", spec, "--code", *(digests or [CODE])])
    monkeypatch.setattr(Job, "module", type("Module", (), {"run": staticmethod(run), "Settings": Section}))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    try:
        run_stage.main()
    except SystemExit as stop:
        return stop.code


def test_the_manifest_says_where_the_artefact_comes_from(monkeypatch, tmp_path):
    assert command(monkeypatch, tmp_path, write("hello")) is None
    artefact = Artefact(tmp_path / "results/stages/merge" / ("b" * 12))
    (artefact.folder / "manifest.json").write_text(json.dumps(artefact.manifest).replace('"length": 5', '"length": 6'))
    with pytest.raises(ValueError, match="its own SHA-256"):
        Artefact(artefact.folder)
    provenance = artefact.manifest["provenance"]
    assert provenance["versions"]["numpy"] and provenance["hardware"]["cores"] >= 1 and provenance["code"] == CODE
    assert provenance["attempt"] == 1 and provenance["wall_seconds"] >= 0 and provenance["peak_memory_bytes"] > 10**6
    assert not (tmp_path / "results/resume/merge" / ("b" * 12)).exists()


@pytest.mark.parametrize("files", [[], ["--files", "0123456789ab"]])
def test_a_stage_refuses_to_run_code_edited_since_the_workflow_started(monkeypatch, tmp_path, files):
    message = command(monkeypatch, tmp_path, write("hello"), "c", *files)
    assert "the code of the stage merge was edited after the workflow started with digest c. Run" in message
    assert [path.name for path in tmp_path.glob("results/stages/*/*/*")] == ["stage.json"]


def test_other_edits_are_no_reason_to_refuse(monkeypatch, tmp_path):
    assert command(monkeypatch, tmp_path, write("hello"), CODE, "--files", "0123456789ab") is None


def test_where_no_file_was_edited_nothing_is_parsed(monkeypatch, tmp_path):
    monkeypatch.delattr(running_run, "stage_code")
    assert command(monkeypatch, tmp_path, write("hello"), CODE, "--files", files_digest()) is None


def test_bad_input_ends_with_a_sentence_not_a_traceback(monkeypatch, tmp_path, capsys):
    def refuses(job):
        raise Refusal("corpus.tsv, line 3: no text. Add one.")

    assert command(monkeypatch, tmp_path, refuses) == "error: corpus.tsv, line 3: no text. Add one."
    assert "Traceback" not in capsys.readouterr().err


def test_a_defect_of_ours_keeps_its_traceback(monkeypatch, tmp_path, capsys):
    assert command(monkeypatch, tmp_path, lambda job: int("bug")).startswith("error: ValueError: invalid literal")
    assert "Traceback" in (said := capsys.readouterr().err) and "test_stage.py" in said


def test_a_refusal_leaves_no_resume_folder_unless_work_was_saved(monkeypatch, tmp_path):
    """`teleport status` would list it as stopped, and `teleport prune` wait for it."""

    def refuses(job):
        raise Refusal("the collection has 5 passages")

    def saves(job):
        (job.resume / "rows.npy").write_text("work")
        refuses(job)

    resume = tmp_path / "results/resume/merge" / ("b" * 12)
    assert "5 passages" in command(monkeypatch, tmp_path, refuses) and not resume.exists()
    assert "5 passages" in command(monkeypatch, tmp_path, saves) and (resume / "rows.npy").exists()
    assert "5 passages" in command(monkeypatch, tmp_path, refuses) and (resume / "rows.npy").exists()


def test_settings_that_the_stage_does_not_take_are_a_sentence(monkeypatch, tmp_path, capsys):
    message = command(monkeypatch, tmp_path, write("hello"), settings={"alpa": 0.5})
    assert message.startswith(f"error: the settings of the stage merge/{'b' * 12} do not fit teleport.negatives.merge")
    assert "alpa: Extra inputs are not permitted. " in message
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "results/stages/merge" / ("b" * 12) / "manifest.json").exists()


def test_a_full_disk_publishes_nothing_and_says_so(monkeypatch, tmp_path):
    def full(job):
        job.output("a.txt").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device", "a.txt.part")

    message = command(monkeypatch, tmp_path, full)
    assert message.startswith("error: no room left on the disk") and "teleport prune" in message
    assert not (tmp_path / "results/stages/merge" / ("b" * 12) / "manifest.json").exists()


def tokenizer(path):
    Tokenizer(WordLevel({f"word{i}": i for i in range(9999)}, unk_token="word0")).save(str(path))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: save_file({"a": np.ones(9999)}, path),
        tokenizer,
        lambda path: save_array(path, np.ones(9999)),
        lambda path: pq.write_table(pa.table({"a": np.arange(99999)}), path),
        lambda path: path.write_text("x" * 99999),
    ],
)
def test_a_limit_on_the_size_of_files_is_a_sentence_whoever_writes(monkeypatch, tmp_path, write):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    try:
        message = command(monkeypatch, tmp_path, lambda job: write(job.output("a")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert message.startswith("error: no room left on the disk (") and "`ulimit -f`" in message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.EROFS, "Read-only file system", "x"),
            "error: access is refused ([Errno 30] Read-only file system",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "x"),
            "error: access is refused ([Errno 13] Permission denied",
        ),
        (
            OSError(errno.EIO, "Input/output error", "x"),
            "error: the disk reports a fault ([Errno 5] Input/output error",
        ),
        (
            OSError(errno.EBUSY, "Device or resource busy", "x"),
            "error: a folder is a mount point or in use ([Errno 16] Device or resource busy",
        ),
        (
            RuntimeError("I/O error: Read-only file system (os error 30)"),
            "error: access is refused (I/O error: Read-only",
        ),
    ],
)
def test_what_the_system_refuses_is_a_sentence(monkeypatch, tmp_path, error, message):
    assert command(monkeypatch, tmp_path, lambda job: (_ for _ in ()).throw(error)).startswith(message)


def test_a_defect_is_not_hidden_as_bad_input(monkeypatch, tmp_path, capsys):
    """Where work is saved it may be that which is damaged."""

    def fails(job):
        raise FileNotFoundError(errno.ENOENT, "gone", "x")

    def fails_later(job):
        (job.resume / "rows.npy").write_text("work")
        fails(job)

    sentence = "error: FileNotFoundError: [Errno 2] gone: 'x'"
    assert command(monkeypatch, tmp_path, fails) == sentence and "Traceback" in capsys.readouterr().err
    said = command(monkeypatch, tmp_path, fails_later)
    assert said.startswith(sentence) and f"from results/resume/merge/{'b' * 12}:" in said


@pytest.mark.parametrize("survived", range(6))
def test_a_kill_while_saved_work_is_removed_leaves_no_shard_without_what_was_joined(tmp_path, monkeypatch, survived):
    """The vectors of a shard that was joined are gone: its manifest alone would have the next attempt look for them."""
    job = SimpleNamespace(resume=tmp_path / "resume", shards_folder=tmp_path / "shards")
    for folder in (job.resume, job.shards_folder / "1-of-2", job.shards_folder / "2-of-2"):
        folder.mkdir(parents=True)
        (folder / "stamp.json").touch()
        (folder / "manifest.json").touch()
    left, unlink = iter(range(survived)), Path.unlink

    def killed(path, missing_ok=False):
        if next(left, None) is None:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        running_run.discard(job)
    assert (job.resume / "stamp.json").exists() or not list(job.shards_folder.rglob("manifest.json"))
