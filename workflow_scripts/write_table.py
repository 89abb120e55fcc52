"""Write one table as CSV, Markdown and LaTeX, with the sources of its figures.

    python workflow_scripts/write_table.py --spec '{"name": "main", …}' --output results/tables

The specification is described in teleport/report/table.py.
"""

import argparse
import json
import sys
from pathlib import Path

from teleport.report.table import write_table


def main():
    parser = argparse.ArgumentParser(description="Write one table as CSV, Markdown and LaTeX.")
    parser.add_argument("--spec", required=True, help="the table as JSON: name, measures, splits, rows, ...")
    parser.add_argument("--output", required=True, type=Path, help="the folder to write to")
    arguments = parser.parse_args()
    try:
        write_table(json.loads(arguments.spec), Path("."), arguments.output)
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
