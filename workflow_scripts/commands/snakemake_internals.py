"""What this workflow uses of Snakemake that its documentation does not promise, each with the reason.

Snakemake may change it in any version. After an upgrade run tests/workflow/test_snakemake_internals.py, which tries
each function in a small workflow; mend here what fails, then raise `TRIED_ON`.
"""

import gc
import signal
from functools import cache
from itertools import count
from threading import Thread, current_thread, main_thread
from typing import NamedTuple

from snakemake.io import IOFile
from snakemake.logging import ColorizingTextHandler, LogEvent, get_event  # noqa: F401
from snakemake.settings.types import DeploymentMethod

TRIED_ON = "9.27.1"


class Call(NamedTuple):
    """How Snakemake was called. Needed because the code is read again by the process of each job."""

    main: bool  # this is the process that a person started, not that of a job
    dry: bool  # with -n
    submits: bool  # jobs run elsewhere, as on a cluster; not with -n
    submitted: bool  # this process is such a job
    conda: bool  # with --sdm conda
    configfiles_given: bool  # with --configfile


def how_called(workflow):
    """The `Call` of a workflow."""
    return Call(
        main=workflow.is_main_process,
        dry=workflow.output_settings.dryrun,
        # Its executor is not chosen yet, but --jobs are those of another one; not so in a dry run.
        submits=workflow.resource_settings.nodes is not None and not workflow.output_settings.dryrun,
        submitted=workflow.remote_exec,
        conda=DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method,
        configfiles_given=bool(workflow.overwrite_configfiles),
    )


def set_resources(workflow):
    """{rule: {resource: its value, as it was written}} of --set-resources and of profiles."""
    given = workflow.resource_settings.overwrite_resources
    return {rule: {name: resource.raw for name, resource in of.items()} for rule, of in given.items()}


def unfinished(workflow, among=None):
    """The stages whose jobs wait or run (set of "kind/key"), of all or of those `among` (names); none before Snakemake
    has chosen the jobs, when it asks for params once more."""
    jobs = chosen_jobs(workflow.dag) if workflow.scheduler else {}
    names = jobs.keys() if among is None else jobs.keys() & among
    return {name for name in names if not all(map(workflow.dag.finished, jobs[name]))}


@cache
def chosen_jobs(dag):
    """{"kind/key": the jobs of a stage} that a run makes. They stay the same, and every search asks for some of them:
    to look through all each time took the square of their number."""
    jobs = {}
    for job in dag.needrun_jobs(exclude_finished=False):
        if {"kind", "key"} <= job.wildcards_dict.keys():
            jobs.setdefault("{kind}/{key}".format_map(job.wildcards_dict), []).append(job)
    return jobs


def made_or_found(workflow, paths):
    """Those of some files (paths) that a run has made, or has found up to date: none that its targets do not need."""
    known = {str(file) for job in workflow.dag.jobs for file in job.output}
    return [path for path in paths if path in known]


def room(workflow):
    """What the jobs of a run may have at once ({"cores", and "gpu" where that is limited: int})."""
    limits = workflow.global_resources
    return {"cores": workflow.cores} | ({"gpu": limits["gpu"].value} if "gpu" in limits else {})


def name_in_messages(workflow, name, value):
    """Let `message:` texts use a name. They are formatted with the names of the main workflow, which may have this one
    as a module; `message:` takes no function."""
    workflow.modifier_stack[0].globals[name] = value


def recorded_params(workflow, path):
    """The tracked parameters of the job that made a file, as text each (list); None where no record is."""
    return workflow.persistence.params(IOFile(path))


def recorded_input(workflow, path):
    """The input files of the job that made a file (list); None where no record is. A set of shards is kept by it:
    Snakemake reruns a job whose set of input files has changed."""
    return workflow.persistence.input(IOFile(path))


