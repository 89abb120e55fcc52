"""Make the folder of an experiment: links to its stages, and the index plan.tsv.

    echo '{"folder": "results/experiments/NAME", "rows": […]}' | python workflow_scripts/link_experiment.py

The rows are described in teleport/report/experiments.py.
"""

import argparse
import json
import sys

from teleport.report.experiments import link_experiment


def main():
    argparse.ArgumentParser(
        description="Make the folder of an experiment, from JSON on standard input: folder, rows."
    ).parse_args()
    spec = json.load(sys.stdin)
    try:
        link_experiment(spec["rows"], spec["folder"])
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
