"""The log of a stage, and the progress of long work in it."""

import logging
import sys
import time

from teleport.runtime.files import write_json

PROGRESS_SECONDS = 10.0

log = logging.getLogger("teleport")


class Progress:
    """Plain log lines with step, rate and ETA, at most one every ten seconds, and a small JSON file for `status`."""

    def __init__(self, path):
        self.path, self.started, self.last = path, None, None

    def __call__(self, done, total, unit):
        """Report `done` of `total` units, for example `progress(128, 5000, "passages")`."""
        now = time.monotonic()
        if self.started is None:
            self.started, self.first = now, done
        if self.last is not None and now - self.last < PROGRESS_SECONDS and done < total:
            return
        self.last = now
        rate = (done - self.first) / max(now - self.started, 1e-9)
        eta = f"{(total - done) / rate:.0f} s left" if rate > 0 else "rate not known yet"
        log.info("%d/%d %s, %.1f %s/s, %s", done, total, unit, rate, unit, eta)
        write_json(self.path, {"done": done, "total": total, "unit": unit, "rate": rate, "time": time.time()})


def configure_logging():
    """Log lines with time on stderr; Snakemake redirects them into the stage's log file."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
