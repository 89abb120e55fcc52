"""Whether a loss can compare the model's vectors with a teacher's, as far as the files of both checkpoints are here."""

from teleport.encoder.own_settings import dense_width, read_form, read_sizes
from teleport.encoder.source import OWN_FILES, locate
from teleport.refusal import Refusal


def require_comparable(place, whose, model, other):
    """Raise Refusal if the vectors of two settings.Encoder, `model` (trained) and `other` (of the teacher `whose`),
    differ in chunks, or in widths that are both known. place: the episode, for the message"""
    lengths = [(encoder.chunks, encoder.max_passage_tokens) for encoder in (model, other)]
    if lengths[0] != lengths[1] and max(chunks for chunks, _ in lengths) > 1:
        of_model, of_other = (f"{chunks} x {tokens}" for chunks, tokens in lengths)
        raise Refusal(
            f"{place}: training.loss compares the vectors of chunks, and chunks x max_passage_tokens is {of_model} for "
            f"the model and {of_other} for {whose}. Set them alike in both encoders, or take another loss."
        )
    widths = [width_of(encoder) for encoder in (model, other)]
    if None not in widths and widths[0] != widths[1]:
        raise Refusal(
            f"{place}: training.loss compares the vectors of {whose}, which are {widths[1]} wide, with those of the "
            f"model, {widths[0]} wide. Set encoder.projection to {widths[1]}, or take another teacher."
        )


def width_of(encoder):
    """The width of a settings.Encoder's vectors; None if its files do not say it, or are on the hub."""
    if encoder.truncate_dim or encoder.projection or encoder.checkpoint.hub:
        return encoder.truncate_dim or encoder.projection
    folder = locate(encoder.checkpoint, OWN_FILES)
    if encoder.layers is None and (width := dense_width(folder)):
        return width
    config = folder / "config.json"
    return read_sizes(read_form(dict, config), config).hidden_size
