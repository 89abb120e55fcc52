"""A cross-encoder that is trained: on miniatures of each architecture, what it learns, its bits after a kill, and that
sentence-transformers says the same of a pair."""

import json
from dataclasses import replace

import numpy as np
import pytest
import sentence_transformers
import torch
from safetensors import safe_open
from sentence_transformers.cross_encoder import losses
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import collection_world
from encoder_world import FAMILIES, PLAIN_FAMILIES, source_folder
from stages import facts_of
from teleport.arrays import Ragged, offsets_of, save_array
from teleport.encoder import ranker, tokens
from teleport.encoder.load import load_backbone
from teleport.encoder.pair_texts import cut_pairs, pair_form
from teleport.evaluation.significance import paired_p_value
from teleport.negatives import cross_score
from teleport.refusal import Refusal
from teleport.settings.encoder import TokensSettings
from teleport.training import cross_train, resume
from teleport.training.step import Steps

QUERIES, DEV, PASSAGES = 24, 30, 60
TRAINING = {"negatives_per_query": 3, "batch_queries": 8, "steps": 12, "learning_rate": 3e-3, "precision": "fp32"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
FAMILY_NAMES = sorted(FAMILIES | PLAIN_FAMILIES)


def spread(folder):
    """Make the encoder in a folder a cross-encoder whose scores differ from pair to pair; returns the folder."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        for parameter in (p for p in model.parameters() if p.ndim > 1):
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return folder


def as_drawn(folder):
    """Give the encoder in a folder the weights that a training begins with; returns the folder."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        AutoModel.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    return folder


class World:
    """Queries and passages of two kinds. A query's positive is of its kind, and so is none of its negatives, nor of the
    other passages that are ranked for it: who reads both can tell."""

    def __init__(self, stages, folder):
        self.stages, rng = stages, np.random.default_rng(5)
        kinds = np.arange(PASSAGES) % 2
        words = [" ".join(rng.choice(list("uvwxyz"), size=rng.integers(1, 6))) for _ in range(PASSAGES)]
        self.passages = [f"{'bd'[kind] * 2} {word}" for kind, word in zip(kinds, words, strict=True)]
        self.titles = ["" if n % 3 else "t" for n in range(PASSAGES)]
        passages = [(f"d{n}", *each) for n, each in enumerate(zip(self.titles, self.passages, strict=True))]
        self.positives = {"train": np.arange(QUERIES), "dev": np.arange(DEV)}
        self.queries = {split: [f"{'ac'[n % 2] * 2} {words[n]}" for n in own] for split, own in self.positives.items()}
        queries = {split: [(f"{split}{n}", text) for n, text in enumerate(own)] for split, own in self.queries.items()}
        judged = {split: [(row, n, 1) for row, n in enumerate(own)] for split, own in self.positives.items()}
        self.collection = collection_world.make_collection(stages, passages, queries, judged)
        others = [np.flatnonzero(kinds != kind) for kind in (0, 1)]
        self.start = self.started(folder, 1)
        lists = [rng.permutation(others[n % 2])[:10] for n in self.positives["train"]]
        self.inputs = {"collection": self.collection, "checkpoint": self.start, "negatives": self.pool(lists)}
        for of in ("passages", "queries.train", "queries.dev"):
            settings = TokensSettings(of=of, **({"title": "space"} if of == "passages" else {}))
            read = {"collection": self.collection, "pretrained": self.start}
            self.inputs[f"tokens.{of}"] = stages.run(tokens.run, "tokens", settings, read)
        near = [rng.permutation(others[n % 2])[:12] for n in self.positives["dev"]]
        self.inputs["dev"] = collection_world.make_run(stages, near)

    def started(self, folder, seed):
        settings = {"checkpoint": {"folder": str(folder)}, "seed": seed}
        return self.stages.run(ranker.run, "ranker", settings)

    def pool(self, lists):
        job = self.stages.make("merge", {"episode": 1})
        save_array(job.output("offsets.npy"), offsets_of([len(own) for own in lists]))
        save_array(job.output("passages.npy"), np.concatenate(lists).astype(np.int32))
        return self.stages.finish(job)

    def job(self, dev=None, max_tokens=24, seed=42, inputs=None, **training):
        settings = {"training": TRAINING | training, "max_tokens": max_tokens, "seed": seed, "dev": dev}
        return self.stages.make("cross_train", settings, self.inputs | (inputs or {}), save_every=0.0)

    def finished(self, job):
        return self.stages.finish(job, cross_train.run(job))

    def texts(self, pairs):
        return [(self.queries["train"][q], f"{self.titles[p]} {self.passages[p]}".strip()) for q, p in pairs]


@pytest.fixture
def world(stages, tmp_path):
    return World(stages, as_drawn(source_folder(tmp_path / "source")))


def bits_of(job):
    folder = job.folder / "checkpoint"
    return (folder / "model.safetensors").read_bytes(), (job.folder / "losses.tsv").read_bytes()


@pytest.mark.ci(2)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_a_trained_checkpoint_says_what_sentence_transformers_says(stages, tmp_path, family):
    """Of each family: loaded as it is, without a length or a tokenizer of its own; pairs are cut, too."""
    longest = 20 if family == "xlm-roberta" else 14
    world = World(stages, spread(source_folder(tmp_path / "source", family)))
    job = world.finished(world.job(steps=2, learning_rate=1e-4, max_tokens=longest))
    pairs = [(q, p) for q in range(4) for p in range(12)]
    theirs = sentence_transformers.CrossEncoder(str(job.folder / "checkpoint"), device="cpu")
    expected = theirs.predict(world.texts(pairs), activation_fn=torch.nn.Identity(), show_progress_bar=False)
    trainer = trainer_of(job)
    trainer.model.load_state_dict(ranker.load_ranker(job.folder / "checkpoint").state_dict())
    rows, passages = np.array(pairs).T
    with torch.inference_mode():
        trainer.model.eval()
        found = trainer.scores(trainer.texts, rows, passages, 200).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    uncut = replace(trainer.texts, max_tokens=1000).lengths(rows, passages)
    assert np.std(expected) > 1e-3 and (uncut > longest).any() and (uncut < longest).any(), "not vacuous"
    table = scored(world, job, pairs)
    np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-5)


