"""Whole models of today: their tokenizers' rules, encoding, mining and training, as sentence-transformers does it.

Nothing is configured: pooling, normalisation, prompts and lengths are those of the folder's files. The library pads its
batches, to the left where the tokenizer says so; here texts are packed, so that there is no side.
"""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

import collection_world
from encoder_world import SIZE, encode_all, make_pretrained, make_tokens, source_folder
from teleport.encoder.completed import completed
from teleport.encoder.load import load_encoders
from teleport.negatives import merge
from teleport.search import index, retrieve
from teleport.settings.encoder import Encoder
from teleport.settings.negatives import Negatives
from teleport.settings.pool import Draw
from teleport.settings.registry import SOURCES, merge_loads, train_loads
from teleport.settings.training import TrainSettings
from teleport.training import train
from training_world import losses_of, settings

WORDS = ["the", "cat", "sat", "on", "a", "mat", "while", "12", "dogs", "ran", "over", "hills", "rivers", "café"]
RNG = np.random.default_rng(2)
PASSAGES = [" ".join(RNG.choice(WORDS, number)) for number in (3, 9, 9, 1, 5, 12, 2, 7, 7, 4, 11, 6)]
QUERIES = [" ".join(text.split()[:3]) for text in PASSAGES[:6]]
INSTRUCTION = "find:\nthe query:"
# family: (pooling, tokens before a text, tokens after it)
MODELS = {
    "qwen3": ("lasttoken", [], ["<|endoftext|>"]),
    "llama": ("lasttoken", ["<s>"], []),
    "mistral": ("lasttoken", ["<s>"], ["</s>"]),
    "gemma3": ("mean", ["<bos>"], ["<eos>"]),
    "embeddinggemma": ("mean", ["<bos>"], ["<eos>"]),
    "modernbert": ("cls", ["[CLS]"], ["[SEP]"]),
    "electra": ("mean", ["[CLS]"], ["[SEP]"]),
}


def library(folder):
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def published(tmp_path, family, pooling):
    """A miniature as its authors would have saved it."""
    transformer = Transformer(str(source_folder(tmp_path / "source", family)), max_seq_length=30)
    modules = [transformer, Pooling(SIZE["hidden_size"], pooling_mode=pooling), Normalize()]
    prompts = {"query": INSTRUCTION, "document": ""}
    SentenceTransformer(modules=modules, device="cpu", prompts=prompts).save_pretrained(str(tmp_path / "published"))
    return tmp_path / "published"


def mine(stages, vectors, collection):
    """(the retrieval of each query's neighbours, a pool of four of them without its positive)."""
    made = {"collection": collection, "passages": vectors["passages"], "queries": vectors["queries.train"]}
    made["index"] = stages.run(index.run, "index", {}, {"passages": vectors["passages"]})
    found = stages.run(retrieve.run, "retrieve", {"of": "queries", "split": "train", "depth": 6}, made)
    draw = Draw(count=4, place=0, draw=Negatives().draw_of("query"), scored=SOURCES["query"].scored)
    pool = Negatives().of_pool(seed=1, episode=1, sources={"query": draw})
    inputs = {"collection": collection, "query": found}
    return found, stages.run(merge.run, "merge", pool, inputs, loads=merge_loads(pool))


@pytest.mark.ci(3)
@pytest.mark.parametrize("family", MODELS)
def test_a_model_is_encoded_mined_with_and_trained_as_the_library_computes_it(stages, tmp_path, family):
    pooling, before, after = MODELS[family]
    folder = published(tmp_path, family, pooling)
    encoder = completed(Encoder(checkpoint={"folder": str(folder)}, title="none"))
    assert (encoder.query_prefix, encoder.max_passage_tokens, encoder.normalize) == (INSTRUCTION, 30, True)
    form = {"pooling": encoder.pooling, "normalize": True}
    lengths = {"max_query_tokens": 30, "max_passage_tokens": 30}
    checkpoint = make_pretrained(stages, folder, **form)
    texts = [(f"d{i}", "", text) for i, text in enumerate(PASSAGES)]
    queries, judged = [(f"q{i}", text) for i, text in enumerate(QUERIES)], [(i, i, 1) for i in range(len(QUERIES))]
    collection = collection_world.make_collection(
        stages, texts, {"train": queries}, {"train": judged}, settings={"source": {"source": "tsv"}}, corpus_digest="c0"
    )
    tokens = make_tokens(stages, collection, checkpoint, "none", query_prefix=INSTRUCTION)
    special = json.loads((tokens["tokens.passages"].folder / "special.json").read_text())
    tokenizer = library(folder).tokenizer
    assert [tokenizer.convert_ids_to_tokens(special[side]) for side in ("before", "after")] == [before, after]
    assert max(map(len, tokenizer(PASSAGES).input_ids)) > 30, "no text is cut: the length shows nowhere"

    def encoded(stage):
        return encode_all(stages, lengths | {"precision": "fp32"}, {"tokens": tokens, "checkpoint": stage})

    def require_equal(made, folder):
        """The vectors of the stages `encode` are the library's; returns those of the library."""
        model = library(folder)
        theirs = model.encode_query(QUERIES), model.encode_document(PASSAGES)
        for name, expected in zip(("queries.train", "passages"), theirs, strict=True):
            np.testing.assert_allclose(np.load(made[name].folder / f"{name}.npy"), expected, rtol=0, atol=1e-5)
        return theirs

    vectors = encoded(checkpoint)
    queries_QD, passages_PD = require_equal(vectors, folder)
    assert load_encoders(checkpoint.folder / "checkpoint")[0].packs
    found, pool = mine(stages, vectors, collection)
    scores_QP = queries_QD @ passages_PD.T
    np.testing.assert_allclose(np.load(found.folder / "scores.npy"), -np.sort(-scores_QP)[:, :6], rtol=0, atol=1e-5)
    inputs = {"collection": collection, "tokens": tokens, "negatives": pool, "checkpoint": checkpoint}
    told = settings({"steps": 15, "batch_queries": len(QUERIES)}, scale=20.0, **form, **lengths)
    loads = train_loads(TrainSettings.model_validate(told))
    job = stages.make("train", told, inputs | {"pretrained": checkpoint}, loads=loads)
    trained = stages.finish(job, train.run(job))
    losses = [float(loss) for loss in losses_of(trained)[1]]
    assert losses[-1] < losses[0]
    after_QD, after_PD = require_equal(encoded(trained), trained.folder / "checkpoint")
    assert min(np.abs(after_QD - queries_QD).max(), np.abs(after_PD - passages_PD).max()) > 1e-2
