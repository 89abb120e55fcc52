"""Stages that travel: what is written for others, and what is taken of others and what is refused, file by file."""

import io
import json
import os
import shlex
import shutil
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from commands.share import fetch, share, stages_at
from hub import Hub
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.links import link_experiment
from teleport.running import places
from teleport.running.artefact import MANIFEST, SPEC, STAGES, Artefact, is_finished, signed
from teleport.running.code import stage_code
from teleport.running.files import write_bytes, write_json
from teleport.running.job import Job
from teleport.running.places import arrives, place_at
from teleport.running.run import publish_manifest, publish_outputs
from teleport.settings import read as config

ENCODE, INDEX, TRAIN, EVALUATE, BM25 = (
    f"{kind}/{number:012x}" for number, kind in enumerate(["encode", "index", "train", "evaluate", "bm25"], 1)
)
FILES = {
    ENCODE: {"passages.npy": b"vectors" * 100},
    INDEX: {"index.json": b"{}"},
    TRAIN: {"checkpoint/model.safetensors": b"weights" * 1000, "losses.tsv": b"step\tloss\n"},
    EVALUATE: {"per_query.parquet": b"scores"},
    BM25: {"run.gz": b"run"},
}
INPUTS = {INDEX: {"passages": ENCODE}, TRAIN: {"index": INDEX}, EVALUATE: {"checkpoint": TRAIN}}


def job_of(name, code=None, inputs=None):
    kind, key = name.split("/")
    spec = {"kind": kind, "key": key, "settings": {}, "inputs": INPUTS.get(name, {}) if inputs is None else inputs}
    return Job(spec | {"loads": {}, "origins": {"mirror": "/home/me"}, "code": code or stage_code(kind, {})})


def finish(name, code=None):
    """A finished stage as the workflow leaves it."""
    job = job_of(name, code)
    write_json(job.folder / SPEC, {key: value for key, value in job.spec.items() if key != "code"})
    for file, content in FILES[name].items():
        top = Path(file).parts[0]
        part = job.outputs.get(top) or job.output(top)
        write_bytes(part / Path(*Path(file).parts[1:]) if part.name != f"{file}.part" else part, content)
    manifest = {"kind": job.kind, "key": job.key, "stamp": job.stamp(), "settings": {}, "inputs": job.spec["inputs"]}
    manifest |= {"facts": {}, "files": publish_outputs(job), "provenance": {"code": job.code, "git_commit": "c0ffee"}}
    publish_manifest(job, signed(manifest))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder with the finished experiment `tele`, whose table shows BM25 too; the second folder is where to go."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    for name in FILES:
        finish(name)
    rows = [SimpleNamespace(link=name.split("/")[0], stage=SimpleNamespace(name=name), seed=1, episode=1)
            for name in (ENCODE, INDEX, TRAIN, EVALUATE)]  # fmt: skip
    link_experiment(rows, "results/experiments/tele")
    sources = Path("results/tables/main.sources.csv")
    write_bytes(sources, f"system,episode,stage\ntele,1,{EVALUATE}\nBM25,,{BM25}\n".encode())
    return tmp_path / "two"


def contents(folder):
    """{path below results/stages: bytes} of what a manifest lists."""
    return {
        f"{name}/{file}": (folder / STAGES / name / file).read_bytes() for name, of in FILES.items() for file in of
        if (folder / STAGES / name / file).exists()
    }  # fmt: skip


def below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("to", ["shared", "our share.tar"])
def test_an_experiment_travels_with_what_its_table_shows(elsewhere, monkeypatch, to):
    said = share(stages_at("tele"), f"../{to}", vectors=True)
    assert said.startswith("5 stages, ") and shlex.split(said)[-2:] == ["fetch", f"../{to}"]
    here = Path.cwd()
    monkeypatch.chdir(elsewhere)
    assert "/home/me" not in "".join(place_at(f"../{to}").open(f"{n}/{SPEC}").read().decode() for n in FILES)
    (arrived,) = fetch(f"../{to}")
    assert arrived.startswith(f"Arrived from ../{to}: 5 stages, ")
    assert contents(elsewhere) == contents(here) and len(contents(here)) == 6
    times = [(STAGES / name / MANIFEST).stat().st_mtime_ns for name in (ENCODE, INDEX, TRAIN, EVALUATE)]
    assert times == sorted(times), "else Snakemake would make a stage again after its input"
    assert fetch(f"../{to}")[0].endswith("; here already: 5.")
    assert [Artefact(STAGES / name).verify() for name in FILES] == [None] * 5
    assert not list(elsewhere.rglob("*.part"))


