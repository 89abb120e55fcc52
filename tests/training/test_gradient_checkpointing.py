"""Layers that are computed again in the backward pass change no loss; what no device can hold is said before."""

from types import SimpleNamespace

import pytest
import torch
from test_training_gradcache import peak_saved_bytes
from transformers import MPNetConfig, MPNetModel

from teleport.encoder import encode, model
from teleport.encoder.budget import tokens_within
from teleport.encoder.model import Encoder
from teleport.encoder.precision import room_to_encode, to_encode
from teleport.encoder.shape import Shape, forward_bytes, kept_bytes
from teleport.refusal import Refusal
from teleport.training import dev, step, train
from teleport.training.step import require_room_to_train
from training_world import World, facts_of, losses_of, make_trainer, tiny_bert, tiny_qwen3

CHECKPOINTING = {"gradient_checkpointing": True}


def trainer(world, **training):
    job = world.job(training)
    return make_trainer(job)


@pytest.mark.ci(2)
@pytest.mark.parametrize("model", [tiny_bert, tiny_qwen3])
@pytest.mark.parametrize("others", [{}, {"gradient_caching": True}])
def test_losses_have_the_same_bits(stages, model, others):
    """With dropout: the second pass draws what the first one has drawn."""
    world = World(stages, model=model, dropout=0.3)
    plain, checkpointing = (world.finished(world.job(others | more)) for more in ({}, CHECKPOINTING))
    assert losses_of(plain) == losses_of(checkpointing)


def test_adapters_learn_below_layers_that_are_computed_again(stages):
    world = World(stages, model=tiny_qwen3, pooling="last")
    lora = {"rank": 4, "alpha": 8}
    plain, checkpointing = (world.finished(world.job(more, lora=lora)) for more in ({}, CHECKPOINTING))
    assert losses_of(plain) == losses_of(checkpointing)


def test_less_is_kept_for_the_backward_pass(stages):
    world = World(stages)
    plain, checkpointing = (trainer(world, **more) for more in ({}, CHECKPOINTING))
    batch = plain.data.batch(1)
    assert peak_saved_bytes(checkpointing, batch) < 0.7 * peak_saved_bytes(plain, batch)


def test_a_model_without_it_is_refused():
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = MPNetModel(MPNetConfig(**sizes), add_pooling_layer=False)
    model.supports_gradient_checkpointing = False
    with pytest.raises(Refusal, match="training.gradient_checkpointing: .*mpnet"):
        train.keep_less(model)


@pytest.fixture
def gpu_of(monkeypatch):
    """Function GB → a CUDA device that says to have so much memory."""

    def device(gigabytes):
        said = SimpleNamespace(total_memory=gigabytes * 10**9)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: said)
        return torch.device("cuda")

    return device


def test_memory_that_a_device_does_not_have_is_said_with_its_size(gpu_of):
    with torch.device("meta"):
        encoder = Encoder(tiny_meta(), "last")
    assert sum(p.numel() for p in encoder.parameters()) > 7e9
    with pytest.raises(Refusal, match=r"training 7\.\d+ billion .* 1\d\d\.\d GB .* 24\.0 GB"):
        require_room_to_train([encoder], gpu_of(24))
    require_room_to_train([encoder], gpu_of(130))
    require_room_to_train([encoder], torch.device("cpu"))
    for parameter in encoder.parameters():
        parameter.requires_grad = False
    require_room_to_train([encoder], gpu_of(32))


def test_memory_to_encode_is_said_with_its_size(gpu_of):
    with torch.device("meta"):
        encoder = Encoder(tiny_meta(), "last")
    with pytest.raises(Refusal, match=r"encoding .* 7\.\d+ billion .* 28\.\d GB .* 24\.0 GB"):
        to_encode(encoder, gpu_of(24))
    with pytest.raises(Refusal, match=r"42\.\d GB .*, 14\.\d GB .*16 bits, .* 40\.0 GB.* to fp32"):
        to_encode(encoder, gpu_of(40), torch.bfloat16)
    gpu_of(1)
    assert to_encode(tiny_qwen3(), torch.device("cpu"), torch.bfloat16).device.type == "cpu"


def test_a_device_encodes_as_many_tokens_at_once_as_it_has_room_for(gpu_of):
    """Weights of 7 billion take 43 GB with their copy; a token takes (8 x 4096 + 3 x 14336) x 2 bytes in a layer."""
    with torch.device("meta"):
        encoder = Encoder(tiny_meta(), "last")
    per_token = forward_bytes(Shape.of(encoder), half=True)
    assert per_token == 151_552

    def budget(device):
        return tokens_within(65536, room_to_encode(encoder, device, torch.bfloat16), per_token)

    room = 46 * 10**9 - sum(6 * p.numel() for p in encoder.parameters())
    assert budget(gpu_of(46)) == int(0.8 * room / 151_552) < 20_000
    assert budget(gpu_of(80)) == budget(torch.device("cpu")) == 65536
    assert tokens_within(65536, 10, per_token) == 1024


def test_a_step_trains_on_as_many_tokens_at_once_as_its_device_has_room_for(stages, gpu_of, monkeypatch):
    usual, per_token = trainer(World(stages)), 0.0
    assert usual.token_budget == 8192
    per_token = kept_bytes(Shape.of(usual.encoders[0]), 1, usual.training, half=False)
    weights = sum(4 * p.nbytes for p in usual.encoders.parameters())
    said = SimpleNamespace(total_memory=weights + 2000 * per_token / 0.8)
    gpu_of(0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: said)
    room = require_room_to_train(list(usual.encoders), torch.device("cuda"))
    assert tokens_within(21504, room, per_token) == 2000


def test_auto_on_a_device_without_bfloat16_keeps_room_for_float32(stages, monkeypatch):
    monkeypatch.setattr(train, "resolve_precision", lambda *_: None)
    world = World(stages)
    plain = trainer(world)
    room = 3000 * kept_bytes(Shape.of(plain.encoders[0]), 1, plain.training, half=False) / 0.8
    monkeypatch.setattr(step, "require_room_to_train", lambda *_: room)
    budgets = [trainer(world, precision=precision).token_budget for precision in ("fp32", "auto")]
    assert budgets == pytest.approx([3000, 3000], abs=1)


@pytest.mark.parametrize("stage", ["encode", "train"])
def test_stages_ask_for_the_memory_first(stages, monkeypatch, gpu_of, stage):
    """On a device that says to be small, before anything is copied to it."""
    world, device = World(stages), gpu_of(0)
    for module in (train, encode):
        monkeypatch.setattr(module, "pick_device", lambda: device)
        monkeypatch.setattr(module, "resolve_precision", lambda *_: None)
    said = r"takes 0\.0 GB before it reads a text.* the GPU has 0\.0 GB"
    with pytest.raises(Refusal, match=said):
        if stage == "encode":
            world.frozen("passage")
        else:
            world.finished(world.job())


def tiny_meta():
    """A Mistral of 7 billion weights, without numbers."""
    from transformers import MistralConfig, MistralModel

    return MistralModel(MistralConfig())


def test_a_compiled_training_says_so_and_its_dev_set_is_not_compiled(stages, monkeypatch):
    world, compiled, prepared = World(stages), [], []
    monkeypatch.setattr(train, "compiles", lambda *_: True)
    for module in (train, model):
        monkeypatch.setattr(module, "compile_layers", compiled.append)
    monkeypatch.setattr(dev, "prepare", lambda *given: prepared.append(given) or model.prepare(*given))
    job = world.finished(world.job(**world.watched()))
    assert len(compiled) == 1 and facts_of(job)["compiled"] is True and prepared, "the training's, not the dev set's"
