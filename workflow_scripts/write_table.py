"""Write one table as CSV, Markdown and LaTeX, with the sources of its figures.

    echo '{"name": "main", …}' | python workflow_scripts/write_table.py --output results/tables

The specification is described in teleport/report/table.py.
"""

import argparse
import json
import sys
from pathlib import Path

from teleport.report.table import write_table


def main():
    parser = argparse.ArgumentParser(description="Write one table, from JSON on standard input: name, rows, ...")
    parser.add_argument("--output", required=True, type=Path, help="the folder to write to")
    arguments = parser.parse_args()
    try:
        write_table(json.load(sys.stdin), Path("."), arguments.output)
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
