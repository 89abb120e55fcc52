"""The commands about results: what runs and what it will cost, what is sound, what may go, and what others can read.

    python workflow_scripts/manage.py status [FILE ...]        what runs where, and how much is finished
    python workflow_scripts/manage.py forecast FILE ...        what a configuration will cost, before anything starts
    python workflow_scripts/manage.py verify                   check every artefact and the links to them
    python workflow_scripts/manage.py new NAME FROM            config/NAME.yaml for a collection of your own
    python workflow_scripts/manage.py prune FILE ...           list the stages that nothing uses; --delete removes them
    python workflow_scripts/manage.py export STAGE OUTPUT      negatives, a run or a checkpoint for others
    python workflow_scripts/manage.py push FOLDER OWNER/NAME   what the hub would get; --send uploads it
    python workflow_scripts/manage.py compare A B              two systems: wins, losses, ties, or one query
    python workflow_scripts/manage.py report FILE ...          the report page, from what is finished now
    python workflow_scripts/manage.py figures FILE ...         its charts as PDF and PNG for a paper
    python workflow_scripts/manage.py schema                   config/schema.json from the settings

FILE ... are the files of one configuration, merged as `--configfile` merges them. The rules call `release`, and with
JSON on standard input `table`, `analyses`, `published`, `page` and `link`. Bad input ends with one sentence on stderr
and status 1. Every command loads what it needs itself, so that none waits for the libraries of another.
"""

import argparse
import json
import sys
from pathlib import Path

from commands.for_rules import analyses, link, page, published, release, table, write_page


def plan_of(files):
    """The plan of the configuration in `files`."""
    from teleport.plan.plan import Plan
    from teleport.settings.read import load_files

    return Plan(*load_files(files))


def new(arguments):
    """Write config/NAME.yaml for a folder of passages, queries and judgments, and say how to go on.

    The folder has corpus.tsv (id, title if any, text), and queries.SPLIT.tsv and qrels.SPLIT.tsv for train and test, or
    queries.tsv and qrels.tsv, of which a third becomes the test; or it has BEIR's form.
    """
    from commands.new import new

    path, said = new(arguments.name, arguments.folder, Path(__file__).parents[1])
    plan = plan_of([path])  # what is wrong with the checkpoint is said now
    print(*said, *plan.warnings, f"{path} is written: {len(plan.stages)} stages. Look at it, then:", sep="\n")
    print(f"  .venv/bin/snakemake -n --configfile {path}             # what would run")
    print(f"  .venv/bin/snakemake --cores all --configfile {path}    # results/tables/{arguments.name}/main.md")


def status(arguments):
    """Show what runs where, how much of the plan is finished by experiment and seed, and what is left."""
    from commands.status import by_seed, finished, left, render, render_seeds, unfinished

    plan = plan_of(arguments.files)
    labels = {name: plan.label(name) for name in plan.stages}
    stages = unfinished(lambda name: labels.get(name, "not of this configuration"))
    print(render(stages, finished(plan.stages)), left(plan), "", render_seeds(by_seed(plan)), sep="\n")


def forecast(arguments):
    """Forecast stages, disk, memory, work and hours of a configuration, before anything starts.

    Hardware lines are in config/hardware.yaml; `bench/calibrate.py` measures this machine, and its line is then the
    default. How fast each job is remains the line's, also with other --cores. With --strict a warning ends the command
    with status 1.
    """
    from commands.forecast.printed import print_forecast

    given = {"cores": arguments.cores, "gpus": arguments.gpus}
    given |= {"memory": arguments.memory and arguments.memory * 10**9}
    machine = {what: number for what, number in given.items() if number}
    found = print_forecast(plan_of(arguments.files), arguments.hardware, **machine)
    return 1 if found and arguments.strict else 0


def prune(arguments):
    """List the stages on disk that nothing uses; with --delete, remove them.

    A stage is used when a given configuration plans it, or when a folder below results/experiments or a table below
    results/tables shows it or what was made from it: results of other configurations stay. Delete such a folder or
    table to let its stages go. --also names another configuration, and is needed for experiments that are not finished:
    nothing shows them yet.
    """
    from commands.disk import prune

    prune(set().union(*(plan_of(files).stages for files in [arguments.files, *arguments.also])), arguments.delete)


def verify(arguments):
    """Check every artefact against the SHA-256 in its manifest, and the links of the experiments.

    Prints one line per stage that is torn or edited and per link to a stage that is not there, each with the remedy,
    and ends with status 1 when there is one.
    """
    from commands.disk import broken_links, check_stages

    (bad, number), broken = check_stages(), broken_links()
    print("".join(f"{line}\n" for line in bad + broken), end="")
    print(f"{number - len(bad)} stages sound, {len(bad)} torn or edited, {len(broken)} links lead nowhere")
    return 1 if bad or broken else 0


def export(arguments):
    """Write a stage for others: negatives as Tevatron's training data, a run with its judgments, or a checkpoint.

    STAGE is a merge, evaluate or train stage, or the link to it: results/experiments/NAME/episode-3/train.
    """
    from commands.export import export

    print(export(arguments.stage_folder, arguments.output))


