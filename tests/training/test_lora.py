"""Adapters of low rank: what is trained, saved, resumed, continued and merged."""

import copy
import json

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from commands.export import export
from teleport.encoder import lora
from teleport.encoder.attention import Packing
from teleport.encoder.load import load_encoders
from teleport.encoder.model import Encoder
from teleport.refusal import Refusal
from teleport.running.files import sha256_file
from teleport.settings.encoder import Lora
from teleport.training import resume
from training_world import World, die_at, facts_of, losses_of, tiny_bert, tiny_gemma3, tiny_llama, tiny_qwen3, weights

LORA = {"rank": 4, "alpha": 8, "targets": None}
CONTINUED = {"continues": True, "steps": 12, "learning_rate": 1e-2}


# One architecture stays in the fast tests.
DECODERS = pytest.mark.parametrize(
    "model", [tiny_qwen3, *(pytest.param(each, marks=pytest.mark.slow) for each in (tiny_gemma3, tiny_llama))]
)


@pytest.fixture
def world(stages):
    return World(stages, model=tiny_qwen3, pooling="last", dropout=0.1)


def all_bits(job):
    """Curves, merged weights, adapters and moments."""
    made = [(job.folder / "losses.tsv").read_text()]
    return made + [
        (path.relative_to(job.folder), path.read_bytes()) for path in sorted(job.folder.rglob("*.safetensors"))
    ]


def test_adapters_alone_are_trained_and_saved(world):
    """Optimiser, resume state and moments have them alone; the checkpoint's weights have moved where they are."""
    job = world.job({"continues": True}, lora=LORA | {"targets": ["q_proj", "down_proj"]}, save_every=0, scale=0.1)
    world.finished(job)
    with safe_open(job.folder / "optimizer.safetensors", framework="pt") as file:
        moments = set(file.keys())
    names = {
        f"0.backbone.layers.{layer}.{module}.lora_{part}.default.weight"
        for layer in (0, 1)
        for module in ("self_attn.q_proj", "mlp.down_proj")
        for part in "AB"
    }
    assert moments == {f"{moment}/{name}" for moment in ("step", "exp_avg", "exp_avg_sq") for name in names}
    before, after = weights(world.inputs["checkpoint"]), weights(job)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert moved == {f"layers.{n}.{module}.weight" for n in (0, 1) for module in ("self_attn.q_proj", "mlp.down_proj")}


def test_the_state_of_an_unfinished_training_has_the_adapters_alone(world, monkeypatch):
    job = world.job(lora=LORA, save_every=0)
    die_at(job, 5, monkeypatch)
    with safe_open(job.resume / resume.FILE, framework="pt") as file:
        names = set(file.keys()) - {"curves"}
    assert names and all(".lora_" in name for name in names)
    whole = job.inputs["checkpoint"].path("checkpoint/model.safetensors").stat().st_size
    assert (job.resume / resume.FILE).stat().st_size < 3 * whole


@DECODERS
@pytest.mark.parametrize("tied", [True, False])
def test_killed_and_resumed_ends_in_the_same_bits(stages, monkeypatch, model, tied):
    world = World(stages, tied=tied, model=model, pooling="last", dropout=0.1)
    whole = world.finished(world.job(lora=LORA))
    job = world.job(lora=LORA, save_every=0)
    for death in (2, 7):
        die_at(job, death, monkeypatch)
    resumed = world.finished(job)
    assert facts_of(resumed)["resumed_from"] == 7 and all_bits(resumed) == all_bits(whole)
    assert len(all_bits(whole)) == (3 if tied else 5)


def test_episodes_that_continue_have_the_bits_of_one(world):
    """The second one goes on with the adapters of the first, on the weights that both started from."""
    whole = world.finished(world.job(CONTINUED, lora=LORA))
    first = world.finished(world.job(CONTINUED | {"stop_after_steps": 5}, lora=LORA))
    inputs = {"checkpoint": first, "continued": first}
    second = world.finished(world.job(CONTINUED, lora=LORA, inputs=inputs, episode=2, run_episode=1))
    assert losses_of(first)[1] + losses_of(second)[1] == losses_of(whole)[1]
    assert all_bits(second)[1:] == all_bits(whole)[1:]


def test_one_side_alone_is_adapted(world):
    job = world.finished(world.job({"trains": ["query"]}, lora=LORA, inputs=world.frozen("passage")))
    start = weights(world.inputs["checkpoint"])
    assert (job.folder / "checkpoint/query/adapter").is_dir() and not (
        job.folder / "checkpoint/passage/adapter"
    ).exists()
    assert all(torch.equal(start[name], weight) for name, weight in weights(job, "passage").items())
    assert not all(torch.equal(start[name], weight) for name, weight in weights(job, "query").items())


def test_adapters_of_a_side_that_rests_for_an_episode_stay(world):
    """Both sides, then queries alone, then both again, twice: the passages' adapters go on, on the pretrained base."""
    both = world.finished(world.job({}, lora=LORA))
    alone = world.finished(world.job({"trains": ["query"]}, lora=LORA, inputs=world.frozen("passage", both)))
    adapters = [folder / "adapter" for folder in (both.folder / "checkpoint", alone.folder / "checkpoint/passage")]
    kept = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in adapters]
    assert kept[0] == kept[1] and kept[0]
    still = world.finished(world.job({"steps": 1}, lora=LORA, inputs={"checkpoint": alone}, episode=3))  # at rate 0
    sides = [
        [
            load_file(job.folder / f"checkpoint/{side}/adapter/adapter_model.safetensors")
            for side in ("query", "passage")
        ]
        for job in (alone, still)
    ]
    for before, after in zip(*sides, strict=True):
        assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert not all(torch.equal(sides[0][0][name], sides[0][1][name]) for name in sides[0][0]), "guard: two adapters"
    again = world.finished(world.job({}, lora=LORA, inputs={"checkpoint": still}, episode=4))
    assert (again.folder / "checkpoint/passage/adapter").is_dir()


