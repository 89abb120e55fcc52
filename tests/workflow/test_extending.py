"""New sources, draws, filters, relabellings, masks, losses: one file and one line of the registry each; nothing reruns.

A source, a loss and a kind of stage are those that docs/extending.md shows, so that the page cannot promise more than
the code keeps; the others are in the folder `extensions`.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from paths import REPOSITORY
from teleport.negatives.pool import read_pool

# In the order of the page: the file, and the table of its line.
ON_THE_PAGE = [
    ("negatives/sources/following.py", "SOURCES"),
    ("training/losses/hinge.py", "LOSSES"),
    ("negatives/hubs.py", "KINDS"),
    (None, "SOURCES"),
]
# Of the folder `extensions`: the file, the table of its line, and what the line says beside the module.
OTHERS = [
    ("negatives/draws/boltzmann.py", "DRAWS", ", (CANDIDATES,)"),
    ("negatives/filters/far_below.py", "FILTERS", ", (CANDIDATES, POSITIVES)"),
    ("negatives/relabelling/highest.py", "RELABELLINGS", ', ("scores",)'),
    ("training/masks/other_positives.py", "MASKS", ""),
]
EXTENSIONS = REPOSITORY / "tests/workflow/extensions"


def add_line(library, table, line):
    """Add a line at the end of a table."""
    holder = library / ("plan/kinds.py" if table == "KINDS" else "settings/registry.py")
    text = holder.read_text()
    end = text.index("\n}", text.index(f"\n{table} = ")) + 1
    holder.write_text(text[:end] + line + text[end:])


def extend(workflow_scripts):
    """Write the files and the lines into a copy of the library, and the page's stage into the rules and the plan."""
    library, page = workflow_scripts / "teleport", (REPOSITORY / "docs/extending.md").read_text()
    blocks = iter(re.findall(r"```(?:python|snakemake)\n(.*?)```", page, re.DOTALL))
    for file, table in ON_THE_PAGE:
        if file:
            (library / file).write_text(next(blocks))
        add_line(library, table, next(blocks))
    for file, table, scores in OTHERS:
        path = Path(file)
        (library / path).write_text((EXTENSIONS / path.name).read_text())
        module = ".".join(("teleport", *path.with_suffix("").parts))
        add_line(library, table, f'    "{path.stem}": Method("{module}"{scores}),\n')
    rules, mining = workflow_scripts.parent / "rules/stages.smk", library / "plan/mining.py"
    rules.write_text(f"{rules.read_text()}\n\n{next(blocks)}")
    before, after = mining.read_text().split("    def train(self):")
    mining.write_text(f"{before}{next(blocks)}\n    def train(self):{after}")
    assert next(blocks, None) is None


def pairs_of(folder):
    """The queries and the passages (int arrays) of the lists in a stage's folder."""
    offsets = np.load(folder / "offsets.npy")
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), np.load(folder / "passages.npy")