def push(arguments):
    """List the files of an exported checkpoint; with --send, upload them to a model repository of the hub."""
    from commands.export import push

    print(push(arguments.folder, arguments.repository, arguments.send))


def compare(arguments):
    """Set two evaluations side by side: wins, losses, ties and the largest differences, or one query.

    A and B are evaluate stages, or links to them: results/experiments/NAME/episode-3/evaluate-test.
    """
    from commands.compare import compare

    print(compare(arguments.first, arguments.second, arguments.measure, arguments.query, arguments.most))


def schema(arguments):
    """Write config/schema.json and config/published/schema.json, with which editors complete and check keys."""
    from teleport.report.published import PublishedTable
    from teleport.runtime.files import write_json
    from teleport.settings.read import json_schema

    config = Path(__file__).parents[1] / "config"
    write_json(config / "schema.json", json_schema())
    write_json(config / "published" / "schema.json", PublishedTable.model_json_schema())


def report(arguments):
    """Write the report page of a configuration from the stages that are finished now, also while others run.

    The workflow makes it at its end. Here --queries says how many queries of each split are shown in full, or all.
    """
    from commands.status import as_seen
    from teleport.report.page_specs import page_spec

    plan = plan_of(arguments.files)
    folder, spec = page_spec(plan, arguments.files, arguments.queries)
    status = as_seen(plan, {name: plan.label(name) for name in plan.stages})
    write_page(json.loads(spec.text) | {"status": status}, arguments.output or Path(folder))


def figures(arguments):
    """Write charts of the report page as PDF and PNG for a paper, as wide as a column, from what is finished now."""
    from teleport.report.page.figure_files import write_figures
    from teleport.report.page_specs import page_spec

    folder, spec = page_spec(plan_of(arguments.files), arguments.files)
    output = arguments.output or Path(folder.replace("report", "figures", 1))
    for name in write_figures(json.loads(spec.text), Path("."), output):
        print(f"{output}/{name}.pdf, .png")


def number_or_all(text):
    """A whole number, or "all" (argparse names the argument where it is neither)."""
    return text if text == "all" else int(text)


def at_least_one(text):
    """A whole number from 1 on, as argparse takes it."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def parse_arguments():
    """The command line (argparse.Namespace); `command` is the function to call."""
    parser = argparse.ArgumentParser(description="The commands about results.")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(command):
        summary = command.__doc__.split("\n")[0]
        sub = subparsers.add_parser(command.__name__, help=summary, description=command.__doc__)
        sub.set_defaults(command=command)
        return sub.add_argument

    files = {"metavar": "FILE", "help": "the files of one configuration, as after --configfile"}
    argument = add(new)
    argument("name", metavar="NAME", help="of the configuration, and of the folder of its tables")
    argument("folder", type=Path, metavar="FROM", help="the folder of the collection")
    add(status)("files", nargs="*", default=["config/config.yaml"], **files)
    argument = add(forecast)
    argument("files", nargs="+", **files)
    argument("--hardware", help="a line of config/hardware.yaml; default: this machine if it was measured")
    for what, unit in {"cores": "", "gpus": "", "memory": " in GB"}.items():
        argument(f"--{what}", type=at_least_one, help=f"of the machine{unit}; default: as in the hardware line")
    argument("--strict", action="store_true", help="end with status 1 when something is too small")
    argument = add(prune)
    argument("files", nargs="+", **files)
    argument("--also", nargs="+", action="append", default=[], **files | {"help": "those of another configuration"})
    argument("--delete", action="store_true", help="remove what is listed")
    add(verify)
    argument = add(export)
    argument("stage_folder", type=Path, metavar="STAGE", help="a finished stage, or the link to it")
    argument("output", type=Path, metavar="OUTPUT", help="the file (negatives) or folder to write")
    argument = add(push)
    argument("folder", type=Path, metavar="FOLDER", help="a checkpoint that `export` wrote")
    argument("repository", metavar="OWNER/NAME", help="on the hub")
    argument("--send", action="store_true", help="upload, as whom `hf auth login` says")
    argument = add(compare)
    argument("first", type=Path, metavar="A", help="a finished evaluate stage, or the link to it")
    argument("second", type=Path, metavar="B", help="another one of the same split")
    argument("--measure", help="by which queries are won; default: the first")
    argument("--query", help="the id of a query: show what both find for it")
    argument("--most", type=int, default=10, help="how many of the largest differences are listed; default: 10")
    add(schema)
    argument = add(report)
    argument("files", nargs="+", **files)
    argument("--queries", type=number_or_all, help="of each split shown in full, or all; default: report.queries")
    argument("--output", type=Path, help="the folder to write to; default: results/report, or NAME below it")
    argument = add(figures)
    argument("files", nargs="+", **files)
    argument("--output", type=Path, help="the folder to write to; default: results/figures, or NAME below it")
    for command in (table, analyses, published, page, link, release):
        add(command)("--output", required=True, type=Path, help="the folder to write to")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    try:
        sys.exit(arguments.command(arguments))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
