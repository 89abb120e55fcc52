"""The command `teleport`: costs and state of a run, checks, exports and reports.

`teleport --help` lists its commands, `teleport COMMAND --help` says more. FILE ... are the files of one configuration,
merged as `--configfile` merges them. The rules call the last commands. Bad input ends with one sentence on stderr and
status 1; any other error is a defect and keeps its traceback. Every command loads its own imports, so that none waits
for the libraries of another.
"""

import argparse
import json
import logging
import os
import signal
import sys
from pathlib import Path

from commands.arguments import (
    FAULTS,
    LIKE,
    MARGIN,
    NEGATIVES_FORMS,
    at_least_one,
    at_most_one,
    comma_separated,
    configuration,
    file,
    folder,
    gpus_of_training,
    kinds_of_faults,
    name_of_configuration,
    number_or_all,
    shards,
    there,
)

LONGEST_ERROR = 500  # characters of an error of the system: it names the file, and a name may have thousands
INTERRUPTED = "interrupted: no half-written file is left; run the same command again."
INTERRUPTS = []  # signals of Ctrl-C: a library may turn SystemExit into its own error, as pydantic does


def interrupt(number, _frame):
    """End the command at Ctrl-C; half-made files are removed on the way out."""
    INTERRUPTS.append(number)
    sys.exit(INTERRUPTED)


FILES = "the files of one configuration, as after --configfile"
ORDER = "the order of negatives; default: drawn, which lists them by source and rank"
MOST = "at most so many negatives of a query: a random choice, or with --order hardest the hardest"
DROP = f"leave out and count such records instead of refusing them: {', '.join(FAULTS)} (collection.drop)"
COMMANDS = []  # (function, its arguments), in the order in which the help lists them


def argument(*names, **options):
    """An argument of a command, as argparse's add_argument takes it."""
    return names, options


def files(*names, **options):
    """The argument FILE ..., the files of one configuration."""
    return argument(
        *names or ["files"], **{"nargs": "+", "metavar": "FILE", "help": FILES, "type": configuration} | options
    )


def command(*arguments):
    """Declares a function of the arguments as the command of its name; its docstring is its help."""
    return lambda function: COMMANDS.append((function, arguments)) or function


def given_by(files):
    """(the merged mapping, the files that it came from) of YAML files, or of the JSON file that a run has written."""
    from teleport.refusal import Refusal
    from teleport.running.files import read_saved
    from teleport.settings.read import merged_files

    if str(files[0]).endswith(".json"):
        if len(files) > 1:
            raise Refusal(f"{files[0]} is a whole configuration, so {files[1]} has no effect. Leave it out.")
        content = read_saved(Path(files[0]))
        if not {"config", "files"} <= content.keys():
            written = "Give YAML files, or results/configuration/NAME.json, which a run writes"
            raise Refusal(f"{files[0]} does not exist, or is not a configuration. {written}.")
        return content["config"], content["files"]
    return merged_files(files), files


def plan_of(files):
    """The `Plan` of the configuration in YAML files. Raises Refusal for mistakes in them."""
    from teleport.plan.plan import Plan
    from teleport.settings.read import load

    return Plan(*load(*given_by(files)))


