"""Write the negatives of a merge stage as Tevatron training data.

python workflow_scripts/export_negatives.py results/experiments/NAME/episode-1/merge negatives.jsonl
"""

import argparse
import sys
from pathlib import Path

from teleport.negatives.export import export_tevatron
from teleport.runtime.artefact import Artefact


def main():
    parser = argparse.ArgumentParser(description="Write the negatives of a merge stage as Tevatron training data.")
    parser.add_argument("stage_folder", type=Path, help="a finished merge stage, or the link to it")
    parser.add_argument("output", type=Path, help="the JSON lines file to write")
    arguments = parser.parse_args()
    try:
        negatives = Artefact(arguments.stage_folder.resolve())
        if negatives.manifest["kind"] != "merge":
            raise ValueError(f"{arguments.stage_folder} is a {negatives.manifest['kind']} stage: give a merge stage.")
        collection = Artefact(negatives.folder.parents[1] / negatives.manifest["inputs"]["collection"])
        print(f"{export_tevatron(negatives, collection, arguments.output)} queries in {arguments.output}")
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