def trainer_of(job):
    training = cross_train.training_of(job.settings.training)
    return cross_train.CrossTrainer(job, cross_train.read_pairs(job, training, 1), training, 12, 1)


def scored(world, job, pairs):
    """What the stage `cross_score` says of pairs by the checkpoint of a finished training."""
    folder, settings = job.folder / "checkpoint", cross_score.Settings
    own = settings.model_construct(max_tokens=job.settings.max_tokens, sigmoid=False)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    with torch.inference_mode():
        return cross_score.score_pairs(
            ranker.load_ranker(folder), tokenizer, world.texts(pairs), own, torch.device("cpu")
        )


@pytest.mark.parametrize("family", ["roberta", "modernbert"])  # packed and padded in the stage `cross_score`
def test_in_bfloat16_scores_are_not_rounded_to_it(stages, tmp_path, family):
    world = World(stages, spread(source_folder(tmp_path / "source", family)))
    trainer, folder = trainer_of(world.job(precision="bf16")), world.start.folder / "checkpoint"
    rows, passages = (each.ravel() for each in np.mgrid[:4, :PASSAGES])
    settings = cross_score.Settings.model_construct(max_tokens=24, sigmoid=False)
    read = AutoTokenizer.from_pretrained(folder), world.texts(zip(rows, passages, strict=True)), settings
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        scores = cross_score.score_pairs(ranker.load_ranker(folder), *read, torch.device("cpu"))
        ours = trainer.scores(trainer.texts, rows, passages, 2000)
    for each in (torch.from_numpy(scores), ours):
        assert each.dtype == torch.float32 and (each.bfloat16() == each).float().mean() < 0.1


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_pairs_are_those_of_the_tokenizer(stages, tmp_path, family):
    """Ids, token types and cuts, of texts of all lengths."""
    make, *_ = (FAMILIES | PLAIN_FAMILIES)[family]
    tokenizer, rng = make(), np.random.default_rng(0)
    form = pair_form(tokenizer)
    texts = [" ".join(rng.choice(list(LETTERS), size=n)) for n in [1, 2, 3, 5, 8, 9, 10, 11, 20]]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    ragged = Ragged(offsets_of([len(own) for own in ids]), np.concatenate(ids).astype(np.uint16))
    for longest in (form.added + 2, form.added + 7, 14, 21, 60):
        pairs = cross_train.PairTexts(ragged, ragged, form, longest)
        rows, passages = (each.ravel() for each in np.mgrid[: len(texts), : len(texts)])
        found = pairs.batch(rows, passages, torch.device("cpu"))
        given = [texts[n] for n in rows], [texts[n] for n in passages]
        options = {"truncation": "longest_first", "max_length": longest, "padding": True, "return_tensors": "pt"}
        expected = tokenizer(*given, **options)
        assert set(found) == set(tokenizer.model_input_names)
        for name in found:
            assert torch.equal(found[name], expected[name]), (name, longest)
        assert pairs.lengths(rows, passages).tolist() == expected["attention_mask"].sum(1).tolist()


