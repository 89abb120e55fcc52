"""Packed texts give the vectors of padded ones in every architecture that packs: vectors, gradients, dropout."""

import copy
import shutil

import numpy as np
import pytest
import torch
import transformers

from encoder_world import FAMILIES, in_bfloat16, make_encoder
from reference_encoder import reference_of
from teleport.encoder import attention
from teleport.encoder.attention import Packing
from teleport.encoder.load import load_backbone
from teleport.encoder.model import TAKE_PACKED, Encoder, compile_layers, layers_of, prepare

CPU = torch.device("cpu")
LENGTHS = np.array([3, 9, 9, 9, 2, 30, 17, 17])
SIZE = {"vocab_size": 200, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "pad_token_id": 1}
SIZE |= {"intermediate_size": 96}
# Windows are shorter than the longest text, so that they show.
ARCHITECTURES = {
    "bert": transformers.BertConfig(**SIZE),
    "roberta": transformers.RobertaConfig(**SIZE),
    "xlm-roberta": transformers.XLMRobertaConfig(**SIZE),
    "electra": transformers.ElectraConfig(**SIZE, embedding_size=32),
    "modernbert": transformers.ModernBertConfig(**SIZE, local_attention=8, global_attn_every_n_layers=3),
    "llama": transformers.LlamaConfig(**SIZE, num_key_value_heads=2),
    "mistral": transformers.MistralConfig(**SIZE, num_key_value_heads=2, sliding_window=6),
    "qwen2": transformers.Qwen2Config(**SIZE, num_key_value_heads=2),
    "qwen3": transformers.Qwen3Config(**SIZE, num_key_value_heads=2, head_dim=16),
    "gemma": transformers.GemmaConfig(**SIZE, num_key_value_heads=1, head_dim=16),
    "gemma3_text": transformers.Gemma3TextConfig(**SIZE, num_key_value_heads=2, head_dim=16, sliding_window=8),
}


def texts(pad, lengths=LENGTHS):
    """Random texts of these lengths, packed and padded: ids [T], and ids [B, L] with their mask."""
    ids_T = np.random.default_rng(0).integers(4, 40, size=lengths.sum())
    ids_BL = np.full((len(lengths), lengths.max()), pad)
    mask_BL = np.arange(lengths.max()) < lengths[:, None]
    ids_BL[mask_BL] = ids_T
    return ids_T, torch.from_numpy(ids_BL), torch.from_numpy(mask_BL.astype(np.int64))


def batch(encoder):
    return texts(encoder.backbone.config.pad_token_id)


def gradients(encoder, vectors):
    """Of a weighted sum of the vectors, by parameter name."""
    encoder.zero_grad()
    weights = torch.linspace(-1, 1, vectors.numel(), device=vectors.device)
    (vectors * weights.view_as(vectors)).sum().backward()
    return {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_under_autocast_queries_and_keys_have_the_type_of_values(monkeypatch, name):
    """Decoders rotate queries and keys by float32 angles, and torch's private operators cast nothing back."""
    encoder = Encoder(transformers.AutoModel.from_config(ARCHITECTURES[name]), "mean")
    types, by_equal_lengths = [], attention.by_equal_lengths

    def seen(*given):
        types.append({x.dtype for x in given[:3]})
        return by_equal_lengths(*given)

    monkeypatch.setattr(attention, "by_equal_lengths", seen)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        encoder(batch(encoder)[0], LENGTHS)
    assert types and all(len(each) == 1 for each in types)


def test_every_architecture_that_packs_is_tested():
    assert ARCHITECTURES.keys() == TAKE_PACKED


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_packed_vectors_are_those_of_padded_texts(name, pooling):
    torch.manual_seed(0)
    encoder = Encoder(transformers.AutoModel.from_config(ARCHITECTURES[name]), pooling, normalize=True).eval()
    ids_T, ids_BL, mask_BL = batch(encoder)
    with torch.inference_mode():
        found, expected = encoder(ids_T, LENGTHS), reference_of(encoder)(ids_BL, mask_BL)
        apart = encoder(ids_T, np.array([LENGTHS.sum()]))
    assert encoder.packs and (found - expected).abs().max() < 2e-6
    assert (apart - expected).abs().max() > 1e-3, "all texts as one give the same: this test would show nothing"


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "gemma3_text"])
def test_a_decoder_whose_config_says_that_it_is_not_causal_reads_later_tokens(name):
    torch.manual_seed(0)
    config = copy.deepcopy(ARCHITECTURES[name])
    config.is_causal = False
    encoder = Encoder(transformers.AutoModel.from_config(config, attn_implementation="sdpa"), "mean").eval()
    ids_T, ids_BL, mask_BL = batch(encoder)
    with torch.inference_mode():
        found, expected = encoder(ids_T, LENGTHS), reference_of(encoder)(ids_BL, mask_BL)
        encoder.backbone.config.is_causal = True
        causal = reference_of(encoder)(ids_BL, mask_BL)
    assert (found - expected).abs().max() < 2e-6 and (found - causal).abs().max() > 1e-3


