"""Make the folder of an experiment: links to its stages, and the index plan.tsv.

    python workflow_scripts/link_experiment.py --spec '{"folder": "results/experiments/NAME", "rows": […]}'

The rows are described in teleport/report/experiments.py.
"""

import argparse
import json
import sys

from teleport.report.experiments import link_experiment


def main():
    parser = argparse.ArgumentParser(description="Make the folder of an experiment.")
    parser.add_argument("--spec", required=True, help="the experiment as JSON: folder, rows")
    spec = json.loads(parser.parse_args().spec)
    try:
        link_experiment(spec["rows"], spec["folder"])
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