@pytest.mark.slow
def test_each_is_one_file_and_one_line(world):
    library = world.folder / "workflow_scripts/teleport"
    extend(library.parent)
    counts, _ = world.would_run()
    # No stage runs again. The table and the links are written again, in seconds: their job imports the registry.
    assert set(counts) <= {"all", "configuration", "experiments", "tables"}, counts

    # A system that recombines what there is: configuration alone.
    world.config["experiments"]["ours"] = {
        "label": "Ours",
        "negatives": {
            "counts": {"query": 4, "following": {"count": 3, "window": 5}, "hubs": 2},
            "draws": {"query": {"kind": "boltzmann", "temperature": 1e-9}},
            "filters": {"far_below": 0.05},
            "relabel": "highest",
        },
        "training": {
            "loss": {"kind": "hinge", "margin": 0.5},
            "masks": ["known_positives", {"kind": "above_positive", "margin": 0.5}],
        },
        "episodes": [{}],
    }
    # The first episode of `tele`, whose loss sees the positives of other queries, with the new mask.
    masked = {"label": "Masked", "training": {"masks": ["other_positives"]}, "episodes": world.config["episodes"][:1]}
    world.config["experiments"]["masked"] = masked
    # A method is one file, as in config/methods, named after the configuration.
    method, taught = world.folder / "taught.yaml", {"label": "Taught", "training": {"loss": "margin-mse"}}
    taught |= {"negatives": {"counts": {"query": 4, "lookahead": 4}}, "episodes": [{}]}
    method.write_text(yaml.safe_dump({"experiments": {"taught": taught}}))
    before = world.manifests()
    world.snakemake(configfiles=[method.name])
    made = {name: manifest for name, manifest in world.manifests().items() if name not in before}

    def of(experiment, kind):
        """The manifest of the stage of a kind that is made again for an experiment."""
        folder = (world.folder / "results/experiments" / experiment / "episode-1" / kind).resolve()
        return made[f"{folder.parent.name}/{folder.name}"], folder

    # What teaches it is a table of the pairs of its pool, which the training reads.
    (scores, folder), (taught, _) = of("taught", "score-pool"), of("taught", "train")
    assert taught["inputs"]["scores.miner"] == f"score/{folder.name}" and taught["facts"]["first_loss"] > 0
    stages = world.folder / "results/stages"
    queries, passages = (stages / scores["inputs"][side] for side in ("queries", "passages"))
    products = np.load(queries / "queries.train.npy") @ np.load(passages / "passages.npy").T
    np.testing.assert_allclose(np.load(folder / "scores.npy"), products[pairs_of(folder)], rtol=1e-5, atol=1e-6)
    mined = set(map(tuple, np.stack(pairs_of(stages / scores["inputs"]["negatives"]), 1).tolist()))
    assert mined < set(map(tuple, np.stack(pairs_of(folder), 1).tolist())), "and the positives besides"

    # The filter leaves out some of the five passages after the positive; the draw takes the first of the list.
    (merge, folder), rows = of("ours", "merge"), np.arange(80)[:, None]
    far = products[rows, rows + np.arange(1, 6)] < products[rows, rows] - 0.05
    assert merge["settings"]["sources"]["following"]["window"] == 5
    assert merge["facts"]["filters"]["dropped"]["following"] == {"far_below": far.sum()} and far.sum() > 9
    drawn = {"query": 4 * 80, "following": np.minimum(3, (~far).sum(axis=1)).sum(), "hubs": 2 * 80}
    assert merge["facts"]["drawn"] == drawn
    pool = read_pool(folder.joinpath)
    by_draw = pool.items.passages[pool.items.sources == pool.bits["query"]].reshape(80, 4)
    lists = np.load(stages / merge["inputs"]["query"] / "ids.npy")
    assert [set(own) for own in by_draw] == [set(ids[ids != q][:4]) for q, ids in enumerate(lists)]

    relabelled, _ = of("ours", "relabel")
    assert relabelled["facts"]["relabelled"]["dropped"] == 80 and relabelled["inputs"]["negatives"].startswith("merge/")
    train, _ = of("ours", "train")
    assert train["settings"]["training"]["loss"] == {"kind": "hinge", "margin": 0.5} and train["facts"]["steps"] == 6
    assert "| Ours | 1 |" in (world.folder / "results/tables/main.md").read_text()

    # Where other positives are masked, the softmax of the first step is lower.
    masked, folder = of("masked", "train")
    plain = world.folder / "results/experiments/tele/episode-1/train"
    assert masked["inputs"]["negatives"] == world.manifests()[f"train/{plain.resolve().name}"]["inputs"]["negatives"]
    losses = [float((of_one / "losses.tsv").read_text().split("\n")[1].split("\t")[2]) for of_one in (folder, plain)]
    assert losses[0] < losses[1] - 0.01

    # An edit of the new loss, and an optional setting added to it, concern the training that uses it, and what follows.
    path = library / "training/losses/hinge.py"
    text = path.read_text()
    field = '    twice: bool = Field(False, description="Count every pair twice.")\n'
    added = text.replace("\n\ndef loss", f"{field}\n\ndef loss").replace(
        "own_columns_QN, margin", "own_columns_QN, margin, twice"
    )
    for edited in (text.replace("relu(margin", "relu(2 * margin"), added):
        assert edited != text
        path.write_text(edited)
        counts, _ = world.would_run([method.name])
        assert counts["train"] == 1 and "merge" not in counts
