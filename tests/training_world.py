"""A small world for the tests of `training`: finished upstream stages around a tiny random BERT, without downloads."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    Gemma3TextConfig,
    Gemma3TextModel,
    LlamaConfig,
    LlamaModel,
    Qwen3Config,
    Qwen3Model,
)

import collection_world
from stages import Parts, facts_of  # noqa: F401
from teleport.arrays import CHUNK_OFFSETS, Ragged, offsets_of, save_array
from teleport.encoder import encode
from teleport.encoder.batches import Chunks
from teleport.encoder.load import save_encoders
from teleport.encoder.model import Encoder
from teleport.negatives import cross_score
from teleport.negatives.scores import write_table
from teleport.reader import read_positives
from teleport.running.artefact import Artefact
from teleport.search import index
from teleport.settings import registry
from teleport.settings.search import IndexSettings
from teleport.settings.training import TrainSettings
from teleport.training import cross_train, train
from teleport.training.data import TrainingSet, read_training_set
from teleport.training.dual_encoder import Trainer

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(195))]
SPECIAL = {"before": [2], "after": [3], "sep": 3, "pad": 0, "unk": 1, "vocab_size": len(VOCABULARY)}
NUM_QUERIES, NUM_PASSAGES, NUM_DEV = 20, 60, 12
TRAINING = {
    "negatives_per_query": 3,
    "batch_queries": 4,
    "learning_rate": 3e-3,
    "warmup_ratio": 0.1,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "epochs": None,
    "steps": 12,
    "stop_after_steps": None,
    "triples": False,
    "positive": "rotate",
    "precision": "fp32",
}
SETTINGS = {
    "max_query_tokens": 8,
    "max_passage_tokens": 24,
    "scale": 1.0,
    "normalize": False,
    "pooling": "mean",
    "projection": None,
    "tied": True,
    "seed": 42,
    "episode": 1,
    "run_episode": 1,
    "relevant_grade": 1,
}
LIVE = {"trains": ["query"], "negatives_per_query": 0, "loss": {"kind": "lambda", "metric_cut": 20}}  # of a live search


@pytest.fixture(autouse=True)
def on_cpu(request, monkeypatch):
    """Equal bits are promised on a CPU only, so tests use it even where there is a GPU, but for those of a GPU."""
    if not request.node.get_closest_marker("gpu"):
        for module in (train, cross_train, cross_score, encode):
            monkeypatch.setattr(module, "pick_device", lambda: torch.device("cpu"))


@pytest.fixture
def one_thread():
    """Small products gain nothing from more."""
    torch.set_num_threads(1)


def settings(training=None, **others):
    """Settings of a train job: the defaults above with changes. An episode begins its own training unless told."""
    own, training = {"run_episode": others["episode"]} if "episode" in others else {}, TRAINING | (training or {})
    loss, masks = training.get("loss", "softmax"), [kind_of(mask) for mask in training.get("masks", [])]
    loss = list(map(kind_of, loss)) if isinstance(loss, list) else kind_of(loss)
    return SETTINGS | own | others | {"training": training | {"loss": loss, "masks": masks}}


def kind_of(name):
    """A loss or a mask as the plan gives it, if only its name is given."""
    return {"kind": name} if isinstance(name, str) else name


def training_set(sizes, **training):
    """Query i has the positives 100 + i and 200 + i, and a pool of sizes[i] passages 1000 * i + 0, 1, ..."""
    settings = {"batch_queries": 2, "negatives_per_query": 3, "positive": "rotate", "triples": False}
    settings |= {"distinct_positives": False} | training
    count = len(sizes)
    pools = Ragged(np.cumsum([0, *sizes]), np.concatenate([1000 * i + np.arange(n) for i, n in enumerate(sizes)]))
    positives = Ragged(
        2 * np.arange(count + 1), np.stack([100 + np.arange(count), 200 + np.arange(count)], axis=1).ravel()
    )
    return TrainingSet([f"id{i}" for i in range(count)], positives, pools, SimpleNamespace(**settings), seed=42)


def texts():
    """Token ids of queries and passages; query i has words of its positives i and i + 20, so that it can learn."""
    rng = np.random.default_rng(0)
    passages = [rng.integers(5, len(VOCABULARY), size=rng.integers(3, 30)) for _ in range(NUM_PASSAGES)]
    for i in range(NUM_QUERIES):
        passages[i + NUM_QUERIES] = rng.choice(passages[i], size=rng.integers(3, 30))
    queries = [rng.choice(passages[i], size=rng.integers(2, 8)) for i in range(NUM_QUERIES)]
    return queries, passages


def dev_texts():
    """Token ids of the dev queries; query i has words of its positive i + 20, but for the last two, without one."""
    passages, rng = texts()[1], np.random.default_rng(3)
    return [rng.choice(passages[i + NUM_QUERIES], size=4) for i in range(NUM_DEV)]


def make_collection(stages):
    """Query i has the positive i, and i + 20 too when i is even, and a judgment below the positive grade."""
    queries = [(f"query-{i:02d}", f"query-{i:02d}") for i in range(NUM_QUERIES)]
    judged = [(i, i, 2) for i in range(NUM_QUERIES)]
    judged += [(i, i + NUM_QUERIES, 2) for i in range(0, NUM_QUERIES, 2)] + [(i, 59, 1) for i in range(NUM_QUERIES)]
    splits = {"train": queries, "dev": [(f"dev-{i:02d}", f"dev-{i:02d}") for i in range(NUM_DEV)]}
    judgments = {"train": judged, "dev": [(i, i + NUM_QUERIES, 2) for i in range(NUM_DEV - 2)]}
    settings, facts = {"source": {"source": "tsv"}}, {"positive_grade": 2, "corpus_digest": "c0ffee"}
    return collection_world.make_collection(stages, NUM_PASSAGES, splits, judgments, settings=settings, **facts)


def make_tokens(stages, lower_case=False, **prefixes):
    """Token maps as the stages `tokens` write them, `Parts`; prefixes: query_prefix, passage_prefix."""
    made = Parts()
    for name, lists in zip(("queries.train", "passages", "queries.dev"), (*texts(), dev_texts()), strict=True):
        prefix = prefixes.get("passage_prefix" if name == "passages" else "query_prefix", "")
        settings = {"of": name, "lower_case": lower_case, "prefix": prefix}
        job = stages.make("tokens", settings | ({"title": "sep"} if name == "passages" else {}))
        save_array(job.output(f"{name}.ids.npy"), np.concatenate(lists).astype(np.uint16))
        save_array(job.output(f"{name}.offsets.npy"), offsets_of([len(ids) for ids in lists]))
        job.output("special.json").write_text(json.dumps(SPECIAL))
        made[f"tokens.{name}"] = stages.finish(job)
    return made


def make_negatives(stages, sizes=None, first=40):
    """A pool of random passages (rows `first` to 58) per query; `sizes` gives the pools' lengths.

    Rows from 40 on are nobody's positives.
    """
    rng = np.random.default_rng(1)
    sizes = np.full(NUM_QUERIES, 10) if sizes is None else np.asarray(sizes)
    job = stages.make("merge", {"episode": 1})
    save_array(job.output("offsets.npy"), offsets_of(sizes))
    save_array(job.output("passages.npy"), rng.integers(first, 59, size=sizes.sum()).astype(np.int32))
    return stages.finish(job)


def tiny_bert(seed=0, dropout=0.1):
    """A BERT of 2 layers and 32 dimensions."""
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return with_drawn_weights(BertModel(config, add_pooling_layer=False), seed)


def tiny_qwen3(seed=0, dropout=0.0):
    """A Qwen3 of the same size, whose two heads of queries share one of keys. dropout: of attention, it has no other"""
    return with_drawn_weights(Qwen3Model(Qwen3Config(**decoder(dropout))), seed)


def tiny_llama(seed=0, dropout=0.0):
    """A Llama of the same size."""
    return with_drawn_weights(LlamaModel(LlamaConfig(**decoder(dropout))), seed)


def tiny_gemma3(seed=0, dropout=0.0):
    """A Gemma 3 of the same size, whose first layer looks back 8 tokens."""
    windows = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 16}
    return with_drawn_weights(Gemma3TextModel(Gemma3TextConfig(**decoder(dropout), **windows)), seed)


def decoder(dropout):
    """The sizes of a small decoder (dict)."""
    return dict(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
        attention_dropout=dropout,
    )


def with_drawn_weights(model, seed):
    """The model with weights from numpy, the same on every machine."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.from_numpy(rng.normal(0, 0.1, size=tuple(parameter.shape))))
            else:
                parameter.fill_(1.0 if name.lower().endswith("norm.weight") else 0.0)
    return model


