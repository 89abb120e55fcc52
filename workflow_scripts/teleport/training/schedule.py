"""Length of a training schedule, and of the segment of it that one stage trains."""

from teleport.refusal import Refusal
from teleport.running.log import log
from teleport.settings.training import Training, never_at_its_rate

EPOCHS = 2  # of a cross-encoder, as in RocketQA's released code, if the settings give no length


def training_of(schedule):
    """The `Training` for the loop, from a settings.RankerSchedule."""
    given = schedule.model_dump() | {"loss": {"kind": schedule.loss}}
    return Training(**given | ({} if schedule.steps or schedule.epochs else {"epochs": EPOCHS}))


def schedule_steps(training, data):
    """Steps of the full schedule: `training.steps`, or `training.epochs` passes over the queries of a `TrainingSet`."""
    if data.steps_per_epoch == 0:
        triples = f" with {training.negatives_per_query} triples each" if training.triples else ""
        raise Refusal(
            f"training.batch_queries is {training.batch_queries}, but only {len(data.rows)} training queries{triples} "
            f"can be trained on ({data.without_negatives} are without negatives, {data.without_positives} without a "
            "positive): lower training.batch_queries, or give more queries judgments or negatives."
        )
    total = training.steps or training.epochs * data.steps_per_epoch
    if training.warmup_steps and not training.cycle_steps and training.warmup_steps >= total:
        raise Refusal(
            f"training.warmup_steps is {training.warmup_steps}, but {training.epochs} epochs have only {total} steps: "
            "lower it, or set training.warmup_ratio instead."
        )
    if training.epochs and (never := never_at_its_rate(training, total)):  # the plan says it of `steps`
        log.warning("%s", never)
    return total


def end_of_segment(training, total, first):
    """The step before which a stage stops, if it begins at step `first` of a schedule of `total` steps;
    `training.stop_after_steps` counts this stage alone."""
    wanted = training.stop_after_steps or 0
    if wanted > total - first:
        log.warning("training.stop_after_steps is %d, but the schedule ends after %d", wanted, total - first)
    return min(total, first + (wanted or total))
