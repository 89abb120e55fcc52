"""Downloads over a real connection on the loopback interface: what is kept, continued, refused and reported."""

import hashlib
import itertools
import json
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopback import Server
from teleport.collection import download, fetch
from teleport.running.files import of_the_system

BODY = random.Random(0).randbytes(100_000)
SHA256, MD5 = hashlib.sha256(BODY).hexdigest(), hashlib.md5(BODY).hexdigest()
HEADERS = b'HTTP/1.1 302 Found\r\nETag: "0"\r\n\r\nHTTP/1.1 200 OK\r\netag: "one"\r\nA: b\r\n\r\n'
UNKNOWN = {"bytes": None, "sha256": None, "md5": None}


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0.0)
    # Of a test process that holds gigabytes, a copy takes half a second; without this it is not copied to start curl.
    monkeypatch.setattr(fetch, "end_with_parent", None)
    server = Server({"file.bin": BODY})
    yield server
    server.close()


def get(server, path, expected=None, names=("file.bin",)):
    return fetch.fetch(path, [server.url(name) for name in names], UNKNOWN | (expected or {}))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_its_digests_are_returned(server, tmp_path):
    found = get(server, tmp_path / "file.bin", {"bytes": len(BODY), "sha256": SHA256, "md5": MD5})
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert found == {"bytes": 100_000, "sha256": SHA256, "md5": MD5}
    assert names_in(tmp_path) == ["file.bin"]


def test_a_cut_connection_is_continued_where_it_was_cut(server, tmp_path):
    server.cuts["file.bin"] = 30_000
    get(server, tmp_path / "file.bin", {"sha256": SHA256})
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert server.requests == [("file.bin", None), ("file.bin", "bytes=30000-")]


@pytest.mark.parametrize("received", [70_000, 100_000])
def test_a_later_run_continues_what_a_killed_one_left(server, tmp_path, received):
    (tmp_path / "file.bin.part").write_bytes(BODY[:received])
    get(server, tmp_path / "file.bin", {"md5": MD5})
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert server.requests == [("file.bin", f"bytes={received}-")], "also one that was whole, but had not its name yet"


def test_a_server_without_ranges_starts_from_the_beginning(server, tmp_path):
    server.ranges, server.cuts["file.bin"] = False, 30_000
    get(server, tmp_path / "file.bin", {"sha256": SHA256})
    assert (tmp_path / "file.bin").read_bytes() == BODY


def changing(server, versions):
    """Have the server answer request n with versions[n], a pair of content and ETag; the last for ever."""

    class Changing(dict):
        def get(self, name):
            body, server.etag = versions[min(len(server.requests), len(versions)) - 1]
            return body

    server.files = Changing()


