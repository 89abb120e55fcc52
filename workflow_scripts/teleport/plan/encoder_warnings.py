"""Warnings about the encoders of a plan, before anything runs."""

from teleport.encoder.completed import LENGTHS


def longer_texts(plan):
    """A warning (list of str) for each length that exceeds the one in the checkpoint's files."""
    return [
        f"encoder.{name} is {getattr(plan.experiments[of].encoder, name)}, but {own.file} says that a text has at most "
        f"{own.value} tokens: the checkpoint may not be trained on longer ones."
        for of, replaced in plan.replaced.items()
        for name, own in replaced.items()
        if name in LENGTHS
    ]