@command(
    argument("name", metavar="NAME", help="of the configuration, and of the folder of its tables"),
    argument("folder", type=Path, metavar="FROM", help="the file or folder of the collection"),
    argument("--test", type=comma_separated, default=[], help="splits that the table reports, separated by commas"),
    argument("--dev", help="the split that chooses the checkpoint; train: draw some of its queries for that"),
    argument("--method", help="a method of docs/methods.md instead of the recipe, such as ance-tele"),
    argument("--encoder", metavar="CHECKPOINT", help="hub:OWNER/NAME@REVISION or a folder, to start from"),
    argument("--question", metavar="COLUMN", help="the column of questions in a table of pairs; default: by its name"),
    argument("--passage", metavar="COLUMN", help="the column of their passages; default: by its name"),
    argument("--drop", type=kinds_of_faults, default=[], metavar="KIND,KIND", help=DROP),
)
def new(name, folder, question, passage, **options):
    """Write config/NAME.yaml for a collection, or for questions with their passages, and print the next commands.

    FROM is a folder with corpus.tsv (id, title if any, text), queries.SPLIT.tsv or queries.tsv for all splits, and
    qrels.SPLIT.tsv, qrels/SPLIT.tsv or qrels.tsv, of which a third becomes the test; or a folder in BEIR's form, or of
    texts; or a file or folder of pairs, triplets or lists of passages, as JSON lines, CSV, TSV, Parquet or a saved
    dataset; or a dataset repository, hub:OWNER/NAME@REVISION (docs/own-data.md). If the splits have other names than
    test and dev, name them with --test and --dev.
    """
    from commands.methods import cost_sentences
    from commands.new import new
    from teleport.report.words import number

    path, sentences = new(name, folder, columns=(question, passage), **options)
    plan = plan_of([path])  # a wrong checkpoint is refused now
    print(
        *sentences,
        *plan.warnings,
        *cost_sentences(plan, path),
        f"{path} is written: {number(len(plan.stages), 'stage')}. Check it, then run:",
        sep="\n",
    )
    print(f"  .venv/bin/snakemake -n --configfile {path}             # what would run")
    print(f"  .venv/bin/snakemake --cores all --configfile {path}    # results/tables/{name}/main.md")


@command(files(nargs="*", default=["config/config.yaml"]))
def status(files):
    """Show what runs where, how much of the plan is finished by experiment and seed, and what is left."""
    from commands.status import left, render, seeds_table, unfinished_of
    from teleport.report.words import by_kind
    from teleport.running.artefact import is_finished

    plan = plan_of(files)
    print(render(unfinished_of(plan), by_kind(plan.stages, is_finished)), left(plan), "", seeds_table(plan), sep="\n")


@command(
    files(),
    argument(
        "--hardware",
        help="a line of config/hardware.yaml; default: this machine if it was measured, else the first line",
    ),
    argument("--cores", type=at_least_one, help="cores of the machine; default: as in the hardware line"),
    argument("--gpus", type=at_least_one, help="GPUs of the machine; default: as in the hardware line"),
    argument("--memory", type=at_least_one, help="GB of the machine's memory; default: as in the hardware line"),
    argument("--set-resources", type=gpus_of_training, default={}, help="train:gpu=N, as Snakemake takes it"),
    argument("--set-scatter", nargs="+", type=shards, default=[], help="encode=N or retrieve=N, as Snakemake takes it"),
)
def forecast(files, hardware, cores, gpus, memory, set_resources, set_scatter):
    """Forecast stages, disk, memory and hours of a configuration, before anything starts.

    Hardware lines are in config/hardware.yaml. `bench/calibrate.py` measures this machine; its line is then the
    default. --cores changes how many jobs run at once, not the speed of a job. With `--gpus 8 --set-resources
    train:gpu=8` a training has eight GPUs, and with `--gpus 8 --set-scatter encode=8` an encoding.
    """
    from commands.forecast.printed import print_forecast

    given = {"cores": cores, "gpus": gpus, "memory": memory and memory * 10**9}
    machine = {name: value for name, value in given.items() if value}
    print_forecast(plan_of(files), hardware, set_resources, dict(set_scatter), machine)


@command(
    files(),
    files("--also", action="append", default=[], help="the files of another configuration"),
    argument("--delete", action="store_true", help="remove what is listed"),
)
def prune(files, also, delete):
    """List the stages on disk that nothing uses; with --delete, remove them.

    A stage is used if a given configuration plans it, or if a folder below results/experiments or a table below
    results/tables shows it or a stage made from it. So results of other configurations stay; delete such a folder or
    table to release its stages. --also names another configuration. Unfinished experiments need it, because nothing
    shows them yet.
    """
    from commands.disk import prune

    prune(set().union(*(plan_of(each).stages for each in [files, *also])), delete)