@pytest.mark.parametrize(("name", "shown"), [(TRAIN, "results/experiments/tele/train"), (BM25, BM25)])
def test_an_unfinished_stage_is_named_by_its_experiment(elsewhere, name, shown):
    (STAGES / name / MANIFEST).unlink()
    with pytest.raises(Refusal, match=f"not finished: 1 of 5 stages, such as {shown}. "):
        share(stages_at("tele"), "../shared", vectors=True)


def test_a_results_folder_is_a_place_too_and_a_stage_comes_with_what_it_was_made_from(elsewhere, monkeypatch):
    assert stages_at("results/experiments/tele/train") == stages_at(TRAIN) == stages_at(TRAIN[6:]) == {TRAIN}
    share({TRAIN}, "../shared", vectors=True)
    monkeypatch.chdir(elsewhere)
    fetch("../shared")
    assert [is_finished(name) for name in FILES] == [True, True, True, False, False]
    assert fetch("../one/results")[0].startswith("Arrived from ../one/results: 2 stages, ")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("train", "^train is not a stage.* such as tele/train"),
        ("0123456789ab", "^0123456789ab is not a stage.* Look below results/experiments"),
        ("", "'' is not a stage.* Look below results/experiments"),
    ],
)
def test_a_stage_without_its_experiment_is_refused_with_a_whole_name(elsewhere, what, said):
    with pytest.raises(Refusal, match=said):
        stages_at(what)


def test_without_vectors_all_else_is_finished(elsewhere, monkeypatch):
    share(stages_at("tele"), "../shared.tar", vectors=False)
    monkeypatch.chdir(elsewhere)
    sent = sum(len(content) for name, files in FILES.items() for content in files.values() if name != ENCODE)
    assert f", {sent:,} bytes; here already: 0." in fetch("../shared.tar")[0]
    assert all(map(is_finished, FILES)) and not (STAGES / ENCODE / "passages.npy").exists()
    assert (STAGES / INDEX / "index.json").exists(), "an index for exact search has no vectors of its own"
    assert (STAGES / TRAIN / "losses.tsv").exists() and [Artefact(STAGES / name).verify() for name in FILES]
    with pytest.raises(Refusal, match="passages.npy was .*--forcerun"):
        Artefact(STAGES / ENCODE).path("passages.npy")
    assert fetch("../shared.tar")[0].endswith("; here already: 5.")


@pytest.mark.parametrize("to", ["../whole", "../whole.tar"])
def test_vectors_that_were_left_out_come_from_a_place_that_has_them(elsewhere, monkeypatch, to):
    share(stages_at("tele"), "../without", vectors=False)
    share(stages_at("tele"), to, vectors=True)
    here = Path.cwd()
    monkeypatch.chdir(elsewhere)
    fetch("../without")
    times = [(STAGES / name / MANIFEST).stat().st_mtime_ns for name in FILES]
    (said,) = fetch(to)
    assert said == f"Arrived from {to}: 1 stage, 700 bytes; here already: 4."
    assert contents(elsewhere) == contents(here) and Artefact(STAGES / ENCODE).path("passages.npy")
    assert times == [(STAGES / name / MANIFEST).stat().st_mtime_ns for name in FILES], "nothing that follows reruns"
    assert fetch(to)[0].endswith("; here already: 5.") and not list(Path().rglob("*.part"))
    (STAGES / ENCODE / "passages.npy").unlink()
    path = Path("../torn/stages", ENCODE, "passages.npy")
    shutil.copytree(here / STAGES / ENCODE, path.parent)
    path.write_bytes(b"Vectors" * 100)
    with pytest.raises(Refusal, match=f"stages/{ENCODE}/passages.npy does not match"):
        fetch("../torn")
    assert not (STAGES / ENCODE / "passages.npy").exists() and not list(Path().rglob("*.part"))