@pytest.mark.parametrize("etags", [('"one"', '"two"'), (None, None), ('W/"one"', 'W/"one"')])
def test_halves_of_two_versions_are_never_joined(server, tmp_path, etags):
    """Without a digest only the server's strong ETag tells versions apart; without that nothing is continued."""
    changed = BODY[::-1]
    changing(server, [(BODY, etags[0]), (changed, etags[1])])
    server.cuts["file.bin"] = 30_000
    get(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == changed and names_in(tmp_path) == ["file.bin"]


def test_one_version_is_continued_without_a_digest(server, tmp_path):
    server.etag, server.cuts["file.bin"] = '"one"', 30_000
    get(server, tmp_path / "file.bin")
    (tmp_path / "later.bin.part").write_bytes(BODY[:70_000])
    (tmp_path / "later.bin.part.headers").write_bytes(HEADERS)
    fetch.fetch(tmp_path / "later.bin", ["http://127.0.0.1:9/b", server.url("file.bin")], UNKNOWN)
    assert [asked for _, asked in server.requests] == [None, "bytes=30000-", "bytes=70000-"]
    assert (tmp_path / "file.bin").read_bytes() == (tmp_path / "later.bin").read_bytes() == BODY


def test_a_continued_file_with_another_digest_is_fetched_once_more_from_its_start(server, tmp_path):
    changed = BODY[::-1]
    changing(server, [(BODY, None), (changed, None)])
    server.cuts["file.bin"] = 30_000
    get(server, tmp_path / "file.bin", {"sha256": hashlib.sha256(changed).hexdigest()})
    assert (tmp_path / "file.bin").read_bytes() == changed
    assert [asked for _, asked in server.requests] == [None, "bytes=30000-", None]
    (tmp_path / "wrong.bin.part").write_bytes(b"x" * 500)
    with pytest.raises(ValueError, match="has md5"):
        get(server, tmp_path / "wrong.bin", {"md5": MD5})
    assert names_in(tmp_path) == ["file.bin", "wrong.bin.other"] and len(server.requests) == 5, "only once"


def test_the_users_own_settings_of_curl_and_the_shell_have_no_say(server, tmp_path, monkeypatch):
    (tmp_path / ".curlrc").write_text("fail = no\nrange = 0-9\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CURL_HOME", str(tmp_path))
    name, path = "a;$(touch${IFS}x)[1-2]{c}", tmp_path / "new/-o file"
    server.files[name] = BODY
    get(server, path, names=(name,))
    assert path.read_bytes() == BODY and names_in(tmp_path) == [".curlrc", "new"]


def test_without_curl_the_remedy_is_named(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match=r"curl.*collection.local\.$"):
        get(server, tmp_path / "file.bin")


def test_a_file_larger_than_the_free_space_is_refused_at_once(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda folder: SimpleNamespace(free=5000))
    with pytest.raises(ValueError, match=r"file.bin .* 5,000 bytes free .*file.bin.part"):
        get(server, tmp_path / "file.bin", names=("file.bin", "mirror"))
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", ["bytes", "sha256", "md5"])
def test_a_file_with_another_digest_is_set_aside(server, tmp_path, name):
    wrong = {"bytes": 99_999, "sha256": "0" * 64, "md5": "0" * 32}[name]
    with pytest.raises(ValueError, match=f"file.bin, .*file.bin, has {name} .* {wrong}"):
        get(server, tmp_path / "file.bin", {name: wrong})
    assert names_in(tmp_path) == ["file.bin.other"]


@pytest.mark.parametrize("first", ["gone", "empty"])
def test_a_mirror_without_the_file_falls_to_the_next(server, tmp_path, first):
    server.files["empty"] = b""
    get(server, tmp_path / "file.bin", names=(first, "file.bin"))
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert list(dict.fromkeys(name for name, _ in server.requests)) == [first, "file.bin"]


def test_a_mirror_with_another_file_falls_to_the_next(server, tmp_path):
    server.files["other"] = b"Please log in."
    assert get(server, tmp_path / "file.bin", {"sha256": SHA256}, names=("other", "file.bin"))["bytes"] == len(BODY)
    with pytest.raises(ValueError, match="other, fetched for .* has sha256 "):
        get(server, tmp_path / "wrong.bin", {"sha256": SHA256}, names=("other", "gone"))
    assert names_in(tmp_path) == ["file.bin"]


def test_when_all_mirrors_fail_every_one_is_listed(server, tmp_path):
    with pytest.raises(ValueError) as error:
        fetch.fetch(tmp_path / "file.bin", [server.url("a"), "http://127.0.0.1:9/b"], UNKNOWN)
    message = str(error.value)
    assert (
        f"{server.url('a')}: The requested URL returned error: 404" in message and "http://127.0.0.1:9/b: " in message
    )
    assert "collection.files.file.bin.mirrors" in message and "collection.local" in message


def test_a_server_that_always_cuts_at_once_is_given_up(server, tmp_path):
    class Cuts(dict):
        def pop(self, name, default):
            return 0

    server.cuts = Cuts()
    with pytest.raises(ValueError, match="100000 bytes.*5 times"):
        get(server, tmp_path / "file.bin")


def test_a_download_that_gets_on_is_never_given_up(server, tmp_path):
    """One connection in three brings something: cut more than five times, but never five times in a row in vain."""

    class Cuts(dict):
        def pop(self, name, default):
            return 11_000 if len(server.requests) % 3 == 1 else 0

    server.cuts = Cuts()
    get(server, tmp_path / "file.bin", {"sha256": SHA256})
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert len(server.requests) == 28, "ten pieces, and two fruitless connections between each two"


def test_a_full_disk_is_not_blamed_on_the_mirrors(server, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    try:
        with pytest.raises(OSError) as error:
            get(server, tmp_path / "file.bin", {"sha256": SHA256}, names=("file.bin", "mirror"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {name for name, _ in server.requests} == {"file.bin"}
    assert of_the_system(error.value)[0] == "no room left on the disk"


def test_a_folder_that_cannot_be_written_is_not_blamed_on_the_mirrors(server, tmp_path):
    (tmp_path / "file.bin.part").mkdir()
    with pytest.raises(IsADirectoryError):
        get(server, tmp_path / "file.bin", {"sha256": SHA256}, names=("file.bin", "mirror"))


@pytest.mark.parametrize("url", ["http://", "http:///file", "http://[::1", "http://a:b/c", "http://a b/", "http://ä/ö"])
def test_a_malformed_url_falls_to_the_next_mirror(server, tmp_path, url):
    fetch.fetch(tmp_path / "file.bin", [url, server.url("file.bin")], UNKNOWN)
    assert (tmp_path / "file.bin").read_bytes() == BODY
    with pytest.raises(ValueError, match="mirror"):
        fetch.fetch(tmp_path / "other.bin", [url], UNKNOWN)


@contextmanager
def raw_server(*parts, pause=0.0):
    """The URL of a server that answers with `parts`, after a pause each; where there is one, the last for ever."""
    listening, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve(connection):
        with suppress(OSError), connection:
            connection.recv(65536)
            for part in itertools.chain(parts, itertools.repeat(parts[-1]) if pause else ()):
                connection.sendall(part)
                if ended.wait(pause):
                    return

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=listening.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/file.bin"
    ended.set()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


LINE = b"HTTP/1.1 200 OK\r\n"
CHUNKED = LINE + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        LINE + b"Content-Length: many\r\n\r\nx",
        b"HTTP/1.1 302 Found\r\nLocation: http://[::1/x\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http:///x\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
        LINE + b"A: b\r\n" * 1000,
        LINE + b"A" * 100_000,
        CHUNKED + b"zz\r\nxx\r\n",
        b"nonsense",
        b"",
    ],
)
def test_an_answer_that_is_not_http_falls_to_the_next_mirror(server, tmp_path, answer):
    with raw_server(answer) as url:
        fetch.fetch(tmp_path / "file.bin", [url, server.url("file.bin")], UNKNOWN)
    assert (tmp_path / "file.bin").read_bytes() == BODY and names_in(tmp_path) == ["file.bin"]


@pytest.mark.parametrize(
    "parts",
    [
        [LINE + b"Content-Length: 9999999\r\n\r\n", b"x"],
        [CHUNKED + b"1;", b"x"],
        [LINE, b"A: x\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n"],
    ],
)
def test_an_answer_without_end_falls_to_the_next_mirror(server, tmp_path, monkeypatch, caplog, parts):
    """Each byte in time: no timeout of a socket ends it."""
    caplog.set_level("INFO", "teleport")
    monkeypatch.setattr(fetch, "TIMEOUT_SECONDS", 1)
    monkeypatch.setattr(fetch, "ATTEMPTS", 2)
    started = time.monotonic()
    with raw_server(*parts, pause=0.02) as url:
        fetch.fetch(tmp_path / "file.bin", [url, server.url("file.bin")], UNKNOWN)
    assert "Less than 1000 bytes/sec transferred the last 1 seconds, 2 times in a row" in caplog.text
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("answers", [1, 9])
def test_a_piece_of_a_file_is_never_taken_for_the_whole(server, tmp_path, monkeypatch, answers):
    """206 without having been asked for a range: what lacks is asked for, and in vain another mirror."""
    monkeypatch.setattr(fetch, "ATTEMPTS", 2)
    piece = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-599/100000\r\nContent-Length: 600\r\n"
    piece += b'Connection: close\r\nETag: "one"\r\n\r\n' + BODY[:600]
    rest = piece.replace(b"0-599", b"600-99999").replace(b"th: 600", b"th: 99400").replace(BODY[:600], BODY[600:])
    with raw_server(piece) as short, raw_server(rest) as whole:
        run, urls = fetch.run_curl, iter([short] * answers + [whole] * 9)
        asked = lambda url, *rest: run(next(urls) if url == short else url, *rest)  # noqa: E731
        monkeypatch.setattr(fetch, "run_curl", asked)
        fetch.fetch(tmp_path / "file.bin", [short, server.url("file.bin")], UNKNOWN)
    assert (tmp_path / "file.bin").read_bytes() == BODY and names_in(tmp_path) == ["file.bin"]
    assert bool(server.requests) == (answers > 1)


def test_a_piece_that_is_longer_than_the_file_is_of_another_version(server, tmp_path):
    """The server gives both one ETag. It answers 416, as it does to a piece that is whole."""
    (tmp_path / "file.bin.part").write_bytes(BODY[::-1][:70_000])
    (tmp_path / "file.bin.part.headers").write_bytes(HEADERS)
    server.etag, server.files["file.bin"] = '"one"', BODY[:50_000]
    get(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY[:50_000] and names_in(tmp_path) == ["file.bin"]
    assert [asked for _, asked in server.requests] == ["bytes=70000-", None]


@pytest.mark.parametrize("noted", [None, b"", b"\xff\xfe{", HEADERS[:-14], b'ETag: "' + b"a" * 99_999 + b'"'])
@pytest.mark.parametrize("expected", [{}, {"sha256": SHA256}])
def test_torn_headers_of_an_unfinished_download_name_no_version(server, tmp_path, noted, expected):
    (tmp_path / "file.bin.part").write_bytes(BODY[:500] if expected else b"x" * 500)
    if noted is not None:
        (tmp_path / "file.bin.part.headers").write_bytes(noted)
    get(server, tmp_path / "file.bin", expected)
    assert (tmp_path / "file.bin").read_bytes() == BODY and names_in(tmp_path) == ["file.bin"]


# --- the stage ------------------------------------------------------------------------------------------------------


def job(stages, server, files, local=None, licences=None):
    mirrors = {name: [server.url(name)] for name in files}
    origins = {"mirrors": mirrors, "local": local and str(local), "licences": licences or {}}
    return stages.make("download", {"files": files}, origins=origins)


def test_the_stage_fetches_once_and_verifies_ever_after(stages, server, tmp_path):
    facts = download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}))
    path = "data/downloads/file.bin"
    assert facts == {"files": {"file.bin": {"path": path, "bytes": 100_000, "sha256": SHA256}}}
    assert download.run(job(stages, server, {"file.bin": {"sha256": SHA256}})) == facts
    assert len(server.requests) == 1
    (tmp_path / path).write_bytes(b"edited")
    with pytest.raises(ValueError, match="data/downloads/file.bin has sha256 .*, expected"):
        download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}))
    assert (tmp_path / f"{path}.other").read_bytes() == b"edited" and not (tmp_path / path).exists()


