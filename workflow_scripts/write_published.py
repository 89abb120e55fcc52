"""Write published tables with our figures beside them, from the stages that are finished.

    echo '{"name": "ance-tele-table-3", …}' | python workflow_scripts/write_published.py --output results/published

Standard input has one table per line, and may have none; a table is described in teleport/report/published_table.py.
"""

import argparse
import json
import sys
from pathlib import Path

from teleport.report.published_table import write_published


def main():
    parser = argparse.ArgumentParser(description="Write published tables, one per line of JSON on standard input.")
    parser.add_argument("--output", required=True, type=Path, help="the folder to write to")
    arguments = parser.parse_args()
    try:
        for spec in filter(str.strip, sys.stdin):
            write_published(json.loads(spec), Path("."), arguments.output)
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