def test_vectors_of_other_bits_do_not_replace_those_that_were_left_out(elsewhere, monkeypatch):
    share(stages_at("tele"), "../without", vectors=False)
    monkeypatch.setitem(FILES, ENCODE, {"passages.npy": b"other bits of another processor"})
    finish(ENCODE)
    assert share({ENCODE}, "../other", vectors=True).startswith("1 stage, ")
    monkeypatch.chdir(elsewhere)
    fetch("../without")
    assert fetch("../other")[0].endswith("; here already: 1.")
    assert not (STAGES / ENCODE / "passages.npy").exists()


def test_an_archive_is_the_same_for_the_same_stages(elsewhere):
    for to in ("../a.tar", "../b.tar"):
        share({TRAIN}, to, vectors=True)
    assert (elsewhere.parent / "a.tar").read_bytes() == (elsewhere.parent / "b.tar").read_bytes()


def test_every_flipped_byte_of_a_result_is_refused_by_its_name(elsewhere, monkeypatch):
    share(stages_at("tele"), "../shared", vectors=True)
    monkeypatch.chdir(elsewhere)
    shared = Path("../shared/stages")
    tried = 0
    for path in [path for path in sorted(shared.rglob("*")) if path.is_file()]:
        sound = path.read_bytes()
        at = sound.rindex(b'"') - 1 if path.suffix == ".json" and len(sound) > 2 else len(sound) // 2
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        shutil.rmtree("results", ignore_errors=True)
        with pytest.raises(Refusal, match=f"stages/{path.relative_to(shared)} ") as refused:
            fetch("../shared")
        assert "\n" not in str(refused.value)
        stage = "/".join(path.relative_to(shared).parts[:2])
        assert not is_finished(stage) and not list(Path().rglob("*.part"))
        path.write_bytes(sound)
        tried += 1
    assert tried == 6 + 5 + 5
    fetch("../shared")
    assert all(map(is_finished, FILES)), "as nothing but the flipped bytes was in the way"


def test_what_is_missing_cut_or_too_long_is_refused_by_its_name(elsewhere, monkeypatch):
    share({TRAIN}, "../shared", vectors=True)
    monkeypatch.chdir(elsewhere)
    path = Path("../shared/stages", TRAIN, "checkpoint/model.safetensors")
    sound = path.read_bytes()
    for damage in (lambda: path.unlink(), lambda: path.write_bytes(sound[:-1]), lambda: path.write_bytes(sound + b"x")):
        damage()
        with pytest.raises(Refusal, match=f"stages/{TRAIN}/checkpoint/model.safetensors (is missing|does not match)"):
            fetch("../shared")
        assert is_finished(INDEX) and not (STAGES / TRAIN / "losses.tsv").exists()


def test_a_stage_under_another_key_is_refused(elsewhere, monkeypatch):
    share({ENCODE}, "../shared", vectors=True)
    monkeypatch.chdir(elsewhere)
    Path("../shared/stages", ENCODE).rename(Path("../shared/stages", "encode/00000000000f"))
    with pytest.raises(Refusal, match=f"encode/00000000000f/manifest.json describes {ENCODE}"):
        fetch("../shared")


def archive(path, *members):
    """A tar archive of members: (name, type, bytes)."""
    with tarfile.open(path, "w") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("/etc/passwd", tarfile.REGTYPE, "is not below"),
        ("../stages/train/000000000003/x", tarfile.REGTYPE, "is not below"),
        ("stages/train/000000000003/../../../x", tarfile.REGTYPE, "is not below"),
        ("stages/train/x", tarfile.REGTYPE, "is not below"),
        ("other/train/000000000003/x", tarfile.DIRTYPE, "is not below"),
        (f"stages/{TRAIN}/x", tarfile.SYMTYPE, "is a link"),
        (f"stages/{TRAIN}/x", tarfile.LNKTYPE, "is a link"),
        (f"stages/{TRAIN}/x", tarfile.CHRTYPE, "is a link, a device"),
        (f"stages/{TRAIN}/x", tarfile.FIFOTYPE, "is a link, a device"),
        (f"stages/{TRAIN}/{MANIFEST}", tarfile.REGTYPE, "occurs twice"),
    ],
)
def test_members_with_names_elsewhere_links_and_devices_are_refused(elsewhere, name, kind, said):
    sound = (f"stages/{TRAIN}/{MANIFEST}", tarfile.REGTYPE, b"{}")
    archive("a.tar", sound, (name, kind, b""))
    with pytest.raises(Refusal, match=f"^a.tar: its member '{name}' {said}"):
        place_at("a.tar")