def test_a_digest_that_is_wrong_costs_no_download(stages, server, tmp_path):
    """The file is set aside, and taken back once the digest is right."""
    kept, other = (tmp_path / "data/downloads" / name for name in ("file.bin", "file.bin.other"))
    for _ in ("fetched", "fetched again, as the file that was set aside does not fit either"):
        with pytest.raises(ValueError, match=f"expected {'0' * 64}.* data/downloads/file.bin.other"):
            download.run(job(stages, server, {"file.bin": {"sha256": "0" * 64}}))
        assert other.read_bytes() == BODY and not kept.exists()
    requests = len(server.requests)
    download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}))
    assert kept.read_bytes() == BODY and not other.exists() and len(server.requests) == requests
    assert names_in(kept.parent) == [".file.bin.lock", "file.bin"]


def test_collections_with_files_of_one_name_take_turns_without_downloads(stages, server, tmp_path):
    one, server.files["file.bin"] = server.files["file.bin"], b"another"
    two = hashlib.sha256(b"another").hexdigest()
    download.run(job(stages, server, {"file.bin": {"sha256": two}}))
    server.files["file.bin"] = one
    with pytest.raises(ValueError, match=f"expected {SHA256}"):
        download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}))
    for sha256 in (SHA256, two, SHA256):
        download.run(job(stages, server, {"file.bin": {"sha256": sha256}}))
        found = (tmp_path / "data/downloads/file.bin").read_bytes()
        assert hashlib.sha256(found).hexdigest() == sha256
    assert len(server.requests) == 2
    assert names_in(tmp_path / "data/downloads") == [".file.bin.lock", "file.bin", "file.bin.other"]


