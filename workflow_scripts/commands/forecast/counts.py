"""How much there is: passages, queries, tokens and the encoder's shape, measured where built, else as configured."""

import functools
import importlib.util
import json
from dataclasses import fields
from pathlib import Path

from commands.forecast.flops import Shape
from teleport.encoder.architectures import with_berts_names
from teleport.runtime.artefact import MANIFEST, STAGES, Artefact

SPECIAL_TOKENS = 2  # CLS and SEP


def finished(stage):
    """The Artefact of a planned stage, or None when it is not made yet. Raises ValueError for a torn manifest."""
    return Artefact(STAGES / stage.name) if (STAGES / stage.name / MANIFEST).is_file() else None


class Counts:
    """Sizes of a plan's collection.

    passages: int; queries and positives: {split: int}; source: where they are from, for the reader; download_bytes: of
    all files, or None where nobody says.
    Raises ValueError when the collection is neither built nor counted in the configuration.
    """

    def __init__(self, plan):
        self.expected, built = plan.config.counts, finished(plan.collection)
        self.download_bytes = self.expected and self.expected.download_bytes
        if built is not None:
            splits = built.facts["splits"]
            self.passages, self.source = built.facts["num_passages"], f"the built {plan.collection.name}"
            self.queries = {split: counts["queries"] for split, counts in splits.items()}
            self.positives = {split: counts["positives"] for split, counts in splits.items()}
        elif self.expected is not None:
            self.passages, self.queries = self.expected.passages, dict(self.expected.queries)
            self.positives, self.source = self.queries | self.expected.positives, "`counts` of the configuration"
        else:
            raise ValueError(
                f"the size of the collection is unknown: {plan.collection.name} is not built and the configuration has "
                "no `counts`. Add `counts: {passages: …, queries: {train: …, test: …}}`, or build it first with "
                "`snakemake --cores all --until tokens`."
            )

    def tokens_per_text(self, tokens, name, limit):
        """Mean tokens per text as the encoder sees it, special tokens included, cut at `limit`.

        tokens: the planned `tokens` stage; name: `passages` or `queries.SPLIT`. Measured when that stage is made, else
        from `counts`, else `limit`, which is the most that it can be.
        """
        if (artefact := finished(tokens)) is not None:
            measured = mean_tokens(artefact.folder.resolve(), name, limit)
            if measured:
                return measured
        kind = "passage_tokens" if name == "passages" else "query_tokens"
        return min(limit, getattr(self.expected, kind, None) or limit)

    def chunks_per_passage(self, tokens, limit, most):
        """Mean chunks of `limit` tokens per passage (encoder.chunks), `most` at most; half of the last one is empty
        where it is not measured."""
        if most == 1:
            return 1.0
        if (artefact := finished(tokens)) is not None:
            return mean_chunks(artefact.folder.resolve(), limit, most)
        return min(most, self.tokens_per_text(tokens, "passages", most * limit) / limit + 0.5)

    def text_tokens(self, tokens, limit):
        """Mean tokens per passage without cut and special tokens; a lower bound before the `tokens` stage is made."""
        if (artefact := finished(tokens)) is not None:
            return artefact.facts["passages"].get("mean", 0.0)
        return (getattr(self.expected, "passage_tokens", None) or limit) - SPECIAL_TOKENS


@functools.cache
def mean_tokens(folder, name, limit):
    """Mean of the lengths in a token map, special tokens included, each cut at `limit`; 0 for no texts."""
    import numpy as np

    lengths = np.diff(np.load(Artefact(folder).path(f"{name}.offsets.npy"), mmap_mode="r"))
    return float(np.minimum(lengths + SPECIAL_TOKENS, limit).mean()) if len(lengths) else 0.0


@functools.cache
def mean_chunks(folder, limit, most):
    """Mean number of chunks of `limit` tokens per passage in a token map, `most` at most; 1 for no passages."""
    import numpy as np

    lengths = np.diff(np.load(Artefact(folder).path("passages.offsets.npy"), mmap_mode="r"))
    return float(np.minimum(-(-(lengths + SPECIAL_TOKENS) // limit), most).mean()) if len(lengths) else 1.0


def encoder_shape(pretrained):
    """(Shape, where it is from) of a planned `pretrained` stage: its config.json if that is local, else BERT-base."""
    for folder in config_folders(pretrained):
        path = folder / "config.json"
        config = with_berts_names(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
        if "hidden_size" in config:  # sentence-transformers' modules have files of that name too
            sizes = {f.name: config[f.name] for f in fields(Shape) if f.name in config}
            return Shape(**sizes), f"{folder.name}/config.json"
    return Shape(), "BERT-base, because the checkpoint is not local"


def config_folders(pretrained):
    """Where the config.json of a checkpoint may lie, without loading or downloading it."""
    if (artefact := finished(pretrained)) is not None:
        checkpoint = artefact.folder / "checkpoint"
        yield from (checkpoint, checkpoint / "passage")
    source = pretrained.settings.checkpoint
    if source.folder:
        yield Path(source.folder)
    if source.package:
        spec = importlib.util.find_spec(source.package)
        for root in spec.submodule_search_locations or [] if spec else []:
            yield from (path.parent for path in sorted(Path(root).rglob("config.json")))
    if source.hub:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(source.hub, "config.json", revision=source.revision)
        if isinstance(cached, str):
            yield Path(cached).parent