def make_pretrained(stages, dropout=0.1, tied=True, model=tiny_bert, pooling="mean", normalize=False, projection=None):
    """A pretrained stage: one tiny model, or two different ones when untied. projection: width of a drawn head"""
    job = stages.make("pretrained", {"checkpoint": {"hub": None, "folder": "tiny", "sha256": None}})
    tokenizer = stages.root / "tokenizer"
    BertTokenizer(vocab={word: i for i, word in enumerate(VOCABULARY)}).save_pretrained(tokenizer)
    query = Encoder(model(0, dropout), pooling, projection, normalize)
    passage = query if tied else Encoder(model(1, dropout), pooling, projection, normalize)
    for encoder in (query, passage) if projection else ():
        encoder.init_head(torch.Generator().manual_seed(0))
    save_encoders(query, passage, job.output("checkpoint"), tokenizer)
    facts = {"weights_sha256": "beef", "model_type": query.backbone.config.model_type, "dim": 32}
    return stages.finish(job, facts)


def make_vectors(stages, checkpoint, tokens, of):
    """A finished encode stage of "passages" or "queries.SPLIT" under a checkpoint."""
    settings = {"of": of, "max_query_tokens": 8, "max_passage_tokens": 24, "precision": "fp32"}
    return stages.run(encode.run, "encode", settings, {"tokens": tokens, "checkpoint": checkpoint})