def test_the_cut_of_lengths_is_that_of_the_library():
    tokenizer = Tokenizer.from_str(FAMILIES["bert"][0]().backend_tokenizer.to_str())
    lengths = np.arange(1, 25)
    first, second = (each.ravel() for each in np.meshgrid(lengths, lengths))
    for room in (2, 7, 12, 13):
        tokenizer.enable_truncation(room, strategy="longest_first")
        made = tokenizer.encode_batch(
            [("a " * q, "b " * p) for q, p in zip(first, second, strict=True)], add_special_tokens=False
        )
        tokenizer.no_truncation()
        expected = [[own.sequence_ids.count(side) for own in made] for side in (0, 1)]
        cut = cut_pairs(first, second, room)
        assert [each.tolist() for each in cut] == expected


@pytest.mark.parametrize("loss", ["binary", "softmax"])
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_killed_training_goes_on_to_the_same_bits(stages, tmp_path, monkeypatch, family, loss):
    world = World(stages, as_drawn(source_folder(tmp_path / "source", family)))
    dev = {"queries": 6, "depth": 4}
    options = {"loss": loss, "steps": 7, "evaluate_every": 3, "select": "dev", "dev": dev}
    whole, killed = world.job(**options), world.job(**options)
    world.finished(whole)
    go = Steps.step

    def dying(self, step):
        if step == 5:
            raise KeyboardInterrupt
        return go(self, step)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Steps, "step", dying)
        cross_train.run(killed)
    with safe_open(killed.resume / resume.FILE, framework="pt") as file:
        state = json.loads(file.metadata()["state"])
    world.finished(killed)
    assert facts_of(killed)["earlier_seconds"] == state["seconds"] + state["dev_seconds"] > state["seconds"] > 0
    assert facts_of(whole)["earlier_seconds"] == 0
    assert 0 < facts_of(killed)["resumed_from"] <= 5 and facts_of(killed)["attempts"] == 2
    assert bits_of(killed) == bits_of(whole)
    assert (killed.folder / "dev.tsv").read_bytes() == (whole.folder / "dev.tsv").read_bytes()
    other = world.finished(world.job(**options, seed=43))
    assert bits_of(other) != bits_of(whole)


def test_one_trained_here_ranks_dev_above_its_start(stages, tmp_path, monkeypatch):
    world = World(stages, as_drawn(source_folder(tmp_path / "source", **WITHOUT_DROPOUT)))
    dev = {"queries": DEV, "depth": 12}
    job = world.job(dev=dev, steps=40, evaluate_every=40, learning_rate=1e-2, warmup_ratio=0.1)
    trainer = trainer_of(job)
    reranking = cross_train.open_reranking(job, trainer)
    assert (np.diff(reranking.offsets) == 13).all(), "its positive, which is no neighbour, and twelve others"
    trainer.model.eval()
    own = reranking.passages_P[reranking.offsets[:-1]]  # the first passage of each query
    with monkeypatch.context() as patch:
        patch.setattr(cross_train, "own_pairs", lambda job, split, rows, passages: passages == own[np.searchsorted(
            reranking.rows_Q, rows)])  # fmt: skip
        ignoring = type(job)(job.spec | {"settings": job.raw_settings | {"ignore_own_text": True}}, root=stages.root)
        fewer = cross_train.open_reranking(ignoring, trainer)
    kept = np.setdiff1d(np.arange(len(reranking.passages_P)), reranking.offsets[:-1])
    assert (np.diff(fewer.offsets) == 12).all()
    np.testing.assert_array_equal(fewer.passages_P, reranking.passages_P[kept])
    before = reranking.values()
    facts = facts_of(world.finished(job))
    trainer.model.load_state_dict(ranker.load_ranker(job.folder / "checkpoint").state_dict())
    after = reranking.values()
    assert facts["dev"]["start_score"] == before.mean() and facts["dev"]["score"] == after.mean()
    assert after.mean() > before.mean() + 0.1
    assert paired_p_value(after, before, 9999, 1) < 0.01


