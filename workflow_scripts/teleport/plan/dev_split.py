"""Which split a dev set may have, in trainings of dual encoders and of cross-encoders."""

from teleport.plan.about_key import AboutKey


def require_dev(config, dev, training, where, key, experiment=None):
    """Raise Refusal if the collection has no such split, or if a split that chooses the checkpoint is also reported.

    dev: the `Dev` settings under `key`; training: the settings beside it; where: the beginning of the sentence;
    experiment: as `AboutKey` takes it
    """
    names = config.collection.split_names()
    reported = [] if config.evaluation.report_dev else config.evaluation.splits
    if dev.split not in names:
        have = f"the collection has no split {dev.split!r}; it has {', '.join(names)}"
        sentence = f"{have}. Name one of them, add it to the collection, or set evaluate_every to null."
    elif (training.select == "dev" or training.patience) and dev.split in reported:
        sentence = (
            f"evaluation.splits reports {dev.split}, which also chooses the checkpoint (select: dev or patience). Name "
            "another split, or, if you only choose settings, set evaluation.report_dev: true."
        )
    else:
        return
    raise AboutKey(f"{where}: {key}.split: {sentence}", f"{key}.split", experiment)