def test_gemma_with_bidirectional_attention_gives_the_vectors_of_texts_without_padding():
    """transformers itself reads later tokens only in a batch without padding, where it makes no causal mask."""
    torch.manual_seed(0)
    config = copy.deepcopy(ARCHITECTURES["gemma"])
    config.use_bidirectional_attention = True
    encoder = Encoder(transformers.AutoModel.from_config(config), "mean").eval()
    ids_T, ids_BL, mask_BL = batch(encoder)
    with torch.inference_mode():
        found, padded = encoder(ids_T, LENGTHS), reference_of(encoder)(ids_BL, mask_BL)
        alone = [reference_of(encoder)(ids_BL[i : i + 1, :n], mask_BL[i : i + 1, :n]) for i, n in enumerate(LENGTHS)]
    assert encoder.packs and (found - torch.cat(alone)).abs().max() < 2e-6 and (found - padded).abs().max() > 1e-3


def test_no_text_is_longer_than_the_original_positions_of_longrope():
    """A longer one would change the vectors of all texts in its batch."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 16}
    rope |= {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZE, num_key_value_heads=2, max_position_embeddings=64, rope_parameters=rope)
    encoder = Encoder(transformers.AutoModel.from_config(config), "mean", normalize=True).eval()
    assert encoder.max_tokens == 16
    ids_T = texts(1, np.array([9, 17]))[0]
    with torch.inference_mode():
        alone, fits, longer = (encoder(ids_T[: 9 + n], np.array([9, n][: 1 + (n > 0)]))[0] for n in (0, 16, 17))
    assert (alone - fits).abs().max() < 2e-6 and (alone - longer).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta", "electra"])
def test_packed_and_padded_texts_differ_by_rounding_alone(name):
    """In float64 they agree to 1e-13, and a loss of them to 1e-12. In float32 the first losses of a training differ by
    up to 5e-7, because the order in which a product sums depends on its shape. Other models compute parts in float32.
    """
    torch.manual_seed(0)
    encoder = Encoder(transformers.AutoModel.from_config(ARCHITECTURES[name]), "mean", normalize=True).eval().double()
    ids_T, ids_BL, mask_BL = batch(encoder)
    expected, found = reference_of(encoder)(ids_BL, mask_BL), encoder(ids_T, LENGTHS)
    assert found.dtype == torch.float64 and (found - expected).abs().max() < 1e-13
    losses = [torch.nn.functional.cross_entropy(20 * v[:2] @ v[2:].T, torch.tensor([0, 1])) for v in (found, expected)]
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)
    by_padding, by_packing = gradients(encoder, expected), gradients(encoder, found)
    assert max((by_packing[each] - gradient).abs().max() for each, gradient in by_padding.items()) < 1e-12


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize(
    "pooling, projection, normalize", [("cls", None, False), ("mean", None, True), ("cls", 8, True)]
)
def test_vectors_and_gradients_are_those_of_transformers(tmp_path, family, pooling, projection, normalize):
    encoder = make_encoder(tmp_path, family, pooling, projection=projection, normalize=normalize)
    ids_T, ids_BL, mask_BL = batch(encoder)
    expected, found = reference_of(encoder)(ids_BL, mask_BL), encoder(ids_T, LENGTHS)
    assert found.dtype == torch.float32 and found.shape == (len(LENGTHS), encoder.dim)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    by_padding, by_packing = gradients(encoder, expected), gradients(encoder, found)
    assert by_packing.keys() == by_padding.keys() and len(by_packing) > 30
    for name, gradient in by_padding.items():
        largest = gradient.abs().max()
        if not name.endswith(("key.bias", "k_lin.bias")):  # it adds the same to all scores of a query: rounding alone
            assert largest > 1e-4, f"{name} has no gradient: this test would show nothing"
        assert (by_packing[name] - gradient).abs().max() < 1e-4 * largest + 1e-6, name


def test_a_padding_token_inside_a_text_has_the_padding_position(tmp_path):
    """RoBERTa's positions pass over it; a tokenizer makes it of a literal "<pad>"."""
    encoder = make_encoder(tmp_path, "roberta")
    ids = np.array([0, 7, 1, 1, 9, 2, 0, 1, 2])
    lengths = np.array([6, 3])
    alone = [
        reference_of(encoder)(torch.tensor([text]), torch.ones(1, len(text), dtype=torch.int64))
        for text in ([0, 7, 1, 1, 9, 2], [0, 1, 2])
    ]
    torch.testing.assert_close(encoder(ids, lengths), torch.cat(alone), rtol=1e-5, atol=1e-5)


