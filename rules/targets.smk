# Targets by the name of an experiment, an episode or a link: `snakemake results/experiments/ance-tele/episode-2/encode`.
# A link cannot be the output of a job: Snakemake would write its time stamp through the link into the stage. So each
# link on the command line becomes a rule whose inputs are its stages.

from teleport.report.links import linked_stages, nearest


@cache
def linked():
    """All links and folders, and their stages; computed when one is needed."""
    return linked_stages(PLAN)


def not_linked(path):
    return WorkflowError(f"{path} is not a stage of this configuration. {nearest(path, linked())}")


def stages_of_link(word, link, wildcards):
    """Input function: the stages of a link or folder that the command line names by `word`."""
    if os.path.relpath(word) in forced():
        stage = linked()[link][0].name
        raise WorkflowError(f"a link cannot be forced. Name a rule, or its file: results/stages/{stage}/manifest.json")
    return manifests(linked()[link])


NAMED = list(dict.fromkeys(word for word in sys.argv if os.path.normpath(word).startswith("results/experiments/")))
for word in NAMED if MAIN else ():
    link = os.path.normpath(word)
    if Path(link).name in ("manifest.json", "plan.tsv"):
        link = str(Path(link).parent)
    if (word == f"{link}/plan.tsv" and link in linked()) or (link not in linked() and Path(link).suffix):
        continue  # a file, which a rule makes
    if link not in linked():
        raise not_linked(link)

    rule:
        name:
            word
        input:
            [f"{folder}/plan.tsv" for folder in FOLDERS if f"{link}/".startswith(f"{folder}/")],
            partial(stages_of_link, word, link),
        message:
            "stages in an experiment's folder"


def merged(wildcards):
    """Input function: the pool of an episode."""
    link = f"{wildcards.folder}/merge"
    if link not in linked():
        remedy = "config/variants/mined.yaml, after the files of any configuration, mines negatives alone."
        raise WorkflowError(f"{not_linked(link)} {remedy}")
    return manifests(linked()[link])
