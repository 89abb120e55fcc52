# What may be asked for by the name of an experiment: `snakemake results/experiments/ance-tele/episode-2/encode`, also
# after --forcerun. A link is no output of a job, as Snakemake would write its time stamp through it into the stage; so
# before the jobs are planned it is taken for the manifest that it leads to. A folder means every stage linked in it.

from teleport.report.links import linked_stages, nearest


@cache
def linked():
    """All links and folders, and their stages; found when one is asked for."""
    return linked_stages(PLAN)


def unnamed(requests, shown=()):
    """The files that requests (rules, files) stand for, with plan.tsv of those of the folders `shown` that they name."""
    found = set()
    for request in requests:
        path = folder = os.path.normpath(request)
        if os.path.basename(path) in ("manifest.json", "plan.tsv"):
            folder = os.path.dirname(path)
        if not folder.startswith("results/experiments/"):
            found.add(request)
        elif folder in linked():
            found.update(manifests(linked()[folder]))
            found.update(f"{home}/plan.tsv" for home in shown if f"{folder}/".startswith(f"{home}/"))
        elif not Path(path).suffix:
            raise WorkflowError(f"{path} is no stage of this configuration. {nearest(path, linked())}")
        else:
            found.add(request)
    return found


internals.translate_targets(workflow, partial(unnamed, shown=FOLDERS), unnamed)
internals.end_on_sigterm(workflow)


def merged(wildcards):
    """Input function: the pool of an episode."""
    link = f"{wildcards.folder}/merge"
    if link not in linked():
        remedy = "config/variants/mined.yaml, after the files of any configuration, mines negatives alone."
        raise WorkflowError(f"{link} is no stage of this configuration. {nearest(link, linked())} {remedy}")
    return manifests(linked()[link])
