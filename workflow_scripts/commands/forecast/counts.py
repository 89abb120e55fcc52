"""Sizes for the forecast: passages, queries, tokens and the encoder's shape, measured where built, else as
configured."""

import functools
import json
from collections import Counter
from contextlib import suppress
from copy import copy

from teleport.costs import vector_bytes
from teleport.encoder.own_settings import dense_width, with_common_names
from teleport.encoder.shape import Shape
from teleport.encoder.source import OWN_FILES, WEIGHTS, in_hub_cache, locate
from teleport.refusal import Refusal
from teleport.running.artefact import STAGES, Artefact, is_finished
from teleport.settings.section import rows_of_part

SPECIAL_TOKENS = 2  # CLS and SEP
NO_ENCODER_TOKENS = 100  # of a passage, if no encoder sets a length: DPR's passages of 100 words
FILE_NEGATIVES = 100  # per query in a file of negatives: an assumption, because it is read only by its stage


def artefact_of(stage):
    """The Artefact of a planned stage, or None when it is not made yet."""
    return Artefact(STAGES / stage.name) if is_finished(stage.name) else None


def of_kind(plan, kind):
    """The stages of a plan that are of one kind (list)."""
    return [stage for stage in plan.stages.values() if stage.kind == kind]


def token_maps(plan):
    """The stages `tokens` of a plan's passages (list)."""
    return [stage for stage in of_kind(plan, "tokens") if stage.settings.of == "passages"]


class Counts:
    """Sizes of a plan's collection, and what follows from them for its stages.

    passages: int; queries and positives: {split: int}, 0 for another split; source: where they are from, for the
    reader; download_bytes: of all files, or None if unknown
    """

    def __init__(self, plan):
        self.plan, self.expected = plan, plan.config.expected
        self.download_bytes = self.expected and self.expected.download_bytes
        stages = {"corpus": plan.corpus} | plan.collection["splits"]
        built = {name: artefact_of(stage) for name, stage in stages.items()}
        missing = [stages[name].name for name, artefact in built.items() if artefact is None]
        if missing and self.expected is None:
            raise Refusal(
                f"the size of the collection is unknown: {missing[0]} is not built and the configuration has no "
                "`counts`. Add `counts: {passages: …, queries: {train: …, test: …}}`, or build it first: run the "
                "workflow with these files after --configfile and `--until split`."
            )
        self.source = "`counts` of the configuration" if missing else f"the built {plan.corpus.name} and its splits"
        corpus, expected = built.pop("corpus"), self.expected
        self.passages = corpus.facts["num_passages"] if corpus else expected.passages
        self.queries = Counter(expected.queries if expected else {})
        self.positives = Counter({**self.queries, **(expected.positives if expected else {})})
        for split, artefact in built.items():
            if artefact:
                self.queries[split], self.positives[split] = (artefact.facts[n] for n in ("queries", "positives"))

    def of_unknown(self, plan):
        """These `Counts` for the plan of another collection of unknown size."""
        made = copy(self)
        made.plan, made.source = plan, "the first, because its own size is unknown"
        return made

    @staticmethod
    def in_part(number, part):
        """How many of `number` queries, or lines of them, are in a `settings.section.Part` of the queries (None:
        all)."""
        first, last = rows_of_part(part, number)
        return last - first

    @staticmethod
    def is_fetched(source):
        """Whether the weights of a `CheckpointSource` come over the network: from the hub, not from its cache."""
        return bool(source.hub) and not any(in_hub_cache(source, name) for name in WEIGHTS)

    @staticmethod
    def shape(pretrained):
        """The `Shape` of the encoder of a planned `pretrained` stage."""
        return encoder_shape(pretrained)[0]

    def tokens_per_text(self, tokens, name, limit):
        """Mean tokens per text of a planned stage `tokens` as the encoder sees it, special tokens included, cut at
        `limit`; name: `passages` or `queries.SPLIT`. Measured, else from `counts`, else `limit`, the most it can be."""
        artefact = artefact_of(tokens)
        if artefact is not None and (measured := mean_length(artefact.folder.resolve(), name, limit)):
            return measured
        kind = "passage_tokens" if name == "passages" else "query_tokens"
        return min(limit, getattr(self.expected, kind, None) or limit)

    def chunks_per_passage(self, tokens, limit, most):
        """Mean chunks of `limit` tokens per passage (encoder.chunks), at most `most`; half of the last one is taken as
        empty if it is not measured."""
        if most == 1:
            return 1.0
        if (artefact := artefact_of(tokens)) is not None:
            return mean_length(artefact.folder.resolve(), "passages", most, limit) or 1.0
        return min(most, self.tokens_per_text(tokens, "passages", most * limit) / limit + 0.5)

    def texts(self, of):
        """How many texts "passages" or "queries.SPLIT" are."""
        return self.passages if of == "passages" else self.queries[of.removeprefix("queries.")]

    def chunks(self, stage):
        """Mean vectors per passage of a stage that encodes or trains, and tokens of each: (chunks, tokens)."""
        settings, tokens = stage.settings, stage.inputs["tokens.passages"]
        chunks = self.chunks_per_passage(tokens, settings.max_passage_tokens, settings.chunks)
        return chunks, self.tokens_per_text(tokens, "passages", settings.chunks * settings.max_passage_tokens) / chunks

    def text_tokens(self, tokens, limit):
        """Mean tokens per passage without cut and special tokens; a lower bound before the `tokens` stage is made."""
        if (artefact := artefact_of(tokens)) is not None:
            return artefact.facts.get("mean", 0.0)
        return (getattr(self.expected, "passage_tokens", None) or limit) - SPECIAL_TOKENS

    def limit(self, of):
        """The most tokens that are read of a "passage" or "query"."""
        encoder = self.plan.encoder
        return getattr(encoder, f"max_{of}_tokens") if encoder else NO_ENCODER_TOKENS

    @functools.cached_property
    def corpus_tokens(self):
        """Tokens of all passages, without special tokens and not cut."""
        limit = self.limit("passage")
        tokens = token_maps(self.plan)
        return self.passages * (self.text_tokens(tokens[0], limit) if tokens else limit)

    def encoder(self, stage):
        """(Shape, dimension of its vectors, number of encoders) of the encoder that a stage makes or uses."""
        two, kept = False, getattr(stage.settings, "truncate_dim", None)
        while stage.kind != "pretrained":  # training one side alone makes two encoders of one
            two |= stage.kind == "train" and len(stage.settings.training.trains) == 1
            stage = stage.inputs["checkpoint"]
        shape, _ = encoder_shape(stage)
        dim = kept or stage.settings.projection or own_width(stage) or shape.hidden_size
        return shape, dim, 2 if two or not stage.settings.tied else 1

    def vectors(self, encode):
        """(number, dimension, bytes on the disk) of the passage vectors that a stage `encode` makes."""
        number, (_, dim, _) = self.passages * self.chunks(encode)[0], self.encoder(encode)
        return number, dim, vector_bytes(number, dim, 2 if encode.settings.vectors == "fp16" else 4)

    def run(self, stage):
        """(lines, passages a line) that a stage retrieves: `retrieve`, `bm25`, `negatives_file` or one like it."""
        if stage.kind not in ("retrieve", "bm25"):
            return self.queries["train"], FILE_NEGATIVES
        settings = stage.settings
        if stage.kind == "bm25":
            return self.queries[settings.split], settings.depth
        of_positives = settings.of == "positives"
        texts = self.positives if of_positives and settings.anchor == "all" else self.queries
        chunks = self.chunks(stage.inputs["passages"])[0] if of_positives else 1
        return chunks * self.in_part(texts[settings.split], settings.part), settings.depth