@command()
def verify():
    """Check every artefact against the SHA-256 in its manifest, and the links of the experiments.

    Prints one line, with the remedy, per torn or edited stage and per link to a missing stage; if there is one, the
    status is 1. Progress goes to standard error.
    """
    from commands.disk import broken_links, check_stages
    from teleport.report.words import number
    from teleport.running.log import configure_logging

    configure_logging()
    (bad, num_stages), broken = check_stages(), broken_links()
    print("".join(f"{line}\n" for line in bad + broken), end="")
    sound, links = number(num_stages - len(bad), "stage"), number(len(broken), "link")
    print(f"{sound} sound, {len(bad)} torn or edited, {links} to missing stages")
    return 1 if bad or broken else 0


@command(
    argument(
        "name", metavar="NAME", type=name_of_configuration, help="of config/NAME.yaml, which `teleport new` has written"
    ),
    argument("--output", type=file, help="the file to write or replace; default: NAME-negatives.jsonl, triples: .tsv"),
    argument("--method", default="config/variants/mined.yaml", help="a file, or a name in config/methods"),
    argument("--form", choices=NEGATIVES_FORMS, default="tevatron", help="a form of `export`; default: tevatron"),
    argument("--order", choices=("drawn", "hardest"), default="drawn", help=ORDER),
    argument("--most", type=at_least_one, help=MOST),
    argument("--scores", action="store_true", help="also in the forms that trainers take without scores"),
    argument("--cores", default="all", help="as Snakemake takes it; default: all"),
)
def mine(**given):
    """Mine negatives for the training queries of config/NAME.yaml with its starting checkpoint, and describe them.

    They are for a training elsewhere, with scores, and with ranks and sources if the form has them; nothing is trained
    here. sentence-transformers takes every column for a text, so labeled-pair and labeled-list have scores only with
    --scores; labeled-list is for its CrossEncoderTrainer alone. Line n of NAME-negatives.origin.jsonl has the ids,
    scores, ranks and sources of the passages in row n.
    """
    from commands.mine import mine

    return mine(**given)


@command(
    argument("stage_folder", type=Path, metavar="STAGE", help="a finished stage, or the link to it"),
    argument("output", type=Path, metavar="OUTPUT", help="the file (negatives, vectors) or folder to write"),
    argument("--form", choices=NEGATIVES_FORMS, help="the form of negatives; default: tevatron"),
    argument("--order", choices=("drawn", "hardest"), help=ORDER),
    argument("--most", type=at_least_one, help=MOST),
    argument("--scores", action="store_true", help="with scores, and ranks, sources, episodes where the form has room"),
    argument("--examples", action="store_true", help="quote a query and passages of the collection in a model's card"),
    argument("--license", metavar="ID", help="for the head of the card of a checkpoint: an id of the hub, such as mit"),
    argument("--language", metavar="CODE", help="for the head of the card, such as en"),
    argument("--dataset", metavar="OWNER/NAME", help="for the head of the card: the collection's id on the hub"),
)
def export(stage_folder, output, order, **wanted):
    """Write a stage for others: negatives as training data, a run with its judgments, a checkpoint, or vectors.

    STAGE is a merge, relabel, evaluate, train or encode stage, or the link to it:
    results/experiments/NAME/EXPERIMENT/episode-3/train.
    Forms of negatives: the lines of Tevatron, FlagEmbedding (pos-neg) and NeMo, the columns of sentence-transformers
    (n-tuple, triplet, labeled-pair, labeled-list), or ids in TSV (triples). n-tuple, triplet and triples have the first
    positive of a query, the others all of them. Scores are those of the checkpoint that mined. Vectors become Parquet
    (id, vector) or an index of faiss, by the ending of OUTPUT: .parquet or .faiss.
    """
    from commands.export import export

    print(export(stage_folder, output, hardest=order == "hardest", **wanted))