def test_two_that_find_another_file_at_once_keep_both(stages, server, tmp_path, monkeypatch):
    """The second one waited while the first one took its file back."""
    folder = tmp_path / "data/downloads"
    folder.mkdir(parents=True)
    (folder / "file.bin").write_bytes(b"another")
    (folder / "file.bin.other").write_bytes(BODY)
    locked, first = download.locked, []

    @contextmanager
    def after_the_first(path, reason):
        if not first:
            first.append(True)
            download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}))
        with locked(path, reason):
            yield

    monkeypatch.setattr(download, "locked", after_the_first)
    facts = download.run(job(stages, server, {"file.bin": {"sha256": SHA256, "bytes": len(BODY)}}))
    assert facts["files"]["file.bin"]["sha256"] == SHA256 and not server.requests
    assert (folder / "file.bin").read_bytes() == BODY and (folder / "file.bin.other").read_bytes() == b"another"


@pytest.mark.parametrize("kill", [0, 1, 2])
def test_a_kill_while_files_take_turns_loses_neither(stages, server, tmp_path, monkeypatch, kill):
    folder = tmp_path / "data/downloads"
    folder.mkdir(parents=True)
    (folder / "file.bin").write_bytes(b"another")
    (folder / "file.bin.other").write_bytes(BODY)
    replace, calls = Path.replace, itertools.count()

    def dies(path, to):
        if next(calls) == kill:
            raise KeyboardInterrupt
        return replace(path, to)

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Path, "replace", dies)
        download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}))
    download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}))
    download.run(job(stages, server, {"file.bin": {"sha256": hashlib.sha256(b"another").hexdigest()}}))
    assert (folder / "file.bin").read_bytes() == b"another" and (folder / "file.bin.other").read_bytes() == BODY
    assert not server.requests


