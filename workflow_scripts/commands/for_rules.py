"""The commands that the rules call, most of them with JSON on standard input."""

import json
import os
import sys
from pathlib import Path


def table(arguments):
    """For the rules: write one table, described in teleport/report/table.py."""
    from teleport.report.table import write_table

    write_table(json.load(sys.stdin), Path("."), arguments.output)


def analyses(arguments):
    """For the rules: write one table, described in teleport/report/analyses.py."""
    from teleport.report.analyses import write_analyses

    write_analyses(json.load(sys.stdin), Path("."), arguments.output)


def published(arguments):
    """For the rules: write published tables, a line of JSON each, described in teleport/report/published_table.py."""
    from teleport.report.published_table import write_published

    for spec in filter(str.strip, sys.stdin):
        write_published(json.loads(spec), Path("."), arguments.output)


def page(arguments, spec=None):
    """For the rules: write the report page, described in teleport/report/page_specs.py."""
    os.environ["OMP_NUM_THREADS"] = "1"  # many small products: threads would wait for each other
    from teleport.report.page.write import write_page

    share = getattr(arguments, "share", None)
    size = write_page(spec or json.load(sys.stdin), Path("."), arguments.output, share)
    print(f"{share or f'{arguments.output}/index.html'}: {size / 1e6:.1f} MB")


def link(arguments):
    """For the rules: make the folder of an experiment, from rows as in teleport/report/experiments.py."""
    from teleport.report.experiments import link_experiment

    link_experiment(json.load(sys.stdin)["rows"], arguments.output)


def delete_vectors(arguments):
    """For the rules: delete the vectors of a finished encode stage (keep_vectors)."""
    from teleport.running.artefact import Artefact

    Artefact(arguments.output).delete_files()


COMMANDS = (table, analyses, published, page, link, delete_vectors)
