"""Checkpoints in every form of file: weights in one file, in several with an index, in the older form; tokenizers with
and without tokenizer.json; several families. Damaged, they are refused by a sentence, or taken with these weights."""

import json
import shutil

import numpy as np
import pytest
import torch
from bad_inputs import ODD, each_case, slow_but
from fault_world import make_ranker
from safetensors.torch import load_file, save_file

from encoder_world import pretrained_settings, source_folder
from teleport.encoder import pretrained, ranker
from teleport.encoder.completed import completed
from teleport.encoder.tokens import load_tokenizer
from teleport.negatives.cross_score import published_cross_encoder
from teleport.settings.encoder import Encoder

pytestmark = pytest.mark.faults
FAMILIES = ["bert", "roberta", "xlm-roberta", "modernbert", "qwen3"]
WEIGHTS = "model.safetensors"
DTYPES = [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool, torch.complex64, torch.uint8]
TAKEN = {torch.float32, torch.float16, torch.bfloat16, torch.float64}
SHAPES = [(), (0,), (1,), (3, 5), (2, 2, 2)]
TEXT = ["", " ", "[UNK]", "a", "##a", "é", "\0", "🙂" * 9, "x" * 3000, "[CLS] [SEP]"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """{family: folder}"""
    return {name: source_folder(tmp_path_factory.mktemp("sound") / name, name) for name in FAMILIES}


def odd_weights(case, weights):
    """Weights of which one to three have another type, shape, name or odd values, or are not there."""
    for _ in case.damages():
        if not weights:
            break
        name = case.draw.choice(sorted(weights))
        what = case.draw.choice(["type", "all types", "shape", "name", "value", "gone", "more", "transposed"])
        if what == "type":
            weights[name] = weights[name].to(case.draw.choice(DTYPES))
        elif what == "all types":
            kind = case.draw.choice(DTYPES)
            weights = {key: value.to(kind) for key, value in weights.items()}
        elif what == "shape":
            weights[name] = torch.zeros(case.draw.choice(SHAPES))
        elif what == "name":
            weights[case.draw.choice([f"bert.{name}", name.upper(), "x", ""])] = weights.pop(name)
        elif what == "value":
            value = case.draw.choice([float("nan"), float("inf"), -6e4, 0.0])
            weights[name] = (
                torch.full_like(weights[name], value) if weights[name].is_floating_point() else weights[name]
            )
        elif what == "gone":
            del weights[name]
        elif what == "more":
            weights["more.weight"] = torch.ones(2, 2)
        else:
            weights[name] = weights[name].T.contiguous() if weights[name].ndim == 2 else weights[name]
    return weights


def write_weights(case, folder, way, weights):
    """Write weights in one file of safetensors, in several with an index, or in the older form; returns them."""
    (folder / WEIGHTS).unlink()
    if way == "one file":
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    elif way == "several files":
        index, total = {}, max(1, len(weights) // 2)
        for number in (1, 2):
            file = f"model-0000{number}-of-00002.safetensors"
            names = sorted(weights)[:total] if number == 1 else sorted(weights)[total:]
            save_file({name: weights[name] for name in names}, folder / file, metadata={"format": "pt"})
            index |= dict.fromkeys(names, file)
        index = {"metadata": {}, "weight_map": index}
        if not case.sound and case.draw.random() < 0.25:
            index = case.mutated(index)
        elif not case.sound and case.draw.random() < 0.3:
            path = folder / f"model-0000{case.draw.choice([1, 2])}-of-00002.safetensors"
            path.write_bytes(case.damaged(path.read_bytes()))
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        path = folder / "pytorch_model.bin"
        if not case.sound and case.draw.random() < 0.3:
            weights = case.draw.choice(
                [{5: torch.ones(2)}, [1], None, {"a": "b"}, {"a": {"b": torch.ones(2)}}, weights]
            )
        torch.save(weights, path)
        if not case.sound and case.draw.random() < 0.3:
            path.write_bytes(case.damaged(path.read_bytes()))


def weights_in(folder):
    """All weights that the files of a folder have."""
    if (folder / "pytorch_model.bin").is_file():
        return torch.load(folder / "pytorch_model.bin", weights_only=True)
    return {name: value for path in folder.glob("*.safetensors") for name, value in load_file(path).items()}


@pytest.mark.parametrize("family", slow_but(["bert", "qwen3"], FAMILIES))
@pytest.mark.parametrize("way", slow_but(["several files", "older form"], ["one file", "several files", "older form"]))
def test_weights_in_every_form(stages, sound, tmp_path, campaign, family, way):
    def one(case):
        folder = shutil.copytree(sound[family], case.folder / "model")
        weights = odd_weights(case, load_file(folder / WEIGHTS))
        write_weights(case, folder, way, dict(weights))

        def misread(job):
            made = load_file(job.folder / "checkpoint" / WEIGHTS)
            given = weights_in(folder)  # a flipped bit of a number cannot be noticed
            same = {key: given.get(key, given.get(f"bert.{key}")) for key in made}
            wrong = [key for key, theirs in same.items() if theirs is None or theirs.dtype not in TAKEN]
            return wrong or [
                key
                for key, theirs in same.items()
                if not np.array_equal(made[key].float().numpy(), theirs.float().numpy(), equal_nan=True)
            ]

        pooling = "last" if family == "qwen3" else "mean"
        case.read(
            lambda: stages.run(pretrained.run, "pretrained", pretrained_settings(folder, pooling=pooling)), misread
        )

    each_case(campaign, tmp_path, f"weights of {family}, {way}", one, few=1)


def odd_tokenizer(case, folder):
    """Damage one file of a tokenizer, or leave one out."""
    names = [
        path.name
        for path in sorted(folder.iterdir())
        if "token" in path.name or path.name in ("vocab.txt", "merges.txt")
    ]
    name = case.draw.choice(names)
    path, way = folder / name, case.draw.random()
    if way < 0.15:
        path.unlink()
    elif way < 0.75 and name.endswith(".json"):
        content = json.loads(path.read_text())
        model = content.get("model", {})
        if way < 0.3 and isinstance(model.get("vocab"), dict):
            token = case.draw.choice(sorted(model["vocab"]))
            number = case.draw.choice([-1, 0, 10**9, 2**32, case.draw.choice(sorted(model["vocab"].values()))])
            model["vocab"][token] = number
        elif way < 0.4:
            content[case.draw.choice(["normalizer", "pre_tokenizer", "post_processor", "added_tokens", "decoder"])] = (
                case.draw.choice(
                    [None, {"type": "Replace", "pattern": {"String": ""}, "content": "xxxxxxxxxx"}, [], {}]
                )
            )
        else:
            content = case.mutated(content)
        path.write_text(json.dumps(content))
    else:
        path.write_bytes(case.damaged(path.read_bytes()))


@pytest.mark.parametrize("family", slow_but(["xlm-roberta"], FAMILIES))
def test_tokenizers_in_every_form(stages, sound, tmp_path, campaign, family):
    """Read by the plan and by the stage, and then every odd text is tokenised within the vocabulary."""

    def one(case):
        folder = shutil.copytree(sound[family], case.folder / "model")
        if not case.sound:
            odd_tokenizer(case, folder)
        pooling = "last" if family == "qwen3" else "mean"

        def read():
            made = completed(Encoder(checkpoint={"folder": str(folder)}, pooling=pooling))
            settings = pretrained_settings(folder, pooling=pooling, normalize=made.normalize)
            job = stages.run(pretrained.run, "pretrained", settings)
            tokenizer, special = load_tokenizer(job.folder / "checkpoint", made.lower_case)
            return [text.ids for text in tokenizer.encode_batch_fast(TEXT, add_special_tokens=False)], special, job

        def misread(found):
            ids, special, job = found
            size = json.loads((job.folder / "checkpoint/config.json").read_text())["vocab_size"]
            return [line for line in ids if line and not 0 <= max(line) < size]

        case.read(read, misread)

    each_case(campaign, tmp_path, f"tokenizer of {family}", one, few=1)


@pytest.mark.parametrize("name", slow_but(["all"], ["config.json", "all"]))
def test_what_stands_in_the_place_of_a_checkpoint(stages, sound, tmp_path, campaign, name):
    """Odd settings in config.json of each family, and folders that are none."""

    def one(case):
        family = case.draw.choice(FAMILIES)
        folder = shutil.copytree(sound[family], case.folder / "model")
        path = folder / "config.json"
        if name == "all" and not case.sound:
            broken = case.draw.choice(sorted(folder.iterdir()))
            broken.unlink()
            shape = case.draw.choice(["folder", "dangling", "device", "nothing", "empty"])
            if shape == "folder":
                broken.mkdir()
            elif shape in ("dangling", "device"):
                broken.symlink_to("/dev/null" if shape == "device" else "nowhere")
            elif shape == "empty":
                broken.write_bytes(b"")
        elif not case.sound:
            config = json.loads(path.read_text())
            for _ in case.damages():
                config[case.draw.choice(sorted(config))] = case.draw.choice(ODD)
            path.write_text(json.dumps(config))
        pooling = "last" if family == "qwen3" else "mean"

        def read():
            made = completed(Encoder(checkpoint={"folder": str(folder)}, pooling=pooling))
            return stages.run(
                pretrained.run, "pretrained", pretrained_settings(folder, pooling=pooling, normalize=made.normalize)
            )

        case.read(read, lambda job: not (job.folder / "checkpoint" / WEIGHTS).is_file())

    each_case(campaign, tmp_path, f"checkpoint, {name}", one, few=2)


@pytest.mark.parametrize("start", slow_but([True], [True, False]))
@pytest.mark.parametrize(
    "what", slow_but(["several files", "config.json"], ["one file", "several files", "tokenizer", "config.json"])
)
def test_cross_encoders(stages, sound, tmp_path, campaign, what, start):
    """As they are, or as the `start` of a training; one that is taken scores odd pairs with the weights that it has."""
    given = tmp_path / "ranker"
    make_ranker(sound["bert"], given)

    def one(case):
        folder = shutil.copytree(given, case.folder / "model")
        if what.endswith(("file", "files")):
            write_weights(case, folder, what, dict(odd_weights(case, load_file(folder / WEIGHTS))))
        elif what == "tokenizer" and not case.sound:
            odd_tokenizer(case, folder)
        elif not case.sound:
            config = json.loads((folder / what).read_text())
            for _ in case.damages():
                config[case.draw.choice(sorted(config))] = case.draw.choice(ODD)
            (folder / what).write_text(json.dumps(config))

        def read():
            settings = {"checkpoint": {"folder": str(folder)}, "seed": 1 if start else None}
            job = stages.run(ranker.run, "ranker", settings)
            return job, published_cross_encoder(job.folder / "checkpoint")(
                [(one, other) for one in TEXT for other in TEXT]
            )

        def misread(found):
            job, scores = found
            made, theirs = load_file(job.folder / "checkpoint" / WEIGHTS), weights_in(folder)
            names = {key: (key, key.removeprefix("bert."), f"bert.{key}") for key in made}
            same = {key: next((theirs[name] for name in of if name in theirs), None) for key, of in names.items()}
            drawn = json.loads((job.folder / "manifest.json").read_text())["facts"].get("drawn", [])
            wrong = [key for key, own in same.items() if key not in drawn and (own is None or own.dtype not in TAKEN)]
            wrong += [
                key for key, own in same.items() if key not in {*drawn, *wrong} and not made[key].equal(own.float())
            ]
            return wrong or not np.isfinite(scores).all()

        case.read(read, misread)

    each_case(campaign, tmp_path, f"cross-encoder, {what}, {'start' if start else 'as it is'}", one, few=1)
