"""A cross-encoder's scores of pairs: those of a plain loop of transformers and of sentence-transformers, on miniatures
of each architecture; killed and resumed; and what is refused."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast

from encoder_world import NO_WEIGHTS
from stages import facts_of
from teleport.encoder import ranker
from teleport.negatives import cross_score
from teleport.negatives.scores import PairTable
from teleport.refusal import Refusal
from teleport.running.files import read_saved
from teleport.settings.pool import Draw
from training_world import on_cpu  # noqa: F401 (a fixture)

WORDS = [f"w{number}" for number in range(60)]
SPECIAL = {"bert": ("[CLS]", "[SEP]", "[PAD]", "[UNK]"), "roberta": ("<s>", "</s>", "<pad>", "<unk>")}
SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 70,
    "max_position_embeddings": 80, "num_labels": 1,
}  # fmt: skip
ARCHITECTURES = ["bert", "roberta", "xlm-roberta", "modernbert"]


def miniature(folder, architecture="bert", **changes):
    """Write a cross-encoder of random weights with a tokenizer of words; returns the folder."""
    like_bert = architecture in ("bert", "modernbert")
    cls, sep, pad, unk = SPECIAL["bert" if like_bert else "roberta"]
    vocabulary = {word: number for number, word in enumerate([cls, pad, sep, unk, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unk))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    second = f"{sep}:1" if architecture == "bert" else sep
    pair = f"{cls} $A {sep} $B{':1' if architecture == 'bert' else ''} {second}"
    pair = pair if like_bert else f"{cls} $A {sep} {sep} $B {sep}"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", pair=pair, special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])]
    )
    names = ["input_ids", *(["token_type_ids"] if architecture == "bert" else []), "attention_mask"]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token=cls, sep_token=sep, pad_token=pad, unk_token=unk, model_input_names=names
    )
    fast.save_pretrained(folder)
    from transformers import AutoConfig

    ids = {"pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2, "bos_token_id": 0, "eos_token_id": 2}
    config = AutoConfig.for_model(architecture, **SIZES | ids | changes)
    torch.manual_seed(3)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    return folder


def ranked(stages, folder):
    """The finished stage that brings the miniature in a folder into its form."""
    settings = {"checkpoint": {"folder": str(folder)}}
    return stages.run(ranker.run, "ranker", settings)


@pytest.fixture
def pairs(world):
    """(collection, the retrieval of a source, {(query row, passage row)}, texts of queries, titles, texts)."""
    rng = np.random.default_rng(0)

    def texts(number, most):
        return [" ".join(rng.choice(WORDS, size=rng.integers(1, most))) for _ in range(number)]

    queries, titles, passages = texts(6, 6), texts(30, 4), texts(30, 50)
    titles[4], titles[7] = "", f"a.b\t{titles[7]}"  # of two fields, as the titles of MS MARCO's documents
    judgments = [(q, q, 1) for q in range(6)]
    ids = [f"q{q}" for q in range(6)]
    corpus = {"doc_id": [f"d{n}" for n in range(30)], "title": titles, "text": passages}
    collection = world.collection(ids, judgments, queries=queries, **corpus)
    found = rng.permuted(np.tile(np.arange(30), (6, 1)), axis=1)[:, :9]
    expected = {(q, int(p)) for q, row in enumerate(found) for p in row} | {(q, q) for q in range(6)}
    return collection, world.retrieval(found), sorted(expected), queries, titles, passages


def job_of(world, pairs, model, **settings):
    own = {"max_tokens": 32, "precision": "fp32", "episode": 1, "seed": 1} | settings
    own["sources"] = {"query": Draw(count=0, place=0).model_dump(mode="json")}
    inputs = {"collection": pairs[0], "query": pairs[1], "ranker": model}
    loads = {"query": "teleport.negatives.sources.retrieval"}
    return world.stages.make("cross_score", own, inputs, loads=loads, save_every=0.0)


def table_of(world, job):
    return PairTable.open(world.stages.make("merge", inputs={"scores.ranker": job}), "scores.ranker")


def texts_of(pairs, title=True):
    _, _, expected, queries, titles, passages = pairs
    titles = [each.replace("\t", " ") for each in titles]
    return [(queries[q], f"{titles[p]} {passages[p]}".strip() if title else passages[p]) for q, p in expected]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scores_are_those_of_a_plain_loop_and_of_sentence_transformers(world, pairs, tmp_path, architecture):
    model = ranked(world.stages, miniature(tmp_path / "model", architecture))
    job = job_of(world, pairs, model)
    facts = cross_score.run(job)
    assert facts["pairs"] == len(pairs[2]) and facts["dtype"] == "float32"
    table = table_of(world, world.stages.finish(job, facts))
    assert list(zip(np.repeat(np.arange(6), np.diff(table.offsets)), table.passages, strict=True)) == pairs[2]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    expected = []
    with torch.inference_mode():
        for query, passage in texts_of(pairs):
            encoded = tokenizer(query, passage, truncation=True, max_length=32, return_tensors="pt")
            expected.append(plain(**encoded).logits.item())
    np.testing.assert_allclose(table.scores, expected, rtol=1e-5, atol=1e-5)
    assert np.std(expected) > 0.05, "not vacuous"
    assert any(len(f"{q} {p}".split()) > 32 for q, p in texts_of(pairs)), "some are cut"
    from sentence_transformers import CrossEncoder

    folder = job.inputs["ranker"].path("checkpoint")
    theirs = CrossEncoder(str(folder), max_length=32, device="cpu")
    found = theirs.predict(texts_of(pairs), activation_fn=torch.nn.Identity(), show_progress_bar=False)
    np.testing.assert_allclose(table.scores, found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "lacking", "message"),
    [
        ("bloom", "max_position_embeddings", ", how many tokens its model reads at most. Write it there."),
        ("gpt2", "pad_token_id", ", the token that fills the shorter pairs of a batch. Write it there."),
    ],
)
def test_a_model_without_positions_or_padding_is_refused_in_a_sentence(world, tmp_path, architecture, lacking, message):
    folder = miniature(tmp_path / "model", architecture)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({key: config[key] for key in config if key != lacking}))
    with pytest.raises(Refusal, match=f"config.json has no {lacking}{message}"):
        ranked(world.stages, folder)


def test_a_tokenizer_without_a_padding_token_is_refused_in_a_sentence(world, tmp_path):
    folder = miniature(tmp_path / "model", "modernbert")
    written = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in written.items() if k != "pad_token"}))
    with pytest.raises(Refusal, match="has no padding token. Write its pad_token in tokenizer_config.json."):
        ranked(world.stages, folder)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_killed_stage_goes_on_to_the_same_bits(world, pairs, tmp_path, monkeypatch, architecture):
    """ModernBERT in padded batches, the others packed."""
    monkeypatch.setattr(cross_score, "BLOCK_PAIRS", 8)
    model, calls = ranked(world.stages, miniature(tmp_path / "model", architecture)), []
    whole, killed = job_of(world, pairs, model), job_of(world, pairs, model)
    world.stages.finish(whole, cross_score.run(whole))
    score = cross_score.score_pairs

    def dying(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return score(*arguments)

    monkeypatch.setattr(cross_score, "score_pairs", dying)
    with pytest.raises(KeyboardInterrupt):
        cross_score.run(killed)
    spent = read_saved(killed.resume / "scores.npy.json")["seconds"]
    world.stages.finish(killed, cross_score.run(killed))
    assert facts_of(killed)["earlier_seconds"] == round(spent, 3) > 0 == facts_of(whole)["earlier_seconds"]
    blocks = -(-len(pairs[2]) // 8)
    assert len(calls) == blocks + 1 > 5, "what was done is not done again"
    assert (killed.folder / "scores.npy").read_bytes() == (whole.folder / "scores.npy").read_bytes()


def test_how_a_pair_is_read_and_what_is_said_of_it(world, pairs, tmp_path):
    model, scores = ranked(world.stages, miniature(tmp_path / "model")), {}
    for name, settings in {"plain": {}, "no title": {"title": "none"}, "sigmoid": {"sigmoid": True}}.items():
        job = job_of(world, pairs, model, **settings)
        scores[name] = table_of(world, world.stages.finish(job, cross_score.run(job))).scores
    np.testing.assert_allclose(scores["sigmoid"], 1 / (1 + np.exp(-scores["plain"].astype(float))), rtol=1e-5)
    same = [number for number, (_, passage) in enumerate(pairs[2]) if passage == 4]
    assert (scores["no title"] == scores["plain"])[same].all() and same, "one has no title"
    assert (scores["no title"] != scores["plain"]).sum() > len(pairs[2]) / 2


def test_several_labels_are_refused(world, tmp_path):
    with pytest.raises(Refusal, match=r"config.json: the cross-encoder has 3 labels"):
        ranked(world.stages, miniature(tmp_path / "model", num_labels=3))


def test_a_model_without_its_head_is_refused(world, tmp_path):
    from transformers import BertModel

    folder = miniature(tmp_path / "model")
    BertModel.from_pretrained(folder).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | SIZES | {"id2label": {"0": "x"}, "label2id": {"x": 0}}))
    with pytest.raises(Refusal, match="2 weights.*classifier.bias"):
        ranked(world.stages, folder)


def other_numbers(dtype):
    def edit(weights, config):
        weights["classifier.bias"] = weights["classifier.bias"].to(getattr(torch, dtype))

    return edit


def fewer_layers(weights, config):
    config["num_hidden_layers"] = 1


def other_vocabulary(weights, config):
    config["vocab_size"] -= 2


def two_labels(weights, config):
    weights |= {name: weights[name].repeat_interleave(2, 0) for name in ("classifier.weight", "classifier.bias")}


def wider_head(weights, config):
    weights["classifier.weight"] = weights["classifier.weight"].repeat(1, 2)


SPOILT = {dtype: (other_numbers(dtype), rf"classifier\.bias in .* are {dtype}") for dtype in NO_WEIGHTS} | {
    "nan": (lambda weights, config: weights["classifier.bias"].fill_(torch.nan), r"classifier\.bias in .* not finite"),
    "layers": (fewer_layers, r"weights of layer 1 .*num_hidden_layers"),
    "vocabulary": (other_vocabulary, r"word_embeddings\.weight: \[70, 16\] instead of \[68, 16\]"),
    "labels": (two_labels, r"classifier\.\w+: \[2.*\] instead of \[1"),
    "head": (wider_head, r"classifier\.weight: \[1, 32\] instead of \[1, 16\]"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_weights_that_are_not_those_of_the_model_are_refused(world, tmp_path, name):
    """By their names, numbers and shapes, as those of an encoder are."""
    spoil, says = SPOILT[name]
    folder = miniature(tmp_path / "model")
    weights, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    spoil(weights, config)
    save_file({name: each.contiguous() for name, each in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refusal, match=f"^cross_encoder.checkpoint: .*{folder}") as refused:
        ranked(world.stages, folder)
    assert re.search(says, str(refused.value)), refused.value


def test_a_tokenizer_of_another_model_is_refused(world, tmp_path):
    folder = miniature(tmp_path / "model")
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["w0"] = 70
    path.write_text(json.dumps(content))
    with pytest.raises(Refusal, match=f"^cross_encoder.checkpoint: .*{folder} .*70, .* 70 embeddings"):
        ranked(world.stages, folder)


def test_integers_that_are_no_weights_are_left_alone(world, tmp_path):
    """Older checkpoints have the positions among their weights."""
    folder = miniature(tmp_path / "model")
    weights = load_file(folder / "model.safetensors") | {"bert.embeddings.position_ids": torch.arange(80)[None]}
    save_file(weights, folder / "model.safetensors")
    assert ranked(world.stages, folder).folder.is_dir()


def test_weights_that_are_a_pickle_are_refused(world, tmp_path):
    folder = miniature(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(Refusal, match="pytorch_model.bin is a pickle"):
        ranked(world.stages, folder)


def test_scores_that_are_all_the_same_are_refused(world, pairs, tmp_path):
    folder = miniature(tmp_path / "model")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    torch.nn.init.constant_(model.classifier.weight, 1e-30)
    torch.nn.init.ones_(model.classifier.bias)  # beside which the weights add nothing
    model.save_pretrained(folder)
    with pytest.raises(Refusal, match=r"all \d+ scores are"):
        cross_score.run(job_of(world, pairs, ranked(world.stages, folder)))


def test_pairs_longer_than_the_model_reads_are_refused(world, pairs, tmp_path):
    model = ranked(world.stages, miniature(tmp_path / "model", "roberta", max_position_embeddings=33))
    with pytest.raises(Refusal, match=r"max_tokens of the cross-encoder is 32.* 31\."):
        cross_score.run(job_of(world, pairs, model))
    assert cross_score.run(job_of(world, pairs, model, max_tokens=31))["pairs"] == len(pairs[2])


def test_an_audit_by_a_cross_encoder_has_its_scores(world, pairs, tmp_path, monkeypatch):
    """Those of sentence-transformers, over several blocks of queries; pairs are cut to what the model reads."""
    from sentence_transformers import CrossEncoder

    from commands import audit
    from teleport.negatives.forms import FORMS, Mined

    folder = miniature(tmp_path / "model", max_position_embeddings=32)
    _, _, _, queries, titles, passages = pairs
    records = []
    for row, query in enumerate(queries):
        own, *others = ({"docid": f"d{p}", "title": titles[p], "text": passages[p]} for p in range(row, row + 4))
        records.append(Mined(f"q{row}", query, [own], [other | {"score": 1e9} for other in others]))
    path = tmp_path / "in"
    path.write_text("".join(json.dumps(row) + "\n" for each in records for row in FORMS["tevatron"].write(each, True)))
    monkeypatch.setattr(audit, "BLOCK_QUERIES", 2)
    found = audit.audit(path, by=folder)["sources"]["all"]

    texts = texts_of((None, None, [(q, q + n) for q in range(6) for n in range(4)], queries, titles, passages))
    theirs = CrossEncoder(str(folder), max_length=32, device="cpu")
    scores = theirs.predict(texts, activation_fn=torch.nn.Identity(), show_progress_bar=False).reshape(6, 4)
    assert any(len(" ".join(pair).split()) > 32 for pair in texts), "some are cut"
    assert found["hardness"] == pytest.approx(np.mean(scores[:, 1:] - scores[:, :1]), abs=1e-5)
    assert 0 < found["above_positive"] == np.mean(scores[:, 1:] > scores[:, :1]) < 1, "not vacuous"
    assert found["scored"] == 1 and found["like_positive"] is None
    with pytest.raises(Refusal, match=r"^--like 0\.5: .*encoder"):
        audit.audit(path, by=folder, like=0.5)
    (folder / "model.safetensors").unlink()
    with pytest.raises(Refusal, match=f"^--by: {folder} .*model.safetensors"):
        audit.audit(path, by=folder)
