"""Chooses the weights that become a training's checkpoint: those of the last or the best step, averaged or not."""

import time

from teleport.running.log import log
from teleport.training.resume import copied, set_weights

WORTH_A_WARNING = 0.1  # of the seconds of the training


def best_of(curve):
    """[step, score] with the highest score of a dev curve; the earliest of equal ones."""
    return max(curve, key=lambda point: point[1])


def is_exhausted(curve, patience):
    """Whether the last `patience` points of a dev curve have brought no gain; never if `patience` is None."""
    return bool(curve) and patience is not None and len(curve) - 1 - curve.index(best_of(curve)) >= patience


def averaged(trained, start, share):
    """{name: trained + share (start - trained)}: WiSE-FT (Wortsman et al., CVPR 2022, Eq. 1, whose alpha is 1 - share);
    LM-Cocktail (Xiao et al., 2023, two models)."""
    return {name: weight + share * (start[name] - weight) for name, weight in trained.items()}


class Selection:
    """Chooses the weights that become the checkpoint of a `Trainer`, which now has its starting weights. If there is a
    dev set (`dev.DevSet`, or None), its queries are ranked with the weights that would be published."""

    def __init__(self, trainer, dev=None):
        self.encoders, self.training, self.dev = trainer.encoders, trainer.training, dev
        self.start = copied(self.encoders) if self.training.average_with_start else {}

    def is_due(self, step, stop):
        """Whether dev queries are ranked after step number `step` (int) of a stage of `stop` steps."""
        return self.dev is not None and (step == stop or step % self.training.evaluate_every == 0)

    def evaluate(self, state):
        """Rank the dev queries, and note the score and the seconds that it took in the `resume.TrainingState`."""
        started, name = time.monotonic(), self.dev.settings.name
        trained = self.average()
        self.encoders.eval()
        state.dev.append([state.step, self.dev.score()])
        self.encoders.train()
        step, score = best_of(state.dev)
        if self.training.select == "dev" and step == state.step:
            state.best = copied(self.encoders)
        if trained:
            set_weights(self.encoders, trained)
        log.info("step %d: %s %.4f, the best %.4f at step %d", state.step, name, state.dev[-1][1], score, step)
        state.dev_seconds += time.monotonic() - started

    def average(self):
        """Average the weights with the starting weights, if the settings say so; returns the weights from before, or
        {}."""
        trained = copied(self.encoders) if self.start else {}
        if trained:
            set_weights(self.encoders, averaged(trained, self.start, self.training.average_with_start))
        return trained

    def publish(self, state):
        """Give the encoders the weights that become the checkpoint."""
        if self.training.select == "dev":
            set_weights(self.encoders, state.best)
        else:
            self.average()

    def facts(self, state):
        """Return the facts for the manifest, none without a dev set. share: of the seconds of the steps alone"""
        if self.dev is None:
            return {}
        step, score = best_of(state.dev) if self.training.select == "dev" else state.dev[-1]
        share = state.dev_seconds / state.seconds
        dev = {"split": self.dev.settings.split, "measure": self.dev.settings.measure}
        dev |= {"queries": len(self.dev.rows_Q), "passages": len(self.dev.passages_P), "evaluations": len(state.dev)}
        dev |= {"start_score": state.dev[0][1], "score": score, "seconds": state.dev_seconds, "share": share}
        return {"selected_step": step, "dev": dev}

    def log_cost(self, state):
        """Log what the dev set, if there is one, has cost, and how to pay less if that is much."""
        if self.dev is None:
            return
        made, seconds, share = len(state.dev), state.dev_seconds, state.dev_seconds / state.seconds
        log.info("%d evaluations of the dev set took %.1f s, %.1f %% of the steps", made, seconds, 100 * share)
        if share > WORTH_A_WARNING:
            log.warning(
                "the dev set took %.0f %% of the training's time: raise training.evaluate_every, or lower the sizes in "
                "dev",
                100 * share,
            )
