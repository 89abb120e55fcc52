"""A new source of negatives and a new loss: one file and one line of the registry each, and nothing finished reruns.

The files and lines are those that docs/extending.md shows, so that the page cannot promise more than the code keeps.
"""

import re

from paths import REPOSITORY


def blocks():
    """The blocks of Python of the page: source, its line, loss, its line."""
    page = (REPOSITORY / "docs/extending.md").read_text()
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def add_line(path, table, line):
    """Put a line at the end of a table of the registry."""
    text = path.read_text()
    end = text.index("\n}", text.index(f"\n{table} = ")) + 1
    path.write_text(text[:end] + line + text[end:])


def test_a_source_and_a_loss_are_one_file_and_one_line_each(world):
    library = world.folder / "workflow_scripts/teleport"
    source, source_line, loss, loss_line = blocks()
    (library / "negatives/sources/following.py").write_text(source)
    add_line(library / "settings/registry.py", "SOURCES", source_line)
    (library / "training/losses/hinge.py").write_text(loss)
    add_line(library / "settings/registry.py", "LOSSES", loss_line)
    counts, _ = world.would_run()
    assert set(counts) <= {"all"}, counts  # of what is finished nothing runs again

    # A system that recombines what there is: configuration alone.
    world.config["experiments"]["ours"] = {
        "label": "Ours",
        "negatives": {"counts": {"query": 4, "following": 3}},
        "training": {"loss": "hinge"},
        "episodes": [{}],
    }
    before = world.manifests()
    world.snakemake()
    made = {name: manifest for name, manifest in world.manifests().items() if name not in before}
    (merge,) = (manifest for name, manifest in made.items() if name.startswith("merge/"))
    assert merge["facts"]["drawn"] == {"query": 4 * 80, "following": 3 * 80}
    (train,) = (manifest for name, manifest in made.items() if name.startswith("train/"))
    assert train["settings"]["training"]["loss"] == "hinge" and train["facts"]["steps"] == 6
    assert "| Ours | 1 |" in (world.folder / "results/tables/main.md").read_text()

    # An edit of the new loss concerns the training that uses it, and what follows, alone.
    path = library / "training/losses/hinge.py"
    path.write_text(path.read_text().replace("MARGIN = 1.0", "MARGIN = 2.0"))
    counts, _ = world.would_run()
    assert counts["train"] == 1 and "merge" not in counts