def test_losses_are_those_of_a_plain_loop():
    scores = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pairs = [(float(s), float(c == 0)) for row in scores for c, s in enumerate(row)]
    binary = np.mean([np.log1p(np.exp(-s)) if wanted else np.log1p(np.exp(s)) for s, wanted in pairs])
    softmax = np.mean([-row[0] + np.log(np.exp(row).sum()) for row in scores.numpy()])
    assert cross_train.binary(scores).item() == pytest.approx(binary, rel=1e-12)
    assert cross_train.softmax(scores).item() == pytest.approx(softmax, rel=1e-12)


class Given(sentence_transformers.CrossEncoder):
    """A cross-encoder whose outputs are given: [M, labels], of the pair (anything, its number)."""

    device = torch.device("cpu")
    num_labels = property(lambda self: self.outputs.shape[1])

    def __init__(self, outputs):
        torch.nn.Module.__init__(self)
        self.outputs = outputs

    def preprocess(self, pairs, **_):
        return {"numbers": torch.tensor([number for _, number in pairs])}

    def forward(self, tokens):
        return {"scores": self.outputs[tokens["numbers"]]}


def by_pairs(scores):
    labels = torch.arange(scores.numel()) % 4 == 0
    return losses.BinaryCrossEntropyLoss(Given(scores.view(-1, 1)))([["q"] * len(labels), range(len(labels))], labels)


def by_two_labels(scores):
    """RocketQA's released code: the score is the difference of the two."""
    loss = losses.CrossEntropyLoss(Given(torch.stack([torch.zeros_like(scores), scores], -1).flatten(0, 1)))
    labels = torch.arange(scores.numel()) % 4 == 0
    return loss([["q"] * len(labels), range(len(labels))], labels.long())


def by_ranking(scores):
    """One query a call, because its own takes passages of the other queries of a call as negatives."""
    loss = losses.MultipleNegativesRankingLoss(Given(scores.view(-1, 1)), scale=1.0, activation_fn=None)
    return sum(loss([["q"], *([4 * row + n] for n in range(4))], None) for row in range(len(scores))) / len(scores)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(cross_train.binary, by_pairs), (cross_train.binary, by_two_labels), (cross_train.softmax, by_ranking)],
)
def test_losses_and_gradients_are_those_of_sentence_transformers(ours, theirs):
    found, expected = (
        torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        for _ in range(2)
    )
    values = ours(found), theirs(expected)
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-6)
    for value in values:
        value.backward()
    torch.testing.assert_close(found.grad, expected.grad, rtol=1e-6, atol=0)


def test_micro_batches_have_the_gradient_of_the_whole(stages, tmp_path):
    """Without dropout, which draws by the texts of a batch."""
    world, gradients = World(stages, source_folder(tmp_path / "source", **WITHOUT_DROPOUT)), []
    for accumulate in (1, 4):
        trainer = trainer_of(world.job(accumulate=accumulate))
        for micro in trainer.micro_batches(trainer.data.batch(0)):
            trainer.backward(*micro)
        gradients.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
    assert gradients[0].norm() > 1e-3


def test_an_encoder_gets_a_head_from_the_seed_and_keeps_its_own_weights(world, tmp_path):
    again, other = (world.started(tmp_path / "source", seed) for seed in (1, 2))
    models = [ranker.load_ranker(job.folder / "checkpoint") for job in (world.start, again, other)]
    heads = [model.classifier.weight for model in models]
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])
    source = load_backbone(tmp_path / "source")
    for name, weight in source.named_parameters():
        assert torch.equal(models[0].bert.get_parameter(name), weight), name
    assert facts_of(world.start)["drawn"] == ["classifier.bias", "classifier.weight"], "the pooler was there"
    tuned = world.started(world.start.folder / "checkpoint", 7)
    assert facts_of(tuned)["drawn"] == []
    assert torch.equal(ranker.load_ranker(tuned.folder / "checkpoint").classifier.weight, heads[0])


def test_a_start_with_several_labels_and_pairs_without_room_are_refused(world, tmp_path):
    folder = tmp_path / "source"
    AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3).save_pretrained(folder)
    with pytest.raises(Refusal, match=r"config.json: the cross-encoder has 3 labels"):
        world.started(folder, 1)
    for longest in (4, 65):
        with pytest.raises(Refusal, match=f"max_tokens .* is {longest}, .* 5 to 64"):
            cross_train.run(world.job(max_tokens=longest))


def test_a_pool_without_negatives_is_refused(world):
    empty = world.pool([np.zeros(0, int) for _ in range(QUERIES)])
    with pytest.raises(Refusal, match=f"{QUERIES} are without negatives"):
        cross_train.run(world.job(inputs={"negatives": empty}))