def test_a_file_of_first_use_is_taken_back(stages, server, tmp_path):
    """It has no published digest; another collection's file of this name was in its place."""
    download.run(job(stages, server, {"file.bin": {}}))
    server.files["file.bin"], two = b"another", hashlib.sha256(b"another").hexdigest()
    with pytest.raises(ValueError, match="file.bin.other"):
        download.run(job(stages, server, {"file.bin": {"sha256": two}}))
    download.run(job(stages, server, {"file.bin": {"sha256": two}}))
    assert (
        download.run(job(stages, server, {"file.bin": {"bytes": len(BODY)}}))["files"]["file.bin"]["sha256"] == SHA256
    )
    assert len(server.requests) == 2


def test_workflows_that_fetch_one_file_at_once_fetch_it_once(server, tmp_path, monkeypatch):
    """Each in a process of its own: one fetches, the others wait for it and take its file."""
    answer = server.answer

    def answer_once_all_have_begun(request):
        while len(list(tmp_path.glob("begun.*"))) < 3:
            time.sleep(0.01)
        time.sleep(0.5)
        answer(request)

    monkeypatch.setattr(server, "answer", answer_once_all_have_begun)
    expected, origins = (
        {"bytes": None, "sha256": SHA256, "md5": None},
        {"mirrors": {"file.bin": [server.url("file.bin")]}},
    )
    script = (
        "import os; from teleport.collection import download; open(f'begun.{os.getpid()}', 'w').close(); "
        f"print(download.obtain('file.bin', {expected}, {origins}))"
    )
    command, environment = [sys.executable, "-c", script], os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(3)]
    printed = {process.communicate()[0] for process in started}
    assert len(printed) == 1 and SHA256 in printed.pop().decode() and len(server.requests) == 1


