"""The log of a stage, and the progress of long work in it."""

import logging
import sys
import time
from functools import cache

from teleport.running.files import read_saved, write_json

PROGRESS_SECONDS = 10.0
REPORT_SECONDS = 2.0

log = logging.getLogger("teleport")
warnings = []  # of this process, for the manifest: nobody opens the log of a stage that succeeded


@cache
def warn_once(text):
    """Log a warning, though what it is about may be met again: the rows of a file may be read more than once."""
    log.warning("%s", text)


class Kept(logging.Handler):
    """Keeps each warning once, in `warnings`, and in the file `path` as long as its folder exists: a finished stage has
    removed it."""

    path = None

    def emit(self, record):
        if (text := record.getMessage()) not in warnings:
            warnings.append(text)
            if self.path and self.path.parent.is_dir():
                write_json(self.path, {"warnings": warnings})


kept = Kept(logging.WARNING)


def keep_warnings(path):
    """Keep warnings in a file too, after those of an earlier attempt there: this one may not repeat its work."""
    warnings[:] = dict.fromkeys([*read_saved(path).get("warnings", ()), *warnings])
    kept.path = path


class Progress:
    """Log lines with step, rate and ETA, at most one every ten seconds, and a small JSON file for `status` and the
    terminal, at most two seconds old. path: of that file, or None"""

    def __init__(self, path):
        self.path, self.started, self.logged, self.written = path, None, None, None

    def __call__(self, done, total, unit):
        """Report `done` of `total` units, for example `progress(128, 5000, "passages")`; total 0: unknown."""
        now = time.monotonic()
        if self.started is None:
            self.started, self.first = now, done
        rate = (done - self.first) / max(now - self.started, 1e-9)
        if self.logged is None or now - self.logged >= PROGRESS_SECONDS or done >= total > 0:
            self.logged = now
            eta = f", {(total - done) / rate:.0f} s left" if rate > 0 else ", rate not known yet"
            log.info("%d%s %s, %.1f %s/s%s", done, f"/{total}" if total else "", unit, rate, unit, eta if total else "")
        elif now - self.written < REPORT_SECONDS:
            return
        self.written = now
        if self.path is not None:
            report = {"done": done, "total": total, "unit": unit, "rate": rate if total else 0.0, "time": time.time()}
            write_json(self.path, report)


def configure_logging():
    """Log lines with time on stderr; Snakemake redirects them into the stage's log file."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    log.addHandler(kept)
    logging.getLogger("faiss").setLevel(logging.WARNING)  # else it logs eight lines about loading its libraries
