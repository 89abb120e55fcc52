"""Searches of the same vectors in one process, which opens them once: files, locks, and what a kill leaves."""

import fcntl
import json
import subprocess
import sys

import numpy as np
import pytest

from collection_world import make_collection
from paths import REPOSITORY
from teleport.arrays import save_array
from teleport.cpu import search
from teleport.running.artefact import MANIFEST
from teleport.running.run import FINISHED, UNCLAIMED, claim, make_siblings, run, take
from teleport.search import engines, index, retrieve

QUERIES = {"train": 11, "dev": 5, "test": 3}
JUDGMENTS = {"train": [(2, 8, 2), (0, 5, 2), (1, 4, 1)]}
SEARCHES = [
    {"of": "queries", "split": "dev", "depth": 30},
    {"of": "queries", "split": "train", "depth": 20},
    {"of": "positives", "split": "train", "depth": 20, "anchor": "all"},
    {"of": "queries", "split": "test", "depth": 30},
]
KINDS = {
    "flat": {},
    "ivf": {"index": {"kind": "ivf", "nlist": 2, "nprobe": 2}, "depth": 10},
    "pq": {"index": {"kind": "pq", "m": 4, "bits": 4}, "depth": 10},
}


@pytest.fixture(params=[{}])
def world(stages, request):
    """The inputs of a search: a collection, vectors and an index, finished."""
    rng = np.random.default_rng(0)
    collection, encoded = make_collection(stages, 90, QUERIES, JUDGMENTS), stages.make("encode")
    for name, rows in {"passages": 90, **{f"queries.{split}": rows for split, rows in QUERIES.items()}}.items():
        save_array(encoded.output(f"{name}.npy"), rng.standard_normal((rows, 8)).astype(np.float32))
    stages.finish(encoded)
    searched = {"collection": collection, "passages": encoded, "queries": encoded}
    return searched | {"index": stages.run(index.run, "index", request.param, searched)}


@pytest.fixture
def jobs(stages, world):
    """One job for each search, of which none has run."""
    return [stages.make("retrieve", settings, world, save_every=0.0) for settings in SEARCHES]


@pytest.fixture
def opened(monkeypatch):
    """A list with the number of lines for which vectors are opened, each time that they are."""
    lines, open_index = [], engines.open_exact

    def noting(vectors, threads, queries_QD, number, depth, engine):
        lines.append(number)
        return open_index(vectors, threads, queries_QD, number, depth, engine)

    monkeypatch.setattr(retrieve, "open_exact", noting)
    return lines


def together(first, *others):
    """Run a job as run_stage does, and those that it finds free among the others; returns these."""
    locks = claim(first, [job.spec for job in others])
    run(first, beside=first)
    make_siblings(first, locks)
    assert take(first)
    return first.siblings


def digests(job):
    return {name: entry["sha256"] for name, entry in json.loads((job.folder / MANIFEST).read_text())["files"].items()}


def facts(job):
    found = json.loads((job.folder / MANIFEST).read_text())["facts"]
    return {name: found[name] for name in found.keys() - {"seconds", "lines_per_second"}}


@pytest.mark.parametrize("world", KINDS.values(), ids=KINDS, indirect=True)
def test_siblings_have_the_files_of_searches_alone(stages, world, jobs):
    alone = [stages.make("retrieve", settings, world) for settings in SEARCHES]
    for job in alone:
        run(job)
    assert [job.key for job in together(*jobs)] == [job.key for job in jobs[1:]]
    assert not any((job.folder / MANIFEST).exists() for job in jobs[1:]), "Snakemake would not see their jobs run"
    assert all(map(take, jobs[1:]))
    for one, other in zip(alone, jobs, strict=True):
        assert digests(one) == digests(other) and len(digests(one)) == 3 and facts(one) == facts(other)
        assert not other.resume.exists() and sorted(path.name for path in other.folder.iterdir()) == [
            "ids.npy",
            MANIFEST,
            "rows.npy",
            "scores.npy",
        ]


def test_the_vectors_are_opened_once_for_the_lines_of_all(jobs, opened, monkeypatch):
    mapped, open_passages = [], retrieve.open_passages
    monkeypatch.setattr(retrieve, "open_passages", lambda job: mapped.append(job.key) or open_passages(job))
    together(*jobs)
    assert opened == [5 + 11 + 3 + 3] and mapped == [jobs[0].key]


def test_alone_each_search_opens_them(jobs, opened):
    for job in jobs:
        run(job)
    assert opened == [5, 11, 3, 3]


def test_the_longest_search_decides_on_the_engine(jobs, monkeypatch):
    probed = []
    monkeypatch.setattr(search, "PROBE_SCORES", 0)
    monkeypatch.setattr(search, "PROBE_ROWS", 10)
    monkeypatch.setattr(search, "computes_in_int8", lambda: True)
    monkeypatch.setattr(
        search, "probe", lambda v, kind, t, queries_QD, *rest: probed.append((len(queries_QD), *rest)) or len(probed)
    )
    together(*jobs)
    assert probed == [(11, 22, 20)] * 2