def test_a_name_in_a_manifest_that_leads_out_of_its_stage_is_refused(elsewhere, monkeypatch):
    share({TRAIN}, "../shared", vectors=True)
    monkeypatch.chdir(elsewhere)
    path = Path("../shared/stages", TRAIN, MANIFEST)
    sound = json.loads(path.read_text())
    for name in ("../../../../stolen", "/tmp/stolen", MANIFEST, "."):
        files = {name: sound["files"]["losses.tsv"]}
        write_json(path, signed(sound | {"files": files}))
        with pytest.raises(Refusal, match=f"{TRAIN} lists '{name}', outside"):
            fetch("../shared")


def test_an_archive_that_is_cut_or_has_a_torn_header_is_refused(elsewhere):
    """At a torn header tarfile ends as if the archive did."""
    share({TRAIN}, "a.tar", vectors=True)
    sound = Path("a.tar").read_bytes()
    assert place_at("a.tar").names() == [ENCODE, INDEX, TRAIN]
    second = sound.index(b"stages/", 1)
    while second % 512:
        second = sound.index(b"stages/", second + 1)
    for cut in (100, second, second + 100, len(sound) // 1024 * 512 + 7):
        Path("a.tar").write_bytes(sound[:cut].rstrip(b"\0") if cut == len(sound) else sound[:cut])
        with pytest.raises(Refusal, match=r"^a\.tar is not a tar archive"):
            place_at("a.tar")
    Path("a.tar").write_bytes(sound[: second + 3] + b"X" + sound[second + 4 :])
    with pytest.raises(Refusal, match=f"torn after stages/{ENCODE}/"):
        place_at("a.tar")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: None, lambda path: os.symlink("/dev/zero", path)])
def test_a_place_that_is_none_is_refused(elsewhere, make):
    make("place")
    with pytest.raises(Refusal, match="^place .*(`stages`|not exist)"):
        fetch("place")
    Path("empty/stages").mkdir(parents=True)
    with pytest.raises(Refusal, match="^empty .*stages"):
        fetch("empty")


def test_links_and_pipes_in_a_folder_are_refused(elsewhere, monkeypatch):
    share({ENCODE}, "../shared", vectors=True)
    monkeypatch.chdir(elsewhere)
    path = Path("../shared/stages", ENCODE, "passages.npy")
    for make in (lambda: path.symlink_to("/dev/zero"), lambda: os.mkfifo(path), lambda: path.mkdir()):
        path.rmdir() if path.is_dir() else path.unlink()
        make()
        with pytest.raises(Refusal, match=f"{ENCODE}/passages.npy is a (link|pipe|folder)"):
            fetch("../shared")


def test_what_is_not_finished_or_not_sound_is_not_shared(elsewhere):
    (STAGES / BM25 / MANIFEST).unlink()
    with pytest.raises(Refusal, match=f"^not finished: 1 of 5 stages.*{BM25}. Run"):
        share(stages_at("tele"), "../shared", vectors=True)
    finish(BM25)
    (STAGES / TRAIN / "losses.tsv").write_text("x")
    for to in ("../shared", "../shared.tar"):
        with pytest.raises(Refusal, match=f"{TRAIN}/losses.tsv has 1 bytes"):
            share(stages_at("tele"), to, vectors=True)
    assert below(elsewhere.parent / "two") == [] and not list(elsewhere.parent.glob("shared*"))
    with pytest.raises(Refusal, match="^other is not"):
        stages_at("other")


def test_nothing_is_written_over(elsewhere):
    Path("mine.tar").write_text("mine")
    Path("mine").mkdir()
    Path("mine/file").touch()
    for to in ("mine.tar", "mine"):
        with pytest.raises(Refusal, match=f"^{to} exists already"):
            share({TRAIN}, to, vectors=True)
    with pytest.raises(Refusal, match=r"^--to mine\.tar\.gz: "):
        share({TRAIN}, "mine.tar.gz", vectors=True)
    assert Path("mine.tar").read_text() == "mine" and below(Path("mine")) == ["file"]


