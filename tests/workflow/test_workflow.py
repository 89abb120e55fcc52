"""The finished toy workflow: what it leaves for a person, how fast it answers, and how it refuses bad input."""

import csv
import fcntl
import json
import re
import resource
import shutil
import subprocess
import sys
import time

import pytest
from toy import CONFIG


def test_the_table_has_a_row_per_system_and_episode(finished):
    with open(finished.folder / "results/tables/main.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:4] == ["system", "episode", "RR@10", "R@50"]
    names = [(row["system"], row["episode"]) for row in rows]
    assert names == [("BM25", "0"), ("Zero-shot", "0"), *(("ANCE-Tele", str(n)) for n in (1, 2, 3))]
    assert all(0 <= float(row["RR@10"]) <= float(row["R@50"]) <= 1 for row in rows)
    assert float(rows[0]["R@50"]) > 0.9  # a query is four words of its passage


def test_every_cell_can_be_traced_to_its_stage(finished):
    with open(finished.folder / "results/tables/main.sources.csv", newline="") as file:
        sources = list(csv.DictReader(file))
    assert len(sources) == 5
    for source in sources:
        assert any((finished.folder / value / "manifest.json").is_file() for value in source.values() if value)


def test_the_index_of_an_experiment_leads_to_its_stages(finished):
    folder = finished.folder / "results/experiments/tele"
    with open(folder / "plan.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == 8 + 3 * 2 + 3 * 2 + 4 * 6
    assert all((finished.folder / row["folder"] / "manifest.json").is_file() for row in rows)
    assert (folder / "episode-3" / "train" / "checkpoint" / "model.safetensors").is_file()


def test_a_finished_workflow_answers_at_once(finished):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "Nothing to be done" in finished.snakemake("-n")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 6, "seconds of the processor: other tests may run at the same time"


def test_jobs_that_only_move_arrays_or_write_tables_do_not_load_torch(finished):
    loaded = {}
    for name, manifest in finished.manifests().items():
        loaded.setdefault(name.split("/")[0], set()).update(manifest["provenance"]["loaded"])
    assert {kind for kind, names in loaded.items() if "torch" in names} == {"pretrained", "encode", "retrieve", "train"}
    assert {kind for kind, names in loaded.items() if "transformers" in names} == {"pretrained", "encode", "train"}


def test_messages_name_stage_episode_and_experiments(finished):
    for message in ("train, episode 2 · tele", "retrieve-positives, episode 1 · tele", "corpus · tele", "bm25"):
        assert message in finished.log


def test_a_run_says_a_line_per_job_and_each_episode_s_score(finished):
    """A third of the 560 bytes a job that Snakemake has, and no control characters."""
    lines = [line for line in finished.log.splitlines() if " so far" not in line]  # said of long jobs on slow machines
    manifests = finished.manifests()
    assert (
        len("\n".join(lines).encode()) < 560 / 3 * len(manifests) and re.findall(r"[^\n\x20-\x7e·]", finished.log) == []
    )
    for name in manifests:
        (line,) = [line for line in lines if line.endswith(f"  results/logs/{name}.log")]
        assert line.startswith(("retrieve-", "search-") if name.startswith("retrieve") else name.split("/")[0])
    assert "Reason" not in finished.log and "Host" not in finished.log
    folders = [
        finished.folder / "results/experiments/tele" / name for name in ("", *(f"episode-{n}" for n in (1, 2, 3)))
    ]
    scores = [json.loads((folder / "evaluate-test/manifest.json").read_text()) for folder in folders]
    zero, *means = [score["facts"]["means"]["RR@10"] for score in scores]
    said = [line for line in lines if re.match(r"episode \d: ", line)]
    assert said[0] == f"episode 1: RR@10 {means[0]:.3f} ({means[0] - zero:+.3f}) · tele"
    assert said[2] == f"episode 3: RR@10 {means[2]:.3f} ({means[2] - means[1]:+.3f}) · tele" and len(said) == 3
    made = [line.removeprefix("to look at: ") for line in lines if line.startswith("to look at: ")]
    assert made == ["results/tables/main.md", "results/report/index.html"]
    table = (finished.folder / made[0]).read_text()
    (verdict,) = [line for line in lines if line.startswith("ANCE-Tele .") and line.endswith("of mining and training.")]
    assert f"* {verdict}" in table.splitlines()
    assert all((finished.folder / path).is_file() for path in made)


def test_the_library_search_of_faiss_is_in_no_log(finished):
    logs = [path.read_text() for path in (finished.folder / "results/logs/retrieve").iterdir()]
    assert len(logs) == 10 and all("done in" in log for log in logs)
    assert not any("faiss" in log.lower() for log in logs)


@pytest.mark.ci(0)
def test_prune_lists_what_no_experiment_uses(world):
    world.config["negatives"]["beta"] = 0.25
    world.command()  # writes toy.yaml
    command = [sys.executable, "workflow_scripts/manage.py", "prune", "toy.yaml"]

    def prune(*arguments):
        return subprocess.run(
            [*command, *arguments], cwd=world.folder, capture_output=True, text=True, check=True
        ).stdout

    before = set(world.manifests())
    assert "0 of 47 stages" in prune("--delete")  # the experiment and the table still show what was made
    for folder in ("experiments", "tables"):
        shutil.rmtree(world.folder / "results" / folder)
    listed = prune()
    assert "28 of 47 stages" in listed and "would be removed" in listed
    assert set(world.manifests()) == before
    prune("--delete")
    left = set(world.manifests())
    assert {name.split("/")[0] for name in before - left} == {
        "merge",
        "train",
        "encode",
        "index",
        "retrieve",
        "evaluate",
    }
    assert len(before - left) == 28 and "0 of 19 stages" in prune()


def failing(world, *arguments):
    """What Snakemake and the failing job tell a person."""
    return world.snakemake(*arguments, check=False)


@pytest.mark.slow
def test_a_torn_artefact_stops_the_stage_that_reads_it(world):
    name = next(name for name, m in world.manifests().items() if m["kind"] == "merge" and m["settings"]["episode"] == 1)
    path = world.folder / "results/stages" / name / "passages.npy"
    path.write_bytes(path.read_bytes()[:-4])
    text = failing(world, "--forcerun", "train")
    assert f"{name}/passages.npy has " in text and f"torn or edited. {REMAKE}" in text
    status, text = verify(world)
    assert status == 1 and f"{name}/passages.npy" in text and " stages sound, 1 torn or edited, " in text


REMAKE = "Run the workflow again with --forcerun "


def verify(world):
    """(status, text) of `manage.py verify`."""
    command = [sys.executable, "workflow_scripts/manage.py", "verify"]
    result = subprocess.run(command, cwd=world.folder, capture_output=True, text=True)
    return result.returncode, result.stdout


@pytest.mark.slow
def test_what_verify_finds_is_mended_by_the_command_that_it_names(world):
    """A torn stage, and one that is gone, of which only the links are left."""
    assert verify(world)[0] == 0
    links = sorted((world.folder / "results/experiments").rglob("evaluate-test"))
    torn, gone = [f"evaluate/{link.resolve().name}" for link in links][:2]
    (world.folder / "results/stages" / torn / "per_query.parquet").write_bytes(b"torn")
    shutil.rmtree(world.folder / "results/stages" / gone)
    status, text = verify(world)
    assert status == 1 and f"leads to {gone}, a stage that is not there. {REMAKE}" in text
    assert " stages sound, 1 torn or edited, " in text
    for name in (torn, gone):
        manifest = f"results/stages/{name}/manifest.json"
        assert f"{REMAKE}{manifest}: " in text
        world.snakemake("--forcerun", manifest)
    assert verify(world)[0] == 0 and len(world.would_run()[0]) == 0


@pytest.mark.ci(0)
def test_a_stage_refuses_code_that_was_edited_while_the_workflow_ran(world):
    """The workflow has read the code when its stage waits for another process, and the edit comes then."""
    name = next(name for name in world.manifests() if name.startswith("merge/"))
    manifest, log = f"results/stages/{name}/manifest.json", world.folder / f"results/logs/{name}.log"
    log.unlink()
    with open(world.folder / "results/locks" / name, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(world.command(manifest, "--forcerun", manifest), cwd=world.folder)
        limit = time.monotonic() + 120
        while not log.exists() or "waiting: " not in log.read_text():
            assert time.monotonic() < limit and process.poll() is None
            time.sleep(0.1)
        module = world.folder / "workflow_scripts/teleport/negatives/merge.py"
        module.write_text(module.read_text() + "\n\nADDED = 1\n")
    assert process.wait(120) == 1 and not (world.folder / manifest).exists()
    assert "the code of the stage merge was edited after the workflow started" in log.read_text()


@pytest.mark.ci(0)
def test_a_collection_that_does_not_suit_is_refused_before_encoding(world):
    world.config["encoder"]["max_passage_tokens"] -= 1  # so that everything is encoded and trained again
    world.config["mining"]["depth"] = 241
    text = failing(world, "all")
    assert "240 passages, fewer than mining.depth: 241" in text, text[-3000:]
    assert re.search(r"^\d+ jobs: .*, \d+ encode,", text, re.MULTILINE)
    begun = set(re.findall(r"^(\w+).* results/logs/", text, re.MULTILINE))
    assert "check" in begun and "encode" not in begun


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["negatives"].update(alpa=0.5), "toy.yaml, line"),
        (lambda c: c["evaluation"].update(splits=["tset"]), "evaluation.splits names 'tset'"),
        (lambda c: c["collection"].update(path="data/none"), "collection.path: "),
        (lambda c: c["evaluation"]["significance"].update(baseline="BM52"), "'BM52' is not a row of table"),
    ],
)
def test_a_bad_configuration_is_refused_by_the_dry_run_without_a_traceback(world, change, message):
    """Wherever it is noticed: in the settings, the plan, a file, a table."""
    change(world.config)
    text = failing(world, "-n")
    assert message in text and "Traceback" not in text and "Job stats" not in text