@command(
    argument("names", nargs="+", metavar="EXPERIMENT|STAGE", help="or the files of a configuration: all of its stages"),
    argument("--to", required=True, metavar="PLACE", help="a new folder, NAME.tar, or hub:OWNER/NAME"),
    argument("--without", choices=("vectors",), help="leave out vectors and the indexes over them"),
)
def share(names, to, without):
    """Write finished stages for others, with the stages that they were made from.

    EXPERIMENT is a name or folder below results/experiments; the stages behind its table are included. STAGE is a link
    there, or a key. On another machine, `teleport fetch PLACE` takes them, or a configuration names PLACE under
    `artefacts`.
    """
    from commands.share import share, stages_at

    files = [name for name in names if name.endswith((".yaml", ".yml"))]
    named = [stages_at(name) for name in names if name not in files]
    stages = set(plan_of(files).stages if files else ()).union(*named)
    print(share(stages, to, vectors=without is None))


@command(
    argument("place", metavar="PLACE", help="what `share` has written, a folder `results`, or hub:OWNER/NAME@COMMIT"),
    files(nargs="*"),
)
def fetch(place, files):
    """Take finished stages of others, those of a configuration or all, so that the workflow need not run them.

    Every file is compared with the SHA-256 in its manifest while it is copied. Stages of other code or input than here
    are left out and counted.
    """
    from commands.share import fetch
    from teleport.running.log import configure_logging

    configure_logging()
    print(*fetch(place, plan_of(files) if files else None), sep="\n")


@command(argument("files", nargs="*", type=Path, metavar="FILE", help="default: all in reproductions/"))
def reproductions(files):
    """Check other people's runs by their digests (docs/own-data.md).

    Each digest in a file of reproductions/ is compared with the run at the place that the file names, and with the run
    that is finished here. If one differs, or is missing at the place, the status is 1.
    """
    from commands.reproductions import FOLDER, check
    from teleport.refusal import Refusal

    files = files or sorted(FOLDER.glob("[!.]*.yaml"))
    if not files:
        raise Refusal(f"{FOLDER} has no file. Name one; docs/own-data.md describes its form.")
    checked = [check(file, plan_of) for file in files]
    print(*(line for lines, _ in checked for line in lines), sep="\n")
    return 1 if any(wrong for _, wrong in checked) else 0


@command(
    argument(
        "negatives", type=there, metavar="FILE|STAGE", help="a file of negatives; a merge or relabel stage, or its link"
    ),
    argument("--by", type=Path, metavar="CHECKPOINT", help="score by this encoder or cross-encoder"),
    argument("--margin", type=at_most_one, default=MARGIN, help=f"the margin of suspected_by_score; default {MARGIN}"),
    argument("--like", type=at_most_one, help=f"the least cosine of like_positive; default {LIKE}"),
    argument("--json", dest="as_json", action="store_true", help="print JSON, not a table"),
)
def audit(negatives, by, margin, like, as_json):
    """Describe negatives by source: how hard they are, how many repeat, and how many are probably positives.

    FILE has one of the forms that `export` writes, or DPR's. s+ is the lowest score of a query's positives; hardness is
    the mean of score minus s+. Shares of the negatives: suspected_by_score, those above s+ - margin |s+|; equal_text,
    those with the text of a positive; like_positive, only with --by an encoder, those with a cosine above `like` with a
    positive. eci is high for many hard negatives below s+; it needs vectors of length 1. entropy_bits is the entropy of
    the drawn passages: log2 of their number if all are drawn equally often.
    """
    from commands.audit import audit, printed

    result = audit(negatives, by, margin, like)
    print(json.dumps(result, indent=1) if as_json else printed(result))


@command(
    argument("folder", type=Path, metavar="FOLDER", help="a checkpoint that `export` wrote"),
    argument("repository", metavar="OWNER/NAME", help="on the hub"),
    argument("--send", action="store_true", help="upload, under the account of `hf auth login`"),
    argument("--public", action="store_true", help="make a new repository public"),
)
def push(**given):
    """List the files of an exported checkpoint; with --send, upload them to the hub.

    A new repository is private unless --public is given; one that exists stays as it is."""
    from commands.export import push

    print(push(**given))


