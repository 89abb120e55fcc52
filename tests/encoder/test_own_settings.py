"""What a checkpoint says of itself: taken where the configuration is silent; another pooling is refused."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModel

from encoder_world import make_pretrained, source_folder
from teleport.encoder.completed import completed, read_files, replaced
from teleport.encoder.own_settings import AFTER_PADDING, most_tokens, own_settings
from teleport.refusal import Refusal
from teleport.settings.encoder import Encoder

MODULES = {"": "Transformer", "1_Pooling": "Pooling"}


def write(folder, path, content):
    (folder / path).parent.mkdir(exist_ok=True, parents=True)
    (folder / path).write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path):
    """A checkpoint with all files: cls, normalised, two prompts, 48 tokens."""
    path = source_folder(tmp_path / "own")
    modules = MODULES | {"2_Normalize": "Normalize"}
    write(
        path,
        "modules.json",
        [{"path": place, "type": f"sentence_transformers.models.{name}"} for place, name in modules.items()],
    )
    write(path, "1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    write(path, "sentence_bert_config.json", {"max_seq_length": 48})
    write(path, "config_sentence_transformers.json", {"prompts": {"query": "q: ", "passage": "p: "}})
    return path


def encoder(folder, **said):
    return Encoder(checkpoint={"folder": str(folder)}, **said)


def said_of(made):
    return made.model_dump(
        include={
            "pooling", "normalize", "query_prefix", "passage_prefix", "max_query_tokens", "max_passage_tokens"
        }
    )  # fmt: skip


def test_the_files_fill_in_what_is_left_out(folder):
    assert said_of(completed(encoder(folder, max_query_tokens=16))) == {
        "pooling": "cls",
        "normalize": True,
        "query_prefix": "q: ",
        "passage_prefix": "p: ",
        "max_query_tokens": 16,
        "max_passage_tokens": 48,
    }


def test_without_files_all_but_the_pooling_is_as_usual(tmp_path):
    bare = source_folder(tmp_path / "bare")
    with pytest.raises(ValueError, match=r"encoder.pooling: .*bare"):
        completed(encoder(bare))
    assert said_of(completed(encoder(bare, pooling="mean"))) == {
        "pooling": "mean",
        "normalize": False,
        "query_prefix": "",
        "passage_prefix": "",
        "max_query_tokens": 32,
        "max_passage_tokens": 64,  # not 128: so many positions it has
    }


def test_more_tokens_than_positions_are_refused_before_anything_is_built(folder, tmp_path):
    """By the key where somebody has set it, else by the file that says it; RoBERTa's positions begin after two."""
    write(folder, "sentence_bert_config.json", {"max_seq_length": 65})
    message = "bert_config.json says that a text has at most 65 tokens, but .*config.json has positions for 64. Set enc"
    with pytest.raises(Refusal, match=message):
        completed(encoder(folder))
    assert completed(encoder(folder, max_query_tokens=64, max_passage_tokens=64)).max_passage_tokens == 64
    roberta = source_folder(tmp_path / "roberta", "roberta")
    with pytest.raises(Refusal, match=r"^encoder.max_query_tokens is 65, .*config.json .* 64"):
        completed(encoder(roberta, pooling="mean", max_query_tokens=65))
    assert completed(encoder(roberta, pooling="mean", max_query_tokens=64)).max_passage_tokens == 64


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"pooling": "mean"}, "encoder.pooling is 'mean', but .*1_Pooling/config.json says 'cls'. Set it to 'cls', or"),
        ({"normalize": False}, "encoder.normalize is False, but .*modules.json says True"),
        ({"max_passage_tokens": 65}, "encoder.max_passage_tokens is 65, but .*config.json .* 64"),
    ],
)
def test_a_conflict_names_both(folder, said, message):
    with pytest.raises(ValueError, match=message):
        completed(encoder(folder, **said))


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ({"query_prefix": "Find the paragraph of the law: ", "passage_prefix": "p: "}, ["query_prefix"]),
        ({"query_prefix": "", "passage_prefix": "{title}: ", "title": "none"}, ["query_prefix", "passage_prefix"]),
        ({"max_query_tokens": 48, "max_passage_tokens": 64}, ["max_passage_tokens"]),
    ],
)
def test_other_prompts_and_longer_texts_are_taken_and_told(folder, said, names):
    asked = encoder(folder, **said)
    made = completed(asked)
    assert {name: getattr(made, name) for name in said} == said
    own = replaced(asked, read_files(asked))
    files = {"query_prefix": "q: ", "passage_prefix": "p: ", "max_passage_tokens": 48}
    assert {name: value for name, (value, _) in own.items()} == {name: files[name] for name in names}
    assert replaced(encoder(folder), read_files(asked)) == {}, "nothing is set"


