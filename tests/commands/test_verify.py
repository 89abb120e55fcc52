"""What `teleport verify` does at size: how far it is, several stages at once, a block of each file in memory."""

import logging
import threading
import time
import tracemalloc

import pytest

import manage
from commands import disk
from teleport.running import artefact
from teleport.running.artefact import MANIFEST, STAGES, file_entry
from teleport.running.files import write_json

pytestmark = pytest.mark.usefixtures("empty_folder")


def finish(number, size):
    """A finished stage with a file of so many bytes; returns its path."""
    key = f"{number:012x}"
    path = STAGES / "tokens" / key / "ids.npy"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(size))
    write_json(path.with_name(MANIFEST), {"kind": "tokens", "key": key, "files": {"ids.npy": file_entry(path)}})
    return path


def test_what_is_wrong_is_said_in_the_order_of_the_names_whoever_is_done_first():
    sizes = [3_000_000, 10, 10, 2_000_000]
    paths = [finish(number, size) for number, size in enumerate(sizes)]
    for path in (paths[0], paths[2]):
        path.write_bytes(b"x" * path.stat().st_size)
    paths[3].with_name(MANIFEST).write_text("{")
    wrong, number = disk.check_stages()
    assert number == 4 and len(wrong) == 3
    assert all(str(path.parent) in text for path, text in zip((paths[0], *paths[2:]), wrong, strict=True))


def test_a_single_stage_is_told_in_the_singular(monkeypatch, capsys):
    monkeypatch.setattr("teleport.running.log.configure_logging", lambda: None)
    finish(0, 10)
    assert manage.verify() == 0
    assert capsys.readouterr().out == "1 stage sound, 0 torn or edited, 0 links to missing stages\n"


def test_it_says_how_much_is_read_how_fast_and_what_is_left(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "teleport")
    monkeypatch.setattr("teleport.running.log.PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(disk, "HASHING", 1)
    for number in range(4):
        finish(number, 2_000_000)
    assert disk.check_stages() == ([], 4)
    assert [text.split(",")[0] for text in caplog.messages] == ["0/8 MB", "2/8 MB", "4/8 MB", "6/8 MB"]
    assert caplog.messages[2].endswith(" s left") and " MB/s, " in caplog.messages[2]


def test_several_stages_are_hashed_at_once(monkeypatch):
    """Each of two waits until the other is being hashed."""
    for number in range(2):
        finish(number, 10)
    monkeypatch.setattr(disk.os, "sched_getaffinity", lambda process: {0, 1})
    both, hashed = threading.Barrier(2), artefact.sha256_file
    monkeypatch.setattr(artefact, "sha256_file", lambda path: both.wait(timeout=30) >= 0 and hashed(path))
    assert disk.check_stages() == ([], 2)


def test_a_large_file_is_never_in_memory_as_a_whole(monkeypatch):
    finish(0, 64_000_000)
    tracemalloc.start()
    try:
        assert disk.check_stages() == ([], 1)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_has_not_begun_is_not_hashed_after_ctrl_c_or_an_error_of_the_disk(error, monkeypatch):
    for number in range(50):
        finish(number, 10)
    begun = []

    def interrupted(path):
        begun.append(path)
        time.sleep(0.1 * (len(begun) > 1))
        raise error

    monkeypatch.setattr(disk, "HASHING", 1)
    monkeypatch.setattr(artefact, "sha256_file", interrupted)
    with pytest.raises(error):
        disk.check_stages()
    assert 1 <= len(begun) < 50