class World:
    """Finished upstream stages, and train jobs on top of them."""

    def __init__(self, stages, dropout=0.1, tied=True, sizes=None, first_negative=40, **of_model):
        """of_model: options of `make_pretrained`"""
        self.stages, self.tied = stages, tied
        pretrained = make_pretrained(stages, dropout, tied, **of_model)
        self.inputs = {
            "collection": make_collection(stages),
            "tokens": make_tokens(stages),
            "negatives": make_negatives(stages, sizes, first_negative),
            "checkpoint": pretrained,
            "pretrained": pretrained,
        }

    def job(self, training=None, save_every=1e9, inputs=None, **others):
        """A fresh train job, one thread; `inputs` are those of other roles, or others for a role (None: none)."""
        made = settings(training, tied=self.tied, **others)
        named = {role: job for role, job in (self.inputs | (inputs or {})).items() if job}
        loads = registry.train_loads(TrainSettings.model_validate(made))
        return self.stages.make("train", made, named, save_every=save_every, loads=loads)

    def frozen(self, side, checkpoint=None):
        """The inputs of a job in which a side is frozen: {role: the encode stage of its vectors}."""
        checkpoint = checkpoint or self.inputs["checkpoint"]
        roles = (
            {"queries": "queries.train", "dev_queries": "queries.dev"} if side == "query" else {"passages": "passages"}
        )
        made = {role: make_vectors(self.stages, checkpoint, self.inputs["tokens"], of) for role, of in roles.items()}
        return made | {"checkpoint": checkpoint}

    def live(self, search=None, **options):
        """Arguments of `job` for a training that searches at every step. search: settings of negatives.live."""
        search = {"depth": 20} | (search or {})
        inputs = self.frozen("passage") | {"negatives": None}
        settings = IndexSettings(index=search.get("index", "Flat"))
        inputs["index"] = self.stages.run(index.run, "index", settings, {"passages": inputs["passages"]})
        return {"training": LIVE | options.pop("training", {}), "inputs": inputs, "live": search} | options

    def watched(self, dev=None, **options):
        """Arguments of `job` for a training that dev queries are ranked in, every third step unless told.

        dev: settings of training.dev. The neighbours of dev query i, as if they were mined, are passages 3 i to 3 i + 4
        """
        run = collection_world.make_run(self.stages, 3 * np.arange(NUM_DEV)[:, None] + np.arange(5))
        dev = {"queries": 8, "passages": 24, "random": 8} | (dev or {})
        inputs = {"dev": run} | options.pop("inputs", {})
        return {"training": {"evaluate_every": 3} | options.pop("training", {}), "inputs": inputs, "dev": dev} | options

    def taught(self, width=32, seed=5, scores=None, chunks=None, spoil=None):
        """The inputs of a job whose loss or masks see a teacher, "miner": {role: job}. Scores of all pairs of the pools
        and of the positives are grades from 0 to 1, unless given (function of how many → float32), vectors are random.
        chunks: most tokens of a chunk, and most chunks, of which each has a vector; None: one for each passage
        spoil: function of the vectors of "queries.train" or "passages", by that name → others
        """
        rng, inputs = np.random.default_rng(seed), self.inputs
        pool = Ragged.open(*(inputs["negatives"].folder / f"{name}.npy" for name in ("offsets", "passages")))
        positives = read_positives(Artefact(inputs["collection"].folder), "train")
        pairs = [np.stack([each.rows, each.values]) for each in (pool, positives)]
        rows, passages = np.unique(np.concatenate(pairs, axis=1), axis=1)
        table = self.stages.make("score")
        drawn = rng.random(len(rows)) if scores is None else scores(len(rows))
        write_table(table, rows, passages, drawn, NUM_QUERIES)
        vectors, rows = self.stages.make("encode"), NUM_PASSAGES
        if chunks:
            tokens = Ragged(offsets_of([len(ids) for ids in texts()[1]]), np.concatenate(texts()[1]))
            offsets = Chunks(tokens, chunks[0], SPECIAL, chunks[1]).offsets
            save_array(vectors.output(CHUNK_OFFSETS), offsets)
            rows = offsets[-1]
        for name, number in (("queries.train", NUM_QUERIES), ("passages", rows)):
            made = rng.normal(size=(number, width)).astype(np.float32)
            save_array(vectors.output(f"{name}.npy"), spoil(name, made) if spoil else made)
        roles = {"scores.miner": self.stages.finish(table)} | dict.fromkeys(
            ("vectors.miner.queries", "vectors.miner.passages"), self.stages.finish(vectors)
        )
        return roles

    def finished(self, job):
        """Run a train job and publish it; returns the job."""
        return self.stages.finish(job, train.run(job))