def test_a_kill_right_after_the_name_leaves_no_note(stages, server, tmp_path, monkeypatch):
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(fetch, "forget", lambda part: (_ for _ in ()).throw(KeyboardInterrupt))
        download.run(job(stages, server, {"file.bin": {}}))
    kept = [".file.bin.lock", "file.bin"]
    assert names_in(tmp_path / "data/downloads") == [*kept, "file.bin.part.headers"]
    download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}))
    assert names_in(tmp_path / "data/downloads") == kept and len(server.requests) == 1


def test_a_file_without_a_digest_is_trusted_at_first_and_pinned_then(stages, server, tmp_path, caplog):
    download.run(job(stages, server, {"file.bin": {}}))
    recorded = json.loads((tmp_path / "data/downloads/digests.json").read_text())
    entry = {"bytes": 100_000, "sha256": SHA256, "mirrors": [server.url("file.bin")]}
    assert recorded == {"data/downloads/file.bin": entry}
    assert f"SHA-256 {SHA256} is trusted" in caplog.text
    (tmp_path / "data/downloads/file.bin").unlink()
    server.files["file.bin"] = b"another"
    with pytest.raises(ValueError, match=f"{SHA256}.*'data/downloads/file.bin' in data/.*/digests.js"):
        download.run(job(stages, server, {"file.bin": {}}))
    assert (tmp_path / "data/downloads/file.bin").read_bytes() == b"another", "it may be the right one"
    (tmp_path / "data/downloads/digests.json").unlink()
    download.run(job(stages, server, {"file.bin": {}}))