MODULE = {"path": "", "type": "sentence_transformers.Transformer"}


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "pooling max"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pooling cls and mean"),
        ("1_Pooling/config.json", [], "1_Pooling/config.json: its content: Input should be a valid dict"),
        ("modules.json", [MODULE, {"path": "1_D", "type": "sentence_transformers.Dense"}], "Dense, which"),
        ("modules.json", [MODULE, {"path": "1_C", "type": "sentence_transformers.CNN"}], "CNN, which"),
        ("modules.json", [MODULE, {"path": "1_L", "type": "sentence_transformers.LayerNorm"}], "LayerNorm, which"),
        ("modules.json", [MODULE | {"type": "custom_st.Transformer"}], "module custom_st.Transformer, which"),
        (
            "modules.json",
            [{"path": "1_Pooling", "type": "sentence_transformers.Pooling"}],
            "the modules Pooling in this order",
        ),
        ("modules.json", [MODULE | {"path": "0_T"}], "'0_T'"),
    ],
)
def test_what_is_not_computed_is_refused(folder, path, content, message):
    write(folder, path, content)
    with pytest.raises(ValueError, match=message):
        own_settings(folder)


def test_the_newer_spelling_of_a_pooling_is_read_too(folder):
    write(folder, "1_Pooling/config.json", {"embedding_dimension": 32, "pooling_mode": "mean"})
    assert own_settings(folder)["pooling"].value == "mean"


def test_the_two_sides_may_have_prompts_of_their_own(folder, tmp_path):
    queries = source_folder(tmp_path / "queries")
    write(queries, "config_sentence_transformers.json", {"prompts": {"query": "ask: "}})
    two = encoder(folder, tied=False, query_checkpoint={"folder": str(queries)})
    made = completed(two)
    assert (made.query_prefix, made.passage_prefix) == ("ask: ", "p: ")


def test_the_lengths_of_queries_are_those_of_their_own_checkpoint(folder, tmp_path):
    queries = source_folder(tmp_path / "queries")
    two = {"tied": False, "query_checkpoint": {"folder": str(queries)}}
    write(queries, "sentence_bert_config.json", {"max_seq_length": 40})
    made = completed(encoder(folder, **two))
    assert (made.max_query_tokens, made.max_passage_tokens) == (40, 48)
    longer = encoder(folder, max_query_tokens=41, **two)
    assert completed(longer).max_query_tokens == 41
    ((value, file),) = replaced(longer, read_files(longer)).values()
    assert value == 40 and file == queries / "sentence_bert_config.json"
    write(queries, "sentence_bert_config.json", {})
    config = json.loads((queries / "config.json").read_text())
    write(queries, "config.json", config | {"max_position_embeddings": 40})
    with pytest.raises(Refusal, match="is 41, .*/config.json of encoder.query_checkpoint .* 40"):
        completed(encoder(folder, max_query_tokens=41, **two))
    assert completed(encoder(folder, max_query_tokens=40, **two)).max_query_tokens == 40


def test_on_the_hub_nothing_is_asked_where_all_is_said(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said = {"pooling": "cls", "normalize": False, "query_prefix": "", "passage_prefix": ""}
    said |= {"max_query_tokens": 32, "max_passage_tokens": 128, "checkpoint": {"hub": "a/b", "revision": "c"}}
    assert completed(Encoder(**said)) == Encoder(**said)


def test_a_checkpoint_of_ours_given_back_says_what_it_was_made_with(stages, tmp_path):
    """The same weights, pooling and normalisation, without a word in the configuration."""
    source = source_folder(tmp_path / "source")
    write(source, "sentence_bert_config.json", {"max_seq_length": 48})
    made = make_pretrained(stages, source, pooling="mean", normalize=True)
    checkpoint = made.folder / "checkpoint"
    back = completed(encoder(checkpoint))
    assert (back.pooling, back.normalize, back.query_prefix, back.passage_prefix) == ("mean", True, "", "")
    assert (back.max_query_tokens, back.max_passage_tokens) == (48, 48)
    again = make_pretrained(stages, checkpoint, pooling=back.pooling, normalize=back.normalize)
    for name in ("model.safetensors", "tokenizer.json", "modules.json", "1_Pooling/config.json"):
        assert (again.folder / "checkpoint" / name).read_bytes() == (checkpoint / name).read_bytes()


def test_the_stage_refuses_a_conflict_that_nobody_saw_before(stages, folder):
    """Of a checkpoint on the hub for which the configuration states everything."""
    with pytest.raises(ValueError, match="encoder.pooling is 'mean', but .* says 'cls'"):
        make_pretrained(stages, folder, pooling="mean", normalize=True)


@pytest.mark.parametrize("model_type", ["bert", "electra", *sorted(AFTER_PADDING - {"longformer"})])
def test_a_text_has_as_many_tokens_as_transformers_has_positions_for(model_type):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = AutoConfig.for_model(model_type, vocab_size=40, max_position_embeddings=20, pad_token_id=1, **sizes)
    model, most = AutoModel.from_config(config).eval(), most_tokens(model_type, 20, 1)
    ids = torch.arange(2, most + 3)[None]
    with torch.inference_mode():
        assert model(ids[:, :most]).last_hidden_state.shape[1] == most
        with pytest.raises((IndexError, RuntimeError)):
            model(ids)