def test_a_copy_in_bfloat16_copies_no_weight_in_float32(tmp_path, monkeypatch):
    encoder, copied = make_encoder(tmp_path, projection=8), []
    plain = torch.nn.Parameter.__deepcopy__
    monkeypatch.setattr(torch.nn.Parameter, "__deepcopy__", lambda self, memo: copied.append(self) or plain(self, memo))
    prepared = prepare(encoder, torch.bfloat16)
    assert not {id(each) for each in copied} & {id(each) for each in encoder.backbone.parameters()} and copied, "a head"
    assert {each.dtype for each in prepared.backbone.parameters()} == {torch.bfloat16}
    ours, theirs = (dict(each.backbone.named_parameters()) for each in (prepared, encoder))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n].bfloat16()) for n in ours)


def test_bfloat16_is_nearly_as_close_as_autocast(tmp_path):
    """What is prepared for encoding has its residual sums in bfloat16 too."""
    encoder = make_encoder(tmp_path, normalize=True)
    for parameter in encoder.parameters():  # as large as trained weights, whose vectors are no noise in bfloat16
        parameter.data *= 0.2
    ids_T, ids_BL, mask_BL = batch(encoder)
    exact = reference_of(encoder)(ids_BL, mask_BL)
    with torch.autocast("cpu", torch.bfloat16):
        by_autocast = reference_of(encoder)(ids_BL, mask_BL)
    found = prepare(encoder, torch.bfloat16)(ids_T, LENGTHS)
    errors = [float(1 - (vectors * exact).sum(1).min().detach()) for vectors in (found, by_autocast)]
    assert found.dtype == torch.float32 and 0 < errors[0] < max(8 * errors[1], 1e-4)
    assert next(encoder.parameters()).dtype == torch.float32, "the encoder itself is unchanged"