def make_trainer(job, budget=None, double=False):
    """The trainer of a train job. budget: tokens of a bucket; double: whether its encoders compute in float64"""
    made = train.make_trainer(job, read_training_set(job, 1), 12, 1)
    made.token_budget = budget or made.token_budget
    if double:
        made.encoders.double()
    return made


def gradients_of(module):
    """{name: gradient} of the parameters that have one."""
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def require_close(found, expected, tolerance=1e-6):
    """No number of a gradient differs by more than this share of the largest of all."""
    assert found.keys() == expected.keys() and len(found) > 30
    largest = max(gradient.abs().max() for gradient in expected.values())
    assert largest > 0
    for name, gradient in expected.items():
        assert (found[name] - gradient).abs().max() <= tolerance * largest, name


def loss_of(trainer, batch):
    """The loss of a batch with its graph, what is masked in it left out."""
    ((batch, masked, _),) = trainer.micro_batches(batch)
    (loss,), _ = trainer.forward(batch, masked)
    return loss


def backward(trainer, batch):
    """Add the gradients of a step on a batch, without clipping; returns its loss (float)."""
    return sum(sum(trainer.backward(*micro_batch)[0]) for micro_batch in trainer.micro_batches(batch)).item()


def die_at(job, step, monkeypatch):
    """Run a train job that ends as if it was killed when it comes to a step (int)."""
    go = Trainer.step

    def dying(self, number):
        if number == step:
            raise KeyboardInterrupt
        return go(self, number)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "step", dying)
        train.run(job)


def losses_of(job):
    """(learning rates, losses) of a finished train job, as text, so that equal means equal to the last digit."""
    lines = [line.split("\t") for line in (job.folder / "losses.tsv").read_text().splitlines()[1:]]
    return [line[1] for line in lines], [line[2] for line in lines]


def weights(job, side="."):
    """The weights of a finished job's checkpoint ({name: tensor}), or of one side where it has two."""
    return load_file(job.folder / "checkpoint" / side / "model.safetensors")