def test_what_other_code_or_other_inputs_made_stays_out(elsewhere, monkeypatch):
    finish(TRAIN, code="of yesterday")
    share(stages_at("tele"), "../shared", vectors=True)
    here = Path.cwd()
    monkeypatch.chdir(elsewhere)
    said = fetch("../shared")
    assert said[0].startswith("Arrived from ../shared: 3 stages, ")
    assert said[1].startswith(f"Left out, made by other code: 1, such as {TRAIN} (commit c0ffee)")
    assert said[2].startswith("Left out, made from what is not here, or differs: 1, ") and EVALUATE in said[2]
    monkeypatch.chdir(here)
    monkeypatch.setitem(FILES, ENCODE, {"passages.npy": b"other bits of another processor"})
    finish(ENCODE)
    shutil.copytree(STAGES / ENCODE, elsewhere / "results/stages" / ENCODE, dirs_exist_ok=True)
    shutil.rmtree(elsewhere / STAGES / INDEX)
    monkeypatch.chdir(elsewhere)
    said = fetch("../shared")
    assert said[0].startswith("Arrived from ../shared: 0 stages, ") and said[0].endswith("; here already: 2.")
    assert said[2].startswith("Left out, made from what is not here, or differs: 2, ") and INDEX in said[2]
    assert not is_finished(INDEX), "it is of other vectors than those that are here"


def test_of_a_configuration_only_its_stages_are_taken(elsewhere, monkeypatch):
    share(stages_at("tele"), "../shared", vectors=True)
    monkeypatch.chdir(elsewhere)
    plan = SimpleNamespace(stages={name: SimpleNamespace(loads={}) for name in (ENCODE, INDEX, "train/00000000000f")})
    said = fetch("../shared", plan)
    assert said[0].startswith("Arrived from ../shared: 2 stages, ")
    assert said[-1] == "Finished: 2 of 3 stages of the configuration."
    with pytest.raises(Refusal, match="has 5 stages"):
        fetch("../shared", SimpleNamespace(stages={}))


def test_the_stages_of_a_job_are_looked_for_in_every_place(elsewhere, monkeypatch, caplog):
    caplog.set_level("INFO")
    share({INDEX}, "../shared", vectors=True)
    share(stages_at("tele"), "../shared.tar", vectors=True)
    monkeypatch.chdir(elsewhere)
    given = ["../shared", "../shared.tar"]
    assert not arrives(job_of(ENCODE), []) and not arrives(job_of("train/00000000000f", inputs={}), given)
    assert all(arrives(job_of(name), given) for name in (ENCODE, INDEX, TRAIN)) and is_finished(TRAIN)
    assert f"{INDEX} was copied from ../shared" in caplog.messages
    assert f"{TRAIN} was copied from ../shared.tar" in caplog.messages
    assert not arrives(job_of(EVALUATE, code="edited"), given) and not is_finished(EVALUATE)
    assert "from other code or other inputs" in caplog.messages[-1]


def test_a_shard_of_a_stage_that_a_place_has_makes_nothing(elsewhere, monkeypatch):
    share({ENCODE}, "../shared", vectors=True)
    monkeypatch.chdir(elsewhere)
    shards = [Job(job_of(ENCODE).spec | {"shard": f"{number}-of-2"}) for number in (1, 2)]
    assert all(arrives(shard, ["../shared"]) and (shard.resume / MANIFEST).exists() for shard in shards)
    assert not is_finished(ENCODE), "its own job joins the shards, or takes it"
    assert arrives(job_of(ENCODE), ["../shared"])


def test_a_place_without_the_stage_costs_less_than_a_second(elsewhere):
    for number in range(1000):
        path = Path(f"big/stages/encode/{number:012x}", MANIFEST)
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    with tarfile.open("big.tar", "w") as tar:
        tar.add("big/stages", "stages")
    started = time.process_time()
    assert not arrives(job_of(TRAIN), ["big", "big.tar"])
    assert time.process_time() - started < 1


