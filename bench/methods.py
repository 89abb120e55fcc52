"""All published methods, every file of config/methods, on a slice of the demo: from an empty folder to one table.

    python bench/methods.py [--cores 2]

The slice has the docstrings of one package, and trainings of few steps: it shows that each method runs to its end, and
what its mining and teaching cost beside its training. Its figures of quality mean nothing. Methods share stages, as in
the results folder of somebody who runs one after another. The stages run without Snakemake (here.py), which then makes
their table, results/tables/methods/main.md, and the page results/report/methods/index.html, whose table "What it cost"
has the seconds of mining, teaching and training of each method.
"""

import argparse
import os
import subprocess
import sys
import time

from arms import part
from here import make_together
from rounds import REPOSITORY
from teleport.plan.plan import Plan

CROSS = {"steps": 4, "batch_queries": 4, "evaluate_every": 4, "dev": {"depth": 10}}
SLICE = {
    "collection": {"packages": ["networkx"], "min_words": 30},
    "counts": None,
    "encoder": {"max_passage_tokens": 32},
    "training": {"steps": 4, "batch_queries": 4},
    "experiments": {
        "rocketqa": {
            "teachers": {"ranker": {"cross_encoder": {"max_tokens": 64, "training": CROSS}}},
            "episodes": [
                {"negatives": {"counts": {"random": 4}}},
                {  # RocketQA keeps scores below .1; after four steps there are none
                    "mining": {"depth": 50},
                    "negatives": {
                        "counts": {"query": 4},
                        "draw": "top",
                        "filters": {"max_score": 0.9, "scores": "ranker"},
                    },
                },
            ],
        }
    },
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    arguments, started = parser.parse_args(), time.monotonic()
    files = [REPOSITORY / "config/config.yaml", *sorted((REPOSITORY / "config/methods").glob("*.yaml"))]
    (written,) = part("methods", [str(file) for file in files], SLICE)
    plan = Plan.of_files([written])
    make_together(plan.stages.values(), arguments.cores)
    print(f"{len(plan.stages)} stages of {len(plan.experiments)} rows: {time.monotonic() - started:.0f} s", flush=True)
    command = [sys.executable, "-P", "-m", "snakemake", "-s", str(REPOSITORY / "Snakefile"), "--configfile", written]
    sys.exit(subprocess.run([*command, "--cores", str(arguments.cores)]).returncode)


if __name__ == "__main__":
    main()