@command(
    argument("first", type=Path, metavar="A", help="a finished evaluate stage, or the link to it"),
    argument("second", type=Path, metavar="B", help="another one of the same split"),
    argument("--measure", help="measure by which queries are won; default: the first"),
    argument("--query", help="the id of a query: show the passages that both find for it"),
    argument("--most", type=at_least_one, default=10, help="how many of the largest differences to show; default: 10"),
)
def compare(**given):
    """Compare two evaluations: p, wins, losses, ties and the largest differences, or one query.

    A and B are evaluate stages, or links to them: results/experiments/NAME/EXPERIMENT/episode-3/evaluate-test. If an
    experiment has several seeds, this path without the folder seed-N means all of them. With three or more seeds, p is
    over queries and seeds.
    """
    from commands.compare import compare

    print(compare(**given))


@command(
    argument("experiment", metavar="EXPERIMENT", help="below results/experiments, or a configuration file of one"),
    argument("queries", nargs="*", metavar="QUERY", help="in quotes"),
    argument("--file", type=there, help="further queries, one per line"),
    argument("--depth", type=at_least_one, default=10, help="passages for each query; default: 10"),
    argument("--json", dest="as_json", action="store_true", help="print a JSON object per query, with whole texts"),
)
def search(experiment, **given):
    """Search the collection of an experiment with its last checkpoint, by the vectors that the workflow has made.

    EXPERIMENT is a name such as mine/tuned, its folder, that of an episode in it, or config/mine.yaml.
    """
    from commands.search import search

    for line in search(experiment, **given):
        print(line)


@command(files(nargs="*", default=["config/config.yaml"]))
def doctor(files):
    """Check this machine: one line per check, with a verdict and a remedy; status 1 if one fails.

    It checks GPUs, driver, torch, bfloat16, NCCL, compiler, locks, memory, disk, a training step and a search.
    """
    from commands.doctor import doctor

    return doctor(lambda: plan_of(files))


@command(
    argument("table", metavar="TABLE", help="a name in config/published, or a path"),
    files(help="the files of several configurations in sequence: a file with a `name` begins the next one"),
)
def joint(table, files):
    """Write and print one published table that several configurations fill, from their finished stages.

    It goes to results/published, to a folder of all their names: marco+nq+triviaqa.
    """
    from teleport.report.published import joint_table
    from teleport.report.published_table import write_published
    from teleport.settings.read import merged_files

    configurations = []
    for path in files:
        configurations += [[]] if "name" in merged_files([path]) or not configurations else []
        configurations[-1].append(path)
    folder, table = joint_table(table, [plan_of(each) for each in configurations])
    write_published(table, Path("."), folder)
    print((folder / f"{table['name']}.md").read_text(), end=f"\n{folder}/{table['name']}.md, .csv, .tex\n")


@command()
def schema():
    """Write the generated pages: both schema.json, config/REFERENCE.md and the list in docs/methods.md."""
    from commands.methods import with_methods
    from commands.settings_tables import reference
    from teleport.report.published import PublishedTable
    from teleport.running.files import write_json, write_text
    from teleport.settings.configuration import json_schema

    config = Path(__file__).parents[1] / "config"
    write_json(config / "schema.json", json_schema())
    write_json(config / "published" / "schema.json", PublishedTable.model_json_schema())
    write_text(config / "REFERENCE.md", reference())
    page = config.parent / "docs/methods.md"
    write_text(page, with_methods(page.read_text()))