@functools.cache
def mean_length(folder, name, most, chunk=1):
    """Mean length of the texts in a token map, special tokens included, in chunks of `chunk` tokens, at most `most`
    chunks per text; 0 for no texts."""
    import numpy as np

    lengths = np.diff(np.load(Artefact(folder).path(f"{name}.offsets.npy"), mmap_mode="r"))
    return float(np.minimum(-(-(lengths + SPECIAL_TOKENS) // chunk), most).mean()) if len(lengths) else 0.0


@functools.cache
def encoder_shape(pretrained):
    """(Shape, where it is from) of a planned `pretrained` stage: its config.json if that is local, else BERT-base."""
    for folder in config_folders(pretrained):
        path = folder / "config.json"
        config = with_common_names(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
        if "hidden_size" in config:  # sentence-transformers' modules have files of that name too
            layers = getattr(pretrained.settings, "layers", None)  # a cross-encoder has all of them
            config |= {} if layers is None else {"num_hidden_layers": layers}
            return Shape.of_config(config), f"{folder.name}/config.json"
    return Shape(), "BERT-base, because the checkpoint is not local"


@functools.cache
def own_width(pretrained):
    """The width after the linear layers in a checkpoint's own files; None without them, or if no file is local."""
    if pretrained.settings.layers is not None:  # then they are left out
        return None
    return next(filter(None, map(dense_width, config_folders(pretrained))), None)


def config_folders(pretrained):
    """Return the folders where the config.json of a checkpoint may be, without loading or downloading it."""
    if (artefact := artefact_of(pretrained)) is not None:
        checkpoint = artefact.folder / "checkpoint"
        yield from (checkpoint, checkpoint / "passage")
    source = pretrained.settings.checkpoint
    if not source.hub:
        with suppress(Refusal):  # the checkpoint is missing
            yield locate(source, OWN_FILES)
    elif config := in_hub_cache(source, "config.json"):
        yield config.parent