@pytest.mark.parametrize("make", [tiny_qwen3, tiny_bert])
def test_packed_gradients_are_those_of_padded_texts(make):
    torch.manual_seed(0)
    encoder = Encoder(make(), "last").eval()
    lora.add_adapters(encoder, Lora(**LORA), seed=3)
    for parameter in lora.adapters(encoder.backbone).values():
        torch.nn.init.normal_(parameter, std=0.1)
    padded = copy.deepcopy(encoder)
    padded.backbone.set_attn_implementation("sdpa")
    lengths = np.array([3, 9, 9, 2, 17])
    ids = np.random.default_rng(0).integers(5, 190, lengths.sum())
    found = encoder(ids, lengths)
    expected = padded.pooled(padded.hidden_padded(ids, lengths), Packing.of(lengths, torch.device("cpu")))
    gradients = []
    for made, vectors in ((encoder, found), (padded, expected)):
        (vectors * torch.linspace(-1, 1, vectors.numel()).view_as(vectors)).sum().backward()
        gradients.append({name: p.grad for name, p in made.named_parameters() if p.grad is not None})
    packed, wanted = gradients
    assert packed.keys() == wanted.keys() == {name for name, p in encoder.named_parameters() if p.requires_grad}
    assert len(wanted) > 20 and all(".lora_" in name for name in wanted)
    for name, gradient in wanted.items():
        largest = gradient.abs().max()
        assert largest > 1e-3 and (packed[name] - gradient).abs().max() <= 6e-6 * largest, name


@DECODERS
def test_what_is_exported_has_the_vectors_of_its_adapters_elsewhere(stages, tmp_path, model):
    """sentence-transformers reads the merged weights; peft's own class puts the adapters on the start's weights."""
    world = World(stages, model=model, pooling="last", dropout=0.1)
    job = world.finished(world.job({"learning_rate": 1e-2}, lora=LORA))
    exported, ids = tmp_path / "exported", torch.tensor([[5, 6, 7, 8, 9]])
    export(job.folder, exported)
    start = world.inputs["checkpoint"].folder / "checkpoint"
    adapted = PeftModel.from_pretrained(AutoModel.from_pretrained(start), str(exported / lora.FOLDER)).eval()
    theirs = SentenceTransformer(str(exported), device="cpu", local_files_only=True)
    ours = load_encoders(exported)[1]
    with torch.inference_mode():
        own = ours(ids[0].numpy(), np.array([5]))[0]
        hidden = adapted(input_ids=ids).last_hidden_state[0, -1]
        before = load_encoders(start)[1](ids[0].numpy(), np.array([5]))[0]
        tokens = {
            "token_embeddings": theirs[0].model(input_ids=ids).last_hidden_state,
            "attention_mask": torch.ones_like(ids),
        }
        pooled = theirs[1](tokens)["sentence_embedding"][0]
    np.testing.assert_allclose(hidden, own, rtol=0, atol=1e-5)
    np.testing.assert_allclose(pooled, own, rtol=0, atol=1e-5)
    assert (own - before).abs().max() > 1e-2, "nothing was learnt: this test would show nothing"


def test_a_drawn_head_is_trained_beside_the_adapters():
    encoder = Encoder(tiny_qwen3(), "last", projection=8)
    lora.add_adapters(encoder, Lora(**LORA), seed=3)
    asking = {name for name, p in encoder.named_parameters() if p.requires_grad and ".lora_" not in name}
    assert asking == {"head.0.weight", "head.0.bias", "head.1.weight", "head.1.bias"}


def test_first_matrices_are_of_the_seed_alone():
    def drawn(encoder, seed):
        lora.add_adapters(encoder, Lora(**LORA), seed)
        return lora.adapters(encoder.backbone)

    encoders = [Encoder(tiny_qwen3(), "last") for _ in range(3)]
    state = torch.get_rng_state()
    first, again, other = map(drawn, encoders, (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    assert all(not p.any() for name, p in first.items() if "lora_B" in name)


def test_unknown_targets_are_refused_by_name(world):
    said = "encoder.lora.targets has 'query', but the linear layers of qwen3 are q_proj, k_proj, v_proj, o_proj, "
    with pytest.raises(Refusal, match=said):
        world.finished(world.job(lora=LORA | {"targets": ["q_proj", "query"]}))


def going_on(world, trained, **changes):
    return world.job(lora=LORA | changes, inputs={"checkpoint": trained})


def test_adapters_of_another_form_or_base_are_refused(world):
    trained = world.finished(world.job(lora=LORA))
    with pytest.raises(Refusal, match=r"encoder.lora.rank is 8, .*checkpoint/adapter.* 4"):
        world.finished(going_on(world, trained, rank=8))
    with pytest.raises(Refusal, match=r"encoder.lora.targets is \['q_proj'\]"):
        world.finished(going_on(world, trained, targets=["q_proj"]))
    pretrained = world.inputs["pretrained"].folder
    path, manifest = pretrained / "checkpoint/model.safetensors", json.loads((pretrained / "manifest.json").read_text())
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path, {"format": "pt"})
    manifest["files"]["checkpoint/model.safetensors"]["sha256"] = sha256_file(path)
    manifest["files"]["checkpoint/model.safetensors"]["bytes"] = path.stat().st_size
    (pretrained / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(Refusal, match=r"adapters in .*checkpoint/adapter, .* belong to another"):
        world.finished(going_on(world, trained))