def translate_targets(workflow, targets, forced):
    """Have functions replace the files and rules that were asked for, and those after --forcerun (sets), before jobs
    are planned. Snakemake tells them only after the Snakefile was read, and a rule's output cannot be a link."""

    def translate(settings):
        settings.targets, settings.forcerun = targets(settings.targets), forced(settings.forcerun)

    when_set(workflow, "dag_settings", translate)


def end_on_sigterm(workflow):
    """Have SIGTERM end a run once its jobs have ended, as Snakemake means it. Its own handler asks for a lock which the
    thread that it interrupts may hold, as while it waits for files of a finished job: the run would wait for itself for
    ever. In a thread of its own the handler waits for that lock."""

    def handle(scheduler):
        def end(*_):
            scheduler._user_kill = "graceful"  # at once, else one more job may begin
            Thread(target=scheduler.exit_gracefully, daemon=True).start()

        if current_thread() is main_thread():  # no other may say what a signal does
            signal.signal(signal.SIGTERM, end)

    when_set(workflow, "scheduler", handle)


def when_set(workflow, attribute, do):
    """Call `do` with what Snakemake gives a workflow as an attribute, before it has it."""

    class Watched(type(workflow)):
        def __setattr__(self, name, value):
            if name == attribute and value:
                do(value)
            super().__setattr__(name, value)

    workflow.__class__ = Watched


def plan_in_short(workflow, logger, listed):
    """Have a dry run work out no more of its jobs than it says: params, messages, commands and resources of the first
    `listed`.

    Snakemake does so for every job, for an environment that it makes with --sdm conda alone and for lines that the
    handler of `logger` leaves out, and asks Python for the arguments of each of our functions at every call. A plugin
    that writes in the place of our handler gets all it expects, and so does `--printshellcmds`.
    """
    from snakemake import common, rules  # which import each other in a circle
    from snakemake.dag import DAG
    from snakemake.jobs import Job
    from snakemake.output_index import OutputIndex
    from snakemake.scheduling.job_scheduler import JobScheduler

    gc.disable()  # jobs stay until the end: to look for garbage among them took three tenths of the time
    if DeploymentMethod.CONDA not in workflow.deployment_settings.deployment_method:
        DAG.update_conda_envs = lambda dag: None
    common.get_function_params = rules.get_function_params = cache(common.get_function_params)
    # Which rules make a file is asked again for each of its readers, of every rule by regular expressions.
    OutputIndex.match_producers = cache(OutputIndex.match_producers)
    if workflow.output_settings.printshellcmds or not any(isinstance(h, TerminalHandler) for h in logger.handlers):
        return
    in_full, number = Job.log_info, count()
    free_in_full, freed = JobScheduler._free_resources, set()

    def log_info(job, *arguments, **named):
        if not job.rule.message or next(number) < listed:
            in_full(job, *arguments, **named)
        else:
            said = {"rule_msg": job.rule.message, "output": job.output[:1], "jobid": None}
            logger.info("", extra=said | {"event": LogEvent.JOB_INFO})

    def free_resources(scheduler, job):
        # A dry run frees what it has never taken. Of each rule one job is asked for it, so that a mistake in
        # `set-resources` is told.
        if job.is_group() or not freed.issuperset(job.rules):
            freed.update(job.rules)
            free_in_full(scheduler, job)

    Job.log_info, JobScheduler._free_resources = log_info, free_resources


class TerminalHandler(ColorizingTextHandler):
    """Writes to the terminal in the place of Snakemake's own handler, `usual`, in its colours and with its filters. A
    logger plugin could, but has to be an installed package."""

    def __init__(self, usual):
        super().__init__(usual.nocolor, usual.stream, usual.formatter)
        self.filters, self.name = usual.filters, usual.name
        self.draws, self.lock_of_stream = self.can_color_tty(), self._output_lock


def replace_terminal_handler(logger, make):
    """Put `make(usual)` in the place of the handler of `logger` that writes to the terminal; a plugin's stays."""
    for usual in [handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"]:
        logger.removeHandler(usual)
        logger.addHandler(make(usual))