@command(
    files(),
    argument(
        "--queries",
        type=number_or_all,
        help="how many queries of each split are shown in full, or all; default: report.queries",
    ),
    argument("--output", type=folder, help="the folder to write to; default: results/report, or NAME below it"),
    argument("--share", type=file, metavar="FILE", help="write one HTML file with all of it, not the folder"),
)
def report(files, queries, output, share):
    """Write the report page of a configuration from the stages that are finished now, also while others run.

    The workflow also writes it at its end. --queries sets how many queries of each split are shown in full.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # many small products: threads would wait for each other
    from teleport.report.page.contents import page_contents
    from teleport.report.page.site import FILES as PAGES
    from teleport.report.page.write import write_page
    from teleport.report.rows import in_folder
    from teleport.running.files import require_output

    if output and not share and not (output / PAGES).is_dir():
        require_output(output, folder=True)  # a page is written over an earlier page alone
    plan, (_, names) = plan_of(files), given_by(files)
    output = output or Path(in_folder("report", plan.config))
    size = write_page(page_contents(plan, names, queries), Path("."), output, share)
    print(f"{share or f'{output}/index.html'}: {size / 1e6:.1f} MB")


@command(
    files(),
    argument("--output", type=folder, help="the folder to write to; default: results/figures, or NAME below it"),
)
def figures(files, output):
    """Write charts of the report page as PDF and PNG for a paper, as wide as a column, from what is finished now."""
    from teleport.report.paper.write import write_figures
    from teleport.report.rows import in_folder

    plan = plan_of(files)
    output = output or Path(in_folder("figures", plan.config))
    written = [f"{output}/{name}" for name in write_figures(plan, Path("."), output)]
    print(*written or ["No figure to draw yet: finish an experiment, or name some under `figures:`."], sep="\n")


@command(
    files(),
    argument("--published", action="store_true", help="only the papers' tables, in results/published"),
    argument("--untrained", action="store_true", help="as --published; also print the tables that need no training"),
)
def tables(files, published, untrained):
    """Write the tables of a configuration, all of whose stages are finished; the papers' tables show those that are."""
    from teleport.report.stages import require_finished
    from teleport.report.write import FORMS, untrained_tables, write_tables

    plan = plan_of(files)
    if not (published or untrained):
        require_finished(plan.stages, Path("."))
    written = write_tables(plan, ["published"] if published or untrained else FORMS)
    for path in untrained_tables(plan) if untrained else ():
        print(Path(f"{path}.md").read_text())
    print(*[f"{path}.md" for path in written] or ["no table: the configuration has no key `published`"], sep="\n")


@command(files())
def link(files):
    """For the rules: make the folders of the experiments below results/experiments."""
    from teleport.report.links import link_experiments

    link_experiments(plan_of(files))


@command(argument("--output", required=True, type=folder, help="the folder of the stage"))
def delete_vectors(output):
    """For the rules: delete the vectors of a finished encode stage (keep_vectors)."""
    from teleport.running.artefact import Artefact

    Artefact(output).delete_files()


def require_names(refusal):
    """Raise a `refusal` if the arguments or the folder keep every command from working."""
    for text in sys.argv[1:]:
        if any("\udc80" <= character <= "\udcff" for character in text):  # bytes of the command line
            raise refusal(f"{os.fsencode(text)!r} is not UTF-8, so no configuration can name it. Rename it.")
    if os.path.lexists("results") and not os.path.isdir("results"):
        raise refusal("results is not a folder, or is a broken link. Move it away.")


def main():
    """Run one command, and end the process with its status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)  # before the library is loaded, which it would end with a traceback
    from teleport.refusal import Refusal
    from teleport.running.files import of_the_system

    logging.lastResort.setFormatter(logging.Formatter("warning: %(message)s"))  # of commands that keep no log
    parser = argparse.ArgumentParser(
        prog="teleport", description="Commands before, during and after a run of the workflow."
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for function, arguments in COMMANDS:
        summary, _, _ = function.__doc__.partition("\n")
        sub = subparsers.add_parser(function.__name__, help=summary, description=function.__doc__)
        sub.set_defaults(command=function)
        for names, options in arguments:
            sub.add_argument(*names, **options)
    try:
        given = vars(parser.parse_args())
        require_names(Refusal)
        status = given.pop("command")(**given)
        if sys.stdout:  # None if it was closed before
            sys.stdout.flush()
        sys.exit(status)
    except BaseException as error:
        if INTERRUPTS:
            sys.exit(INTERRUPTED)
        if isinstance(error, BrokenPipeError):  # the reader has closed, such as `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python's own end writes there once more
            sys.exit(1)
        if isinstance(error, Refusal):
            sys.exit(f"error: {error}")
        if isinstance(error, Exception) and (known := of_the_system(error)):
            sys.exit(f"error: {known[0]} ({str(error)[:LONGEST_ERROR]}); {known[1]}.")
        raise


if __name__ == "__main__":
    main()
