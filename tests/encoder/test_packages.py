"""A checkpoint whose zip file is cut into parts, each in its own package: joined, verified, and what is refused."""

import io
import shutil
import sys
import zipfile

import pytest
from safetensors.torch import load_file

from encoder_world import make_pretrained, source_folder
from teleport.encoder import packages, source
from teleport.plan.identity import identify_checkpoint
from teleport.refusal import Refusal
from teleport.running.files import sha256_file
from teleport.settings.encoder import CheckpointSource, Identified

NAMES = ["mini-model-part-001", "mini-model-part-002", "mini-model-part-003"]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Where packages are found; the test stands in another folder of its own."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    monkeypatch.setattr(sys, "path_importer_cache", {})
    return tmp_path / "site"


def zipped(folder, more=()):
    """The bytes of a zip file with the folder `mini` in it; more: {name: text} besides"""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"mini/{path.relative_to(folder)}")
        for name, text in dict(more).items():
            archive.writestr(name, text)
    return file.getvalue()


def install(site, content, names=NAMES, stem="mini.zip"):
    """Install packages that have a part of a file each, as pip does."""
    size = -(-len(content) // len(names))
    for number, name in enumerate(names, 1):
        module, info = name.replace("-part-", "-part_"), f"{name.replace('-', '_')}-1.0.dist-info"
        part = site / module / "input" / f"{stem}.{number:03d}"
        part.parent.mkdir(parents=True)
        part.write_bytes(content[(number - 1) * size : number * size])
        (site / info).mkdir()
        (site / info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        record = f"{part.relative_to(site)},sha256={sha256_file(part)},{part.stat().st_size}\n{info}/METADATA,,\n"
        (site / info / "RECORD").write_text(record)


@pytest.fixture
def model(tmp_path):
    """(folder of a miniature MPNet, digest of its weights)."""
    folder = source_folder(tmp_path / "model", "mpnet")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return folder, sha256_file(folder / "model.safetensors")


def test_parts_are_joined_and_the_checkpoint_is_that_of_the_folder(stages, site, model):
    folder, digest = model
    install(site, zipped(folder))
    own = make_pretrained(stages, None, checkpoint={"packages": NAMES[::-1], "sha256": digest}, pooling="mean")
    plain = make_pretrained(stages, folder, pooling="mean")
    weights = [load_file(job.folder / "checkpoint/model.safetensors") for job in (own, plain)]
    assert weights[0].keys() == weights[1].keys() and len(weights[0]) > 20
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    texts = [(job.folder / "checkpoint/tokenizer.json").read_bytes() for job in (own, plain)]
    assert texts[0] == texts[1]


def test_a_part_may_end_in_any_record_of_the_zip_file(site, tmp_path, monkeypatch):
    """Also within the header of a file, its name, or the directory at the end."""
    (tmp_path / "small").mkdir()
    content = zipped(tmp_path / "small", {"mini/config.json": "{}", "mini/vocab.txt": "words " * 9})
    parts = [(tmp_path / name, "") for name in ("small/1", "small/2")]
    monkeypatch.setattr(packages, "parts_of", lambda names, key: parts)
    for cut in range(1, len(content), 9):
        for (part, _), own in zip(parts, (content[:cut], content[cut:]), strict=True):
            part.write_bytes(own)
        folder = packages.folder_in_packages(NAMES, ["*"], [], "encoder.checkpoint")
        assert (folder / "vocab.txt").read_text() == "words " * 9, cut
        shutil.rmtree(folder)


def test_a_plan_unpacks_the_small_files_and_a_stage_the_others_once(site, model):
    folder, digest = model
    install(site, zipped(folder, {"mini/evil.py": "raise SystemExit"}))
    given = CheckpointSource(packages=NAMES, sha256=digest)
    small = source.locate(given, source.OWN_FILES)
    assert (small / "1_Pooling/config.json").is_file() and not (small / "model.safetensors").exists()
    assert small.is_relative_to(packages.FOLDER)
    assert source.verified(Identified.taken_from(given))[2] == {"weights_sha256": digest}
    assert {path.name for path in small.rglob("*.*")} >= {"model.safetensors", "tokenizer.json"}
    assert not list(small.rglob("*.py")) and not list(small.rglob("*.part"))
    written = (small / "model.safetensors").stat().st_mtime_ns
    assert source.locate(given) == small and (small / "model.safetensors").stat().st_mtime_ns == written
    (small / "model.safetensors").write_bytes(b"torn")
    assert source.verified(Identified.taken_from(given))[0] == small


def test_the_key_has_versions_and_digest_and_other_sources_keep_theirs(site, model):
    folder, digest = model
    install(site, zipped(folder))
    made = identify_checkpoint(CheckpointSource(packages=NAMES, sha256=digest), "encoder.checkpoint")
    assert made.version == "1.0" and made.model_dump()["packages"] == NAMES
    assert "packages" not in identify_checkpoint(CheckpointSource(folder=str(folder)), "k").model_dump()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("missing", r"encoder.checkpoint.packages: 'mini-model-part-003' is not installed.*--no-deps"),
        ("one left out", r"packages: .*mini.zip.001, mini.zip.003"),
        ("last left out", r"mini.zip.001, .*mini.zip.002"),
        ("damaged", r"mini.zip.003 do not form a sound"),
        ("other weights", r"checkpoint.sha256: .*model.safetensors has SHA-256"),
        ("no checkpoint", r"config.json and a tokenizer, not none"),
        ("two", r"config.json and a tokenizer, not mini, other"),
        ("outside", r"the path '../out.txt', outside of it"),
        ("no part", r"packages: 'pydantic' has 0 files like NAME.zip.001"),
    ],
)
def test_what_is_no_whole_checkpoint_is_refused(site, model, change, says):
    folder, digest = model
    more = {"outside": {"../out.txt": "x"}, "two": {"other/config.json": "{}", "other/vocab.txt": "a"}}.get(change, {})
    content, names = zipped(folder, more), NAMES
    if change == "no checkpoint":
        (folder / "config.json").unlink()
        content = zipped(folder)
    if change == "damaged":
        middle = len(content) // 2
        content = content[:middle] + bytes(64) + content[middle + 64 :]
    install(site, content, NAMES[:2] if change == "missing" else NAMES)
    if change.endswith("left out"):
        names = NAMES[:2] if change == "last left out" else [NAMES[0], NAMES[2]]
    names = ["pydantic"] if change == "no part" else names
    digest = "0" * 64 if change == "other weights" else digest
    with pytest.raises(Refusal, match=says):
        source.verified(Identified(packages=names, sha256=digest))
    assert not list(packages.FOLDER.rglob("*.part"))


def test_packages_without_the_digest_of_their_weights_are_refused():
    with pytest.raises(ValueError, match="packages needs sha256"):
        CheckpointSource(packages=NAMES)