def test_jobs_that_note_first_uses_at_once_lose_none(tmp_path, monkeypatch):
    """Each reads what is noted and writes it again; the writing takes half a second here."""
    monkeypatch.chdir(tmp_path)
    write = download.write_json
    monkeypatch.setattr(download, "write_json", lambda *given: time.sleep(0.5) or write(*given))
    (tmp_path / "data/downloads").mkdir(parents=True)
    paths = [Path("data/downloads", name) for name in ("one.tsv", "other.tsv")]
    given = [(path, {"bytes": 1, "sha256": path.name}, []) for path in paths]
    threads = [threading.Thread(target=download.trust, args=each) for each in given]
    for path, thread in zip(paths, threads, strict=True):
        path.write_text("x")
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: entry["sha256"] for name, entry in download.read_recorded().items()} == {
        str(path): path.name for path in paths
    }


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\xfe{", b"[]", b"7", b'{"a": 5}', b'{"a": {"sha256": 5}}', b"[" * 99_999]
)
def test_torn_digests_of_first_uses_are_named_and_never_replaced(stages, server, tmp_path, text):
    recorded = tmp_path / "data/downloads/digests.json"
    recorded.parent.mkdir(parents=True)
    recorded.write_bytes(text)
    with pytest.raises(ValueError, match="^data/downloads/digests.json .*torn"):
        download.run(job(stages, server, {"file.bin": {}}))
    assert recorded.read_bytes() == text


@pytest.mark.parametrize(
    ("page", "what"),
    [
        (b"<html>This bucket has moved</html>", "a web page"),
        (b"\xef\xbb\xbf\n<!DOCTYPE HTML>", "a web page"),
        (b"<?xml ?><Error>", "a web page"),
        (b'{"error": "expired"}', "a JSON object"),
    ],
)
def test_a_web_page_in_the_place_of_a_file_is_never_trusted(stages, server, tmp_path, page, what):
    path, recorded = (tmp_path / "data/downloads" / name for name in ("file.bin", "digests.json"))
    server.files["file.bin"] = page
    message = rf"data/downloads/file.bin is {what}.*the entry 'data/downloads/file.bin' in data/downloads/digests.json"
    for entries in (None, {"data/downloads/file.bin": {"bytes": 9, "sha256": hashlib.sha256(page).hexdigest()}}):
        if entries:
            recorded.write_text(json.dumps(entries))
        with pytest.raises(ValueError, match=message):
            download.run(job(stages, server, {"file.bin": {}}))
        assert path.read_bytes() == page and recorded.exists() == bool(entries)
    recorded.unlink()
    path.write_bytes(BODY)
    assert download.run(job(stages, server, {"file.bin": {}}))["files"]["file.bin"]["sha256"] == SHA256


@pytest.mark.parametrize("name", ["corpus.tsv.gz", "corpus.tgz", "corpus.zip", "corpus.tar.bz2", "corpus.xz"])
def test_what_does_not_begin_as_its_name_says_is_never_trusted(stages, server, tmp_path, name):
    server.files[name] = b"try again later"
    with pytest.raises(ValueError, match=f"{name} is no {Path(name).suffix}"):
        download.run(job(stages, server, {name: {}}))
    server.files[name] = download.BEGINNINGS[Path(name).suffix] + BODY
    (tmp_path / "data/downloads" / name).unlink()
    download.run(job(stages, server, {name: {}}))


@pytest.mark.parametrize("answer", [b"HTTP/1.1 204 No Content\r\n\r\n", LINE + b"Content-Length: 0\r\n\r\n"])
def test_an_empty_answer_falls_to_the_next_mirror(server, tmp_path, answer):
    with raw_server(answer) as url:
        fetch.fetch(tmp_path / "file.bin", [url, server.url("file.bin")], UNKNOWN)
    assert (tmp_path / "file.bin").read_bytes() == BODY


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json", "Text/HTML"])
def test_a_page_in_the_place_of_a_file_falls_to_the_next_mirror(server, tmp_path, kind):
    """By its content type, also where it begins as no page does; a known digest says better what it is."""
    server.files["page"], server.kinds["page"] = b"Please log in.", kind
    folder = tmp_path / "files"
    assert get(server, folder / "file.bin", names=("page", "file.bin"))["sha256"] == SHA256
    with pytest.raises(ValueError, match=f"page: .*{kind.partition(';')[0].lower()}"):
        get(server, folder / "other.bin", names=("page",))
    assert names_in(folder) == ["file.bin"]
    server.kinds["file.bin"] = kind
    assert get(server, folder / "known.bin", {"sha256": SHA256})["bytes"] == len(BODY)
    named = folder / ("file.json" if "json" in kind else "file.html")
    assert get(server, named, names=("page",))["bytes"] == len(server.files["page"])


def test_a_local_folder_replaces_every_download_and_is_verified(stages, server, tmp_path):
    local = tmp_path / "mine"
    local.mkdir()
    with pytest.raises(ValueError, match="mine/file.bin: no such"):
        download.run(job(stages, server, {"file.bin": {}}, local))
    (local / "file.bin").write_bytes(BODY)
    facts = download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}, local))
    assert facts["files"]["file.bin"]["path"] == str(local / "file.bin")
    (local / "file.bin").write_bytes(b"wrong")
    with pytest.raises(ValueError, match="expected"):
        download.run(job(stages, server, {"file.bin": {"sha256": SHA256}}, local))
    assert (local / "file.bin").read_bytes() == b"wrong", "a user's own file is never removed"
    assert server.requests == []


def test_terms_are_shown_once_per_set(stages, server, tmp_path, caplog):
    for _ in range(2):
        download.run(job(stages, server, {"file.bin": {"md5": MD5}}, licences={"SET": "for research only."}))
    assert caplog.text.count("Terms of SET: for research only.") == 1
    assert (tmp_path / "data/licences/SET.accepted").read_text() == "for research only.\n"


def test_changed_terms_are_shown_again(tmp_path, caplog):
    for terms in ("for research only.", "for nobody.", "for nobody."):
        download.show_licences({"SET": terms}, tmp_path)
    shown = [record.getMessage() for record in caplog.records]
    assert [text.split(" By going on")[0] for text in shown] == [
        "Terms of SET: for research only.",
        "Terms of SET: for nobody.",
    ]
    assert (tmp_path / "SET.accepted").read_text() == "for nobody.\n"
