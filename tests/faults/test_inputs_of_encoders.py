"""Damaged checkpoints and downloads, of the grammar of bad inputs: taken as they are, or refused by a sentence."""

import json
import random
import shutil

import pytest
from bad_inputs import each_case
from safetensors.numpy import load_file

from encoder_world import pretrained_settings, source_folder
from loopback import Server
from teleport.collection import download, fetch
from teleport.encoder import pretrained
from teleport.running.files import sha256_file

pytestmark = pytest.mark.faults
FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
SIZES = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "layer_norm_eps"]
BODY = random.Random(0).randbytes(5000)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return source_folder(tmp_path_factory.mktemp("sound") / "bert")


@pytest.mark.ci(2)
@pytest.mark.parametrize(
    ("name", "way"), [*((name, "damaged") for name in FILES), ("config.json", "mutated"), ("tokenizer.json", "mutated")]
)
def test_a_checkpoint(stages, sound, tmp_path, campaign, name, way):
    """Through the whole stage `pretrained`: its weights, sizes and tokens are those of the files."""

    def one(case):
        folder = shutil.copytree(sound, case.folder / "bert")
        path = folder / name
        if way == "mutated":
            path.write_text(json.dumps(case.mutated(json.loads(path.read_text()))))
        elif name == "model.safetensors" and not case.sound and case.draw.random() < 0.3:  # a bit of a weight
            content = bytearray(path.read_bytes())
            content[case.draw.randrange(len(content) // 2, len(content))] ^= 1
            path.write_bytes(content)
        else:
            path.write_bytes(case.damaged(path.read_bytes()))

        def misread(job):
            made, wrong = job.folder / "checkpoint", []
            theirs, ours = load_file(folder / "model.safetensors"), load_file(made / "model.safetensors")
            wrong += [key for key, value in ours.items() if theirs[key].tobytes() != value.tobytes()]
            theirs, ours = (json.loads((place / "config.json").read_text()) for place in (folder, made))
            wrong += [key for key in SIZES if key in theirs and theirs[key] not in (None, ours[key])]
            theirs, ours = (json.loads((place / "tokenizer.json").read_text()) for place in (folder, made))
            wrong += [key for key in ("vocab",) if theirs["model"][key] != ours["model"][key]]
            return wrong

        settings = pretrained_settings(folder)
        case.read(lambda: stages.run(pretrained.run, "pretrained", settings), misread)

    each_case(campaign, tmp_path, f"{name}, {way}", one)


@pytest.fixture(scope="module")
def server():
    server = Server({})
    yield server
    server.close()


@pytest.mark.ci(0)
def test_what_a_download_finds(stages, server, tmp_path, monkeypatch, campaign):
    """Damaged: the file itself, what was recorded of its first use, an unfinished part and the note beside it.

    What is taken is what the first mirror of the expected size has, whole, as its digest says; of a part without the
    note's version nothing is kept.
    """
    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0.0)
    found = {
        "digests.json": b'{"data/downloads/file.bin": {"bytes": 5000, "sha256": "00"}}',
        "file.bin.part": BODY[:99],
        "file.bin.part.headers": b'HTTP/1.1 200 OK\r\nETag: "one"\r\n\r\n',
    }

    def one(case):
        monkeypatch.chdir(case.folder)
        folder = case.folder / "data/downloads"
        folder.mkdir(parents=True)
        server.files = {"file.bin": BODY, "first.bin": case.damaged(BODY)}
        server.cuts = {} if case.sound else {"first.bin": case.draw.randrange(len(BODY))}
        origins = {"mirrors": {"file.bin": [server.url("first.bin"), server.url("file.bin")]}}
        if not case.sound:
            for name in case.draw.sample(sorted(found), case.draw.randint(0, 3)):
                (folder / name).write_bytes(case.damaged(found[name]))
        bytes_ = case.draw.choice([None, 5000])
        job = stages.make("download", {"files": {"file.bin": {"bytes": bytes_}}}, origins=origins)

        def misread(facts):
            path = folder / "file.bin"
            told, holds = facts["files"]["file.bin"], path.read_bytes()
            first = server.files["first.bin"]
            wrong = holds != (first if bytes_ in (None, len(first)) else BODY) and "not what the mirror has"
            wrong = wrong or told["sha256"] != sha256_file(path) and "another digest"
            return wrong or (bytes_ not in (None, len(holds)) and "another size")

        case.read(lambda: download.run(job), misread, writes=True)
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, "download", one)
