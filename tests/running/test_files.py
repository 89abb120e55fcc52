"""Files that several processes write at once."""

import multiprocessing
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock, patch

import pytest

from teleport.refusal import Refusal
from teleport.running.files import part_of, remove_parts, require_output, write_text

TEXTS = [letter * size for letter, size in zip("abcd", (10, 1_000_000, 3_000_000, 70_000), strict=True)]


def write_often(path, text):
    for _ in range(30):
        write_text(path, text)


@pytest.mark.ci(0)
def test_processes_that_write_one_file_leave_one_of_their_texts_whole(tmp_path):
    path, context = tmp_path / "table.md", multiprocessing.get_context("fork")
    writers = [context.Process(target=write_often, args=(path, text)) for text in TEXTS]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            seen.add(path.read_text())
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * len(TEXTS), "no file vanished from under a process"
    assert seen and seen <= set(TEXTS) and path.read_text() in TEXTS
    assert [each.name for each in tmp_path.iterdir()] == ["table.md"]


def test_what_a_killed_process_has_left_goes(tmp_path):
    def killed():
        with patch.object(Path, "write_bytes", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)):
            write_text(tmp_path / "table.md", "")

    def killed_later():
        with patch.object(os, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
            write_text(tmp_path / "table.md", "half")

    for function in (killed, killed_later):
        process = multiprocessing.get_context("fork").Process(target=function)
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    write_text(tmp_path / "table.md", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"]


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("what", ["pipe", "link", "dangling", "other", "proc", "device"])
def test_an_output_is_a_file_or_an_empty_folder_of_ours_or_refused(tmp_path, what, folder):
    path = {"proc": Path("/proc/out"), "device": Path("/dev/null")}.get(what, tmp_path / "out")
    if what == "pipe":
        os.mkfifo(path)
    if what in ("link", "dangling"):
        path.symlink_to(tmp_path if what == "link" else "nowhere")
    if what == "other":
        path.write_text("mine") if folder else path.mkdir()
    with pytest.raises(Refusal, match=str(path)) as refusal:
        require_output(path, folder)
    assert str(refusal.value).count("Give another path") == 1
    for sound in ("absent", "there"):
        made = tmp_path / sound
        if sound == "there":
            made.mkdir() if folder else made.write_text("")
        require_output(made, folder)


@pytest.mark.parametrize(("content", "taken"), [("", True), ("{}", True), ("name: x", False), ("\n{", False)])
def test_a_file_is_replaced_by_one_that_begins_alike(tmp_path, content, taken):
    path = tmp_path / "out.jsonl"
    path.write_text(content)
    with nullcontext() if taken else pytest.raises(Refusal, match=f"{path} .*another kind"):
        require_output(path, begins=b"{")
    assert path.read_text() == content


@pytest.mark.parametrize("name", ["pool.jsonl.gz", "pool.jsonl.ZST"])
def test_no_file_is_called_compressed_and_is_not(tmp_path, name):
    with pytest.raises(Refusal, match=f"{tmp_path / name}: .*uncompressed"):
        require_output(tmp_path / name, begins=b"{")
    require_output(tmp_path / name, folder=True)


@pytest.mark.parametrize("make", [lambda path: path.write_text("mine"), lambda path: path.symlink_to("nowhere")])
def test_what_stands_where_a_folder_has_to_be_is_named(tmp_path, make):
    make(tmp_path / "data")
    with pytest.raises(Refusal, match=f"{tmp_path}/data/out/a .*: {tmp_path}/data is a (file|link)"):
        require_output(tmp_path / "data/out/a", folder=True)


def test_a_part_of_another_user_s_process_stays_though_proc_hides_it(tmp_path, monkeypatch):
    """As on a cluster whose /proc is mounted with hidepid=2."""
    part = tmp_path / f"out.{os.uname().nodename}-{2**30}-1.part"
    part.touch()
    with monkeypatch.context() as hidden:
        hidden.setattr(os, "kill", MagicMock(side_effect=PermissionError))
        remove_parts(tmp_path / "out")
    assert part.exists()
    remove_parts(tmp_path / "out")
    assert not part.exists(), "there is no such process"


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_part_is_removed_though_the_removal_itself_is_interrupted(tmp_path, end):
    """At Ctrl-C a stage ends by KeyboardInterrupt, a command by SystemExit."""
    calls, rmdir = [], os.rmdir

    def interrupted_once(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 1:
            raise end
        rmdir(*arguments, **options)

    with patch.object(os, "rmdir", interrupted_once), pytest.raises(end), part_of(tmp_path / "out") as part:
        part.mkdir()
    assert len(calls) == 2 and list(tmp_path.iterdir()) == []
