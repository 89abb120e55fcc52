"""The stages that tokenise and encode "passages" or "queries.SPLIT", with the encoder of an experiment, a teacher or a
checkpoint from elsewhere that mines."""

from functools import cached_property
from typing import NamedTuple

from teleport.encoder.completed import completed
from teleport.encoder.source import named
from teleport.plan.identity import pretrained_settings
from teleport.plan.stage import Stage
from teleport.settings.encoder import EncodeSettings, TokensSettings
from teleport.settings.search import IndexSettings
from teleport.settings.section import Section

# How queries are encoded: cut to the length of queries, with one vector each, stored in float32.
QUERIES_SIDE = {"max_passage_tokens": None, "chunks": 1, "vectors": "fp32"}


def tokens_stage(plan, encoder, texts, tokenizer):
    """The tokens stage of texts. tokenizer: the pretrained stage that has it"""
    settings = {"of": texts, "lower_case": bool(encoder.lower_case)}
    if texts == "passages":
        inputs, settings["prefix"] = {"corpus": plan.corpus}, encoder.passage_prefix
        settings |= {"title": encoder.title, "max_characters": encoder.max_characters}
    else:
        split, settings["prefix"] = texts.removeprefix("queries."), encoder.query_prefix
        inputs = {f"split.{split}": plan.split(split)}
    return Stage("tokens", TokensSettings(**settings), inputs | {"pretrained": tokenizer})


def encode_stage(encoder, texts, precision, tokens, checkpoint):
    """The encode stage of texts, from their tokens stage and the stage of a checkpoint."""
    others = QUERIES_SIDE if texts != "passages" else {"max_query_tokens": None}
    settings = EncodeSettings.taken_from(encoder, of=texts, precision=precision, **others)
    return Stage("encode", settings, {f"tokens.{texts}": tokens, "checkpoint": checkpoint})


class Reading(NamedTuple):
    """How texts are read. encoder: settings.Encoder, completed; tokenizer: the pretrained stage that has it"""

    encoder: Section
    precision: str
    tokenizer: Stage


class Checkpoint(NamedTuple):
    """A dual encoder. stage: its folder has the checkpoint; query, passage: the (earlier) stages that made each side"""

    stage: Stage
    query: Stage
    passage: Stage


class Vectors:
    """The encode stages of passages and queries under a checkpoint, and the exact index, each planned when needed.

    number: of the episode in whose folder they are linked, with a suffix; reading: the `Reading` of another encoder
    than the trajectory's, None for its own; encoded: {texts: encode stage}
    """

    def __init__(self, trajectory, checkpoint, number, suffix="", reading=None):
        self.trajectory, self.checkpoint, self.number, self.suffix = trajectory, checkpoint, number, suffix
        self.reading, self.encoded = reading, {}

    @property
    def passages(self):
        """The encode stage of the passages."""
        return self.encoding("passages", self.checkpoint.passage)

    @cached_property
    def index(self):
        return self.link(Stage("index", IndexSettings(), {"passages": self.passages}), "index")

    def queries(self, split):
        """The encode stage of the queries of a split."""
        return self.encoding(f"queries.{split}", self.checkpoint.query)

    def encoding(self, texts, made):
        """The encode stage of "passages" or "queries.SPLIT" under the checkpoint of the stage `made`."""
        if texts not in self.encoded:
            if self.reading is None:
                stage = self.trajectory.encoding_of(made, texts)
            else:
                encoder, precision, tokenizer = self.reading
                tokens = tokens_stage(self.trajectory.plan, encoder, texts, tokenizer)
                stage = encode_stage(encoder, texts, precision, self.link(tokens, f"tokens-{texts}"), made)
            self.encoded[texts] = self.link(stage, f"encode-{texts}")
        return self.encoded[texts]

    def link(self, stage, name):
        """Link a stage in the episode's folder, by a name with the suffix; returns it."""
        return self.trajectory.link(stage, self.number, f"{name}{self.suffix}")

    def of_split(self, split):
        """{role: encode stage} that a search of a split's queries reads."""
        return {"queries": self.queries(split), "passages": self.passages}

    @property
    def stages(self):
        return [*self.encoded.values(), self.index]


def vectors_of_encoder(trajectory, encoder, number, name, key):
    """The `Vectors` of a checkpoint from elsewhere, linked in the folder of episode `number` with `-name`. encoder: its
    settings.Encoder, under a key of the configuration"""
    with named(f"{key}.checkpoint"):
        encoder = completed(encoder)
    source = Stage("pretrained", pretrained_settings(encoder, 0, key), {})
    trajectory.link(source, number, f"pretrained-{name}")
    reading = Reading(encoder, encoder.precision or "auto", source)
    return Vectors(trajectory, Checkpoint(source, source, source), number, f"-{name}", reading)