def test_texts_do_not_see_each_other(tmp_path):
    encoder = make_encoder(tmp_path)
    ids_T, _, _ = batch(encoder)
    together, ends = encoder(ids_T, LENGTHS), np.cumsum(LENGTHS)
    for vector, start, end in zip(together, ends - LENGTHS, ends, strict=True):
        alone = encoder(ids_T[start:end], np.array([end - start]))
        torch.testing.assert_close(alone[0], vector, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [16, 13])
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("shared", [1, 2])
def test_the_kernels_of_cuda_take_heads_of_any_width(dtype, width, window, shared):
    """On torch's device without numbers: that its kernels exist, how they are called, and the shapes."""
    packing = Packing.of(np.array([12, 10, 8]), torch.device("meta"))
    q = torch.empty(1, 4, 30, width, dtype=dtype, device="meta", requires_grad=True)
    k, v = (torch.empty(1, 4 // shared, 30, width, dtype=dtype, device="meta", requires_grad=True) for _ in "kv")
    module = torch.nn.Module()
    module.is_causal = shared > 1
    with torch.set_grad_enabled(dtype == torch.bfloat16):  # torch 2.13 has no such backward of the float32 kernel
        found, _ = attention.packed_attention(module, q, k, v, dropout=0.1, sliding_window=window, packing=packing)
    assert found.shape == (1, 30, 4, width) and found.dtype == dtype
    assert found.requires_grad == (dtype == torch.bfloat16)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_whole_step_takes_the_path_of_cuda(tmp_path, pooling):
    """On torch's device without numbers: types and shapes, a gradient for every parameter, and no wait for a number."""
    encoder = make_encoder(tmp_path, pooling=pooling)
    ids_T, _, _ = batch(encoder)
    expected = gradients(encoder, encoder(ids_T, LENGTHS))
    vectors = in_bfloat16(encoder.train().to("meta"))(ids_T, LENGTHS)
    assert vectors.dtype == torch.float32 and vectors.shape == (len(LENGTHS), encoder.dim)
    found = gradients(encoder, vectors)
    assert {name: g.shape for name, g in found.items()} == {name: g.shape for name, g in expected.items()}


def with_rates(encoder, hidden, attention):
    """A copy in training mode whose dropout has these rates."""
    made = copy.deepcopy(encoder).train()
    for name, module in made.named_modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = attention if name.endswith("self.dropout") else hidden
    return made


@pytest.mark.ci(1)
@pytest.mark.parametrize("hidden, attention", [(0.3, 0.0), (0.0, 0.3)])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_dropout_has_the_distribution_of_transformers(tmp_path, pooling, hidden, attention):
    """Mean and standard deviation of every coordinate over many draws, for each kind of dropout alone."""
    plain = make_encoder(tmp_path, pooling=pooling)
    for layer in layers_of(plain.backbone)[1]:  # attention to many tokens, so that 400 draws tell its spread well
        layer.attention.self.query.weight.data *= 0.1
    encoder, reference = (with_rates(made, hidden, attention) for made in (plain, reference_of(plain)))
    ids_T, ids_BL, mask_BL = batch(encoder)
    torch.manual_seed(0)
    draws = 400  # of every text, by copies in one batch
    with torch.no_grad():
        packed = encoder(np.tile(ids_T, draws), np.tile(LENGTHS, draws))
        padded = reference(ids_BL.repeat(draws, 1), mask_BL.repeat(draws, 1))
    packed, padded = (x.view(draws, len(LENGTHS), -1) for x in (packed, padded))
    spread = padded.std(0)
    assert spread.mean() > 0.005, "dropout does nothing here: this test would show nothing"
    assert packed.std(0).mean() == pytest.approx(float(spread.mean()), rel=0.06)
    off = (packed.mean(0) - padded.mean(0)) / (spread * (2 / draws) ** 0.5)  # in standard errors
    assert 0.6 < off.square().mean().sqrt() < 1.5


def test_dropout_is_off_in_evaluation_mode(tmp_path):
    encoder = make_encoder(tmp_path)
    ids_T, _, _ = batch(encoder)
    torch.testing.assert_close(with_rates(encoder, 0.3, 0.3).eval()(ids_T, LENGTHS), encoder(ids_T, LENGTHS))


def test_a_checkpoint_runs_no_code_and_reads_no_pickle(tmp_path):
    config = ARCHITECTURES["bert"]
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="cannot read"):
        load_backbone(tmp_path)


@pytest.mark.ci(0)
def test_torch_compile_makes_one_program_of_a_model_whose_texts_are_packed():
    """On torch's device without numbers, which goes the way of CUDA. A program that ends in a layer costs copies."""
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=100
    )
    with torch.device("meta"):
        encoder = Encoder(transformers.BertModel(config, add_pooling_layer=False), "cls").to(torch.bfloat16)
        ids_T, packing = torch.zeros(22, dtype=torch.int64), Packing.of(np.array([12, 10]), torch.device("meta"))
    found = torch._dynamo.explain(lambda: encoder.compute(ids_T, ids_T, packing))()
    assert (found.graph_count, found.break_reasons) == (1, [])


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler for a CPU: apt-get install g++")
def test_compiled_layers_compute_the_same(tmp_path):
    plain = make_encoder(tmp_path)
    compiled = compile_layers(copy.deepcopy(plain))
    for lengths in (LENGTHS, np.array([4, 4, 5]), np.array([7]), LENGTHS[3:]):
        ids_T = np.random.default_rng(0).integers(4, 40, size=lengths.sum())
        expected, found = (made(ids_T, lengths) for made in (plain, compiled))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        wanted = gradients(plain, expected)
        for name, gradient in gradients(compiled, found).items():
            torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["bert", "modernbert", "qwen3", "gemma3_text"])
@pytest.mark.usefixtures("no_fallback")
def test_cuda_equals_the_cpu(name, compiled):
    torch.manual_seed(0)
    encoder = Encoder(transformers.AutoModel.from_config(ARCHITECTURES[name]), "mean").eval()
    ids_T, _, _ = batch(encoder)
    expected = encoder(ids_T, LENGTHS)
    wanted = gradients(encoder, expected)
    encoder.cuda()
    found = prepare(encoder, None, compiled)(ids_T, LENGTHS)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-2, atol=1e-2)
    for weight, gradient in gradients(encoder, found).items():
        torch.testing.assert_close(gradient.cpu(), wanted[weight], rtol=1e-2, atol=1e-2)
    lower = prepare(encoder, torch.bfloat16, compiled)(ids_T, LENGTHS).cpu()
    assert torch.nn.functional.cosine_similarity(lower, expected).min() > 0.999
    with torch.autocast("cuda", torch.bfloat16):  # as in training: weights in float32
        trained = encoder(ids_T, LENGTHS)
    assert torch.nn.functional.cosine_similarity(trained.float().cpu(), expected).min() > 0.999
    for weight, gradient in gradients(encoder, trained).items():
        assert (gradient.cpu() - wanted[weight]).norm() <= 0.1 * wanted[weight].norm() + 1e-2, weight