def test_a_stage_that_another_process_makes_is_left_to_it(jobs):
    jobs[1].lock.parent.mkdir(parents=True)
    with open(jobs[1].lock, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert [job.key for job in together(*jobs)] == [jobs[2].key, jobs[3].key]
    assert not jobs[1].folder.exists() and not take(jobs[1])


def test_the_locks_are_held_from_the_claim_on_and_given_back(jobs):
    locks = claim(jobs[0], [jobs[1].spec])
    with open(jobs[1].lock, "a") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        run(jobs[0], beside=jobs[0])
        make_siblings(jobs[0], locks)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_job_that_comes_meanwhile_waits_and_ends_without_a_search(jobs, tmp_path):
    locks = claim(jobs[0], [jobs[1].spec])
    program = str(REPOSITORY / "workflow_scripts/run_stage.py")
    command = [sys.executable, program, "--spec", json.dumps(jobs[1].spec), "--code", "test"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert "waiting: another process" in process.stderr.readline()
    run(jobs[0], beside=jobs[0])
    make_siblings(jobs[0], locks)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0 and f"was finished by the job of retrieve/{jobs[0].key}" in said
    assert "opened" not in said and (jobs[1].folder / MANIFEST).exists()


@pytest.mark.parametrize("name", [MANIFEST, UNCLAIMED, FINISHED])
def test_what_is_finished_is_not_made_again(jobs, opened, name):
    run(jobs[1])
    (jobs[1].folder / MANIFEST).rename(jobs[1].folder / name)
    before = (jobs[1].folder / name).read_bytes()
    assert jobs[1].key not in [job.key for job in together(*jobs)]
    assert (jobs[1].folder / name).read_bytes() == before and opened == [11, 5 + 3 + 3]


@pytest.mark.parametrize("name", [MANIFEST, UNCLAIMED])
def test_what_other_code_has_made_is_made_anew(jobs, name):
    job = jobs[1].sibling(jobs[1].spec | {"code": "other"})
    run(job)
    (job.folder / MANIFEST).rename(job.folder / name)
    assert not take(jobs[1])
    together(*jobs)
    assert not (jobs[1].folder / MANIFEST).exists() and take(jobs[1])


def test_a_stage_whose_vectors_are_not_finished_is_left(jobs):
    later = jobs[1].spec | {"inputs": jobs[1].spec["inputs"] | {"queries": "encode/" + "f" * 12}}
    assert claim(jobs[0], [later, jobs[2].spec]) and [job.key for job in jobs[0].siblings] == [jobs[2].key]


def test_what_is_wrong_with_a_sibling_is_said_by_its_own_job(stages, world, jobs, caplog):
    encoded, vectors = stages.make("encode"), np.load(world["queries"].folder / "queries.train.npy")
    vectors[7, 2] = np.nan
    save_array(encoded.output("queries.train.npy"), vectors)
    wrong = stages.make("retrieve", SEARCHES[1], world | {"queries": stages.finish(encoded)})
    together(jobs[0], wrong, jobs[3])
    assert take(jobs[3]) and not take(wrong) and not wrong.resume.exists()
    assert (
        f"retrieve/{wrong.key} is left to its own job: " in caplog.text and "query row 7 is not finite" in caplog.text
    )
    with pytest.raises(ValueError, match="query row 7 is not finite"):
        run(wrong)


@pytest.mark.parametrize("when", ["while it searches", "before its manifest"])
def test_a_kill_leaves_what_is_published_finished_and_the_rest_to_be_resumed(stages, world, jobs, monkeypatch, when):
    """Of four searches the third is killed; the first, whose job fails with it, and the second need no search then."""
    monkeypatch.setattr(retrieve, "BLOCK_ROWS", 2)
    searched, search = [], retrieve.Exact.search

    def killed(self, queries_QD, *rest):
        searched.append(len(queries_QD))
        if len(searched) == 3 + 6 + 2 and when == "while it searches":
            raise KeyboardInterrupt
        return search(self, queries_QD, *rest)

    monkeypatch.setattr(retrieve.Exact, "search", killed)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if when == "before its manifest":
            publish = type(jobs[2]).publish

            def dies(job):
                if job.key == jobs[2].key:
                    raise KeyboardInterrupt
                return publish(job)

            patch.setattr(type(jobs[2]), "publish", dies)
        together(*jobs)
    assert not any((job.folder / MANIFEST).exists() for job in jobs)
    count = len(searched)
    again = [job.sibling(job.spec) for job in jobs]
    assert [take(job) for job in again] == [True, True, False, False] and len(searched) == count
    together(again[2], again[3])
    assert searched[count:] == ([1, 2, 1] if when == "while it searches" else [2, 1]), (
        "the rest of the third, and the fourth"
    )
    alone = stages.make("retrieve", SEARCHES[2], world)
    run(alone)
    assert digests(alone) == digests(again[2])


def test_a_manifest_that_is_not_taken_whole_is_taken_again(jobs, monkeypatch):
    """Killed between the two names: the next job takes it once more, and removes the one that is left."""
    together(*jobs)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("teleport.running.run.sync", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
        take(jobs[1])
    assert (jobs[1].folder / MANIFEST).exists() and (jobs[1].folder / UNCLAIMED).exists()
    (jobs[1].folder / MANIFEST).unlink()  # as Snakemake does before a job
    assert take(jobs[1]) and not (jobs[1].folder / UNCLAIMED).exists()


def test_torn_files_are_not_taken(jobs):
    together(*jobs)
    with open(jobs[1].folder / "ids.npy", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    assert not take(jobs[1])
    run(jobs[1])
    assert not (jobs[1].folder / UNCLAIMED).exists()