@pytest.mark.ci(0)
def test_settings_are_data_for_the_shell(world):
    """A label or path with quotes, spaces and substitutions reaches the commands as it is and is not executed."""
    strange = 'it\'s $(touch hacked) `touch hacked` "{x}" ; touch hacked'
    world.config["experiments"] = {"tele": {"label": strange, "episodes": CONFIG["episodes"]}}
    world.snakemake()
    assert not (world.folder / "hacked").exists()
    with open(world.folder / "results/tables/main.csv", newline="") as file:
        assert strange in {row["system"] for row in csv.DictReader(file)}


def test_a_manifest_tells_the_whole_story(finished):
    manifest = next(m for name, m in finished.manifests().items() if name.startswith("train/"))
    assert set(manifest) == {"kind", "key", "stamp", "settings", "inputs", "facts", "files", "provenance", "sha256"}
    assert {
        "code",
        "git_commit",
        "versions",
        "hardware",
        "threads",
        "wall_seconds",
        "peak_memory_bytes",
        "seed",
    } <= set(manifest["provenance"])
    assert manifest["provenance"]["seed"] == 42 and manifest["inputs"]["negatives"].startswith("merge/")
    card = finished.folder / "results/stages/train" / manifest["key"] / "checkpoint" / "README.md"
    assert json.dumps(manifest["settings"]["training"]["steps"]) in card.read_text()
