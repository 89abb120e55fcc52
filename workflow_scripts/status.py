"""Show what runs where: the stages of a configuration that run or were killed, and how many are finished.

    python workflow_scripts/status.py                              the embedded default
    python workflow_scripts/status.py config/config.yaml config/ablations/negatives.yaml

The files of a configuration are merged as `--configfile` merges them.
"""

import argparse
import sys

from teleport.plan.plan import Plan
from teleport.report.status import finished, render, unfinished
from teleport.settings.read import load_files


def main():
    parser = argparse.ArgumentParser(description="Show what runs where, and how much of the plan is finished.")
    parser.add_argument("files", nargs="*", default=["config/config.yaml"], help="the files of one configuration")
    arguments = parser.parse_args()
    try:
        plan = Plan(*load_files(arguments.files))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    labels = {name: plan.label(name) for name in plan.stages}
    stages = unfinished(lambda name: labels.get(name, "not of this configuration"))
    print(render(stages, finished(plan.stages)))


if __name__ == "__main__":
    main()
