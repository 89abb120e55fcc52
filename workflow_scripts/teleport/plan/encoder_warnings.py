"""Warnings about the encoders and losses of a plan, before anything runs."""

import math
from itertools import chain

from teleport.encoder.completed import LENGTHS
from teleport.settings.registry import LOSSES


def longer_texts(plan):
    """A warning (list of str) for each length that exceeds the one in the checkpoint's files."""
    return [
        f"encoder.{name} is {getattr(plan.experiments[of].encoder, name)}, but {own.file} says that a text has at most "
        f"{own.value} tokens: the checkpoint may not be trained on longer ones."
        for of, replaced in plan.replaced.items()
        for name, own in replaced.items()
        if name in LENGTHS
    ]


def small_scores(plan):
    """A warning (list of str), naming the experiments, for each loss that takes a softmax of cosines without a factor:
    it hardly tells them apart."""
    experiments = {}
    for trajectory in chain(*plan.trajectories.values()):
        for train in trajectory.trains:
            for loss in train.settings.training.losses:
                for whose, key in cosines_without_factor(train, loss):
                    sentence = (
                        f"training.loss {loss.kind} takes a softmax of the {whose}'s scores of vectors of length 1, "
                        f"which lie between -1 and 1: set {key}, such as 20."
                    )
                    experiments.setdefault(sentence, {})[trajectory.name] = True
    return [f"experiments {', '.join(names)}: {sentence}" for sentence, names in experiments.items()]


def cosines_without_factor(train, loss):
    """[("model" or "teacher", key of the factor)] of the scores whose softmax a loss of a train stage takes, if they
    are cosines and the factor is at most 1."""
    own, without = loss.own, []
    if not LOSSES[loss.kind].softmax:
        return []
    temperature = own.get("temperature", 1.0)
    if train.settings.normalize and train.settings.scale <= temperature:
        without.append(("model", "encoder.scale"))
    judge = train.inputs.get(f"scores.{own.get('scores')}")
    scored = judge and judge.kind == "score" and judge.inputs["queries"].inputs["checkpoint"].settings.normalize
    if scored and own.get("teacher_scale", math.inf) <= temperature:
        without.append(("teacher", "training.loss.teacher_scale"))
    return without
