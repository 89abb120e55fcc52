"""Write published tables with our figures beside them, from the stages that are finished.

    python workflow_scripts/write_published.py --spec '{"name": "ance-tele-table-3", …}' --output results/published

`--spec` takes several tables at once. The specification is described in teleport/report/published_table.py.
"""

import argparse
import json
import sys
from pathlib import Path

from teleport.report.published_table import write_published


def main():
    parser = argparse.ArgumentParser(description="Write published tables with our figures beside them.")
    parser.add_argument("--spec", nargs="*", default=[], help="one table as JSON: name, file, lines, ...")
    parser.add_argument("--output", required=True, type=Path, help="the folder to write to")
    arguments = parser.parse_args()
    try:
        for spec in arguments.spec:
            write_published(json.loads(spec), Path("."), arguments.output)
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