def test_a_fetch_that_dies_leaves_no_stage_that_looks_finished(elsewhere, monkeypatch):
    share({ENCODE}, "../shared", vectors=True)
    monkeypatch.chdir(elsewhere)

    def killed(*_):
        raise KeyboardInterrupt

    for name in ("sync", "write_json"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(places, name, killed)
            fetch("../shared")
        assert not is_finished(ENCODE) and not list(Path().rglob("*.part"))
    assert fetch("../shared")[0].startswith("Arrived from ../shared: 1 stage, ")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub on the loopback interface, to which uploads go in memory."""
    served = Hub({})

    def create_repo(self, name, exist_ok, private):
        assert exist_ok and private

    def upload_folder(self, repo_id, folder_path):
        folder = Path(folder_path)
        served.repositories[repo_id] = {name: (folder / name).read_bytes() for name in below(folder)}
        return SimpleNamespace(oid=served.commit(repo_id))

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    served.take_over(monkeypatch, tmp_path / "cache")
    yield served
    served.close()


def test_a_repository_of_the_hub_is_a_place_at_one_commit(elsewhere, monkeypatch, hub):
    where = share(stages_at("tele"), "hub:me/runs", vectors=True).split()[-1]
    assert where == f"hub:me/runs@{hub.commit('me/runs')}" and len(hub.repositories["me/runs"]) == 16
    here = Path.cwd()
    monkeypatch.chdir(elsewhere)
    assert fetch(where)[0].startswith(f"Arrived from {where}: 5 stages, ")
    assert contents(elsewhere) == contents(here) and not list(elsewhere.rglob("*.part"))
    sent = len(hub.asked)
    assert fetch(where, SimpleNamespace(stages={BM25: SimpleNamespace(loads={})}))[0].endswith("; here already: 1.")
    assert not [path for path in hub.asked[sent:] if TRAIN in path], "only stages of the configuration are asked for"
    for wrong in ("hub:me/runs", "hub:me/runs@main", "hub:runs"):
        with pytest.raises(Refusal, match="give hub:OWNER/NAME@COMMIT"):
            fetch(wrong)
    with pytest.raises(Refusal, match="hub:me/other@"):
        fetch(f"hub:me/other@{'0' * 40}")
    for wrong in ("hub:me/runs@main", "hub:runs"):
        with pytest.raises(Refusal, match=f"--to {wrong}: a repository has an owner.* Give hub:OWNER/NAME"):
            share({TRAIN}, wrong, vectors=True)


def test_jobs_ask_a_repository_of_the_hub(elsewhere, monkeypatch, hub, caplog):
    """A configuration names it at a commit; the plan itself needs no network."""
    caplog.set_level("INFO")
    where = share(stages_at("tele"), "hub:me/runs", vectors=False).split()[-1]
    monkeypatch.chdir(elsewhere)
    asked = len(hub.asked)
    given = {"collection": {"source": "apidocs", "packages": ["numpy"]}, "bm25": {}, "artefacts": [where]}
    assert Plan(*config.load(given)).config.artefacts == [where] and len(hub.asked) == asked
    assert not arrives(job_of("train/00000000000f", inputs={}), [where])
    assert all(arrives(job_of(name), [where]) for name in (ENCODE, INDEX, TRAIN)) and is_finished(TRAIN)
    assert f"{TRAIN} was copied from {where}" in caplog.messages
    assert Artefact(STAGES / TRAIN).verify() is None and not list(Path("results").glob("fetched*"))
    assert not (elsewhere.parent / "cache").exists(), "the hub's cache keeps no second copy"
    with pytest.raises(Refusal, match="^artefacts: hub:me/runs: .*@COMMIT"):
        places.require_place("hub:me/runs", "artefacts: ")


def test_a_flipped_byte_on_the_hub_is_refused_by_name(elsewhere, monkeypatch, hub):
    where = share({TRAIN}, "hub:me/runs", vectors=True).split()[-1]
    monkeypatch.chdir(elsewhere)
    hub.commits["me/runs"] = hub.commit("me/runs")
    hub.repositories["me/runs"][f"stages/{TRAIN}/losses.tsv"] = b"Step\tloss\n"
    with pytest.raises(Refusal, match=f"^{where}: stages/{TRAIN}/losses.tsv does not match"):
        fetch(where)
    assert not is_finished(TRAIN) and not list(Path().rglob("*.part"))
