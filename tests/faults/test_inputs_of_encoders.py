"""Damaged checkpoints and downloads, of the grammar of bad inputs: taken, or refused by a sentence."""

import random
import shutil

import pytest
from bad_inputs import DRAWN, damaged, taken_or_refused

from encoder_world import pretrained_settings, source_folder
from loopback import Server
from teleport.collection import download, fetch
from teleport.encoder import pretrained

pytestmark = pytest.mark.faults
FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
BODY = random.Random(0).randbytes(5000)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return source_folder(tmp_path_factory.mktemp("sound") / "bert")


@pytest.mark.parametrize("case", DRAWN[::4])
@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint(stages, sound, tmp_path, campaign, name, case):
    folder = shutil.copytree(sound, tmp_path / "bert")
    path = folder / name
    path.write_bytes(damaged(random.Random(f"{name} {case}"), path.read_bytes()))
    settings = pretrained_settings(folder)
    taken_or_refused(lambda: stages.run(pretrained.run, "pretrained", settings), campaign, name, case)


@pytest.fixture(scope="module")
def server():
    server = Server({})
    yield server
    server.close()


@pytest.mark.parametrize("case", DRAWN[::4])
def test_what_a_download_finds(stages, server, tmp_path, monkeypatch, campaign, case):
    """Damaged: the file itself, what was recorded of its first use, an unfinished part and the note beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0.0)
    draw, folder = random.Random(f"download {case}"), tmp_path / "data/downloads"
    server.files = {"file.bin": BODY, "damaged.bin": damaged(draw, BODY)}
    server.cuts["file.bin"] = draw.randrange(len(BODY))
    origins = {"mirrors": {"file.bin": [server.url("damaged.bin"), server.url("file.bin")]}}
    folder.mkdir(parents=True)
    found = {
        "digests.json": b'{"data/downloads/file.bin": {"bytes": 5000, "sha256": "00"}}',
        "file.bin.part": BODY[:99],
        "file.bin.part.headers": b'HTTP/1.1 200 OK\r\nETag: "one"\r\n\r\n',
    }
    for name in draw.sample(sorted(found), draw.randint(0, 3)):
        (folder / name).write_bytes(damaged(draw, found[name]))
    job = stages.make("download", {"files": {"file.bin": {"bytes": draw.choice([None, 5000])}}}, origins=origins)
    taken_or_refused(lambda: download.run(job), campaign, "download", case)
