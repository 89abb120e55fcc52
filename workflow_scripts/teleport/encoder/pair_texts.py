"""Builds a cross-encoder's input for pairs of a query and a passage from token ids: no step calls a tokenizer."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from teleport.arrays import Ragged, in_slots, slots_within
from teleport.encoder.batches import in_order, length_buckets
from teleport.encoder.precision import to_device
from teleport.refusal import Refusal


class PairForm(NamedTuple):
    """The tokens that a tokenizer puts around two texts. before, between, after: special tokens (ids); types: the token
    types of before, query, between, passage and after, a list each, and one type per text, which repeats; None for a
    model without token types; pad: the id of padding"""

    before: list
    between: list
    after: list
    types: list | None
    pad: int

    @property
    def added(self):
        return len(self.before) + len(self.between) + len(self.after)


def pair_form(tokenizer):
    """The `PairForm` of a transformers tokenizer (a fast one), read off a pair that it encodes."""
    encoded = tokenizer.backend_tokenizer.encode("a", "a")
    sides, ids = encoded.sequence_ids, encoded.ids
    if 0 not in sides or 1 not in sides:
        raise Refusal(f"the tokenizer {tokenizer.name_or_path} drops both texts of a pair. Give another start.")
    ends = [sides.index(0), len(sides) - sides[::-1].index(0), sides.index(1), len(sides) - sides[::-1].index(1)]
    parts = [slice(start, stop) for start, stop in zip([0, *ends], [*ends, len(ids)], strict=True)]
    before, _, between, _, after = (ids[part] for part in parts)
    types = [encoded.type_ids[part] for part in parts] if "token_type_ids" in tokenizer.model_input_names else None
    return PairForm(before, between, after, types, tokenizer.pad_token_id)


def cut_pairs(queries_M, passages_M, room):
    """Cut M pairs of lengths so that each pair has at most `room` tokens: (int64 [M], int64 [M]). Tokens are removed
    from the longer text, as in transformers' `longest_first`. If both are cut to half, the longer text keeps the odd
    token, or the passage if they are equal."""
    shorter_M, longer_M = np.minimum(queries_M, passages_M), np.maximum(queries_M, passages_M)
    first_M = np.minimum(shorter_M, room // 2)
    second_M = np.minimum(longer_M, room - first_M)
    swapped = queries_M > passages_M
    return np.where(swapped, second_M, first_M), np.where(swapped, first_M, second_M)


@dataclass(frozen=True, eq=False)
class PairTexts:
    """Token ids of queries and passages, and how a pair of them is joined and cut to `max_tokens`."""

    queries: Ragged
    passages: Ragged
    form: PairForm
    max_tokens: int

    def cut(self, rows, passages):
        """Tokens of the query and of the passage of each pair, int64 [M] each."""
        room = self.max_tokens - self.form.added
        return cut_pairs(self.queries.lengths[rows], self.passages.lengths[passages], room)

    def lengths(self, rows, passages):
        """Tokens of each pair, special ones included, int64 [M]."""
        return np.add(*self.cut(rows, passages)) + self.form.added

    def batch(self, rows, passages, device):
        """The padded input of a model {name: int64 [M, longest]} on a device."""
        form, made, types = self.form, [], []
        for row, passage, *lengths in zip(rows, passages, *self.cut(rows, passages), strict=True):
            texts = self.queries[row][: lengths[0]], self.passages[passage][: lengths[1]]
            parts = form.before, texts[0], form.between, texts[1], form.after
            made.append(np.concatenate([np.asarray(part, np.int64) for part in parts]))
            if form.types:
                types.append(
                    np.concatenate([np.resize(t, len(part)) for t, part in zip(form.types, parts, strict=True)])
                )
        lengths_M, inputs = np.array([len(ids) for ids in made]), {"input_ids": (made, form.pad)}
        inputs |= {"token_type_ids": (types, 0)} if types else {}
        arrays = {name: in_slots(lengths_M, np.concatenate(lists), fill) for name, (lists, fill) in inputs.items()}
        arrays["attention_mask"] = slots_within(lengths_M).astype(np.int64)
        return {name: to_device(torch.from_numpy(array), device) for name, array in arrays.items()}

    def scores(self, model, rows, passages, token_budget):
        """Float32 [M] on the model's device: the one number of a sequence classification for each pair, computed in
        buckets of pairs of similar length."""
        buckets = length_buckets(self.lengths(rows, passages), token_budget, padded=True)
        inputs = (self.batch(rows[bucket], passages[bucket], model.device) for bucket in buckets)
        return in_order([model(**each).logits.squeeze(1).float() for each in inputs], buckets)
