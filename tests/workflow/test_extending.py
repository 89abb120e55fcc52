"""New sources, draws, filters, masks and losses: one file and one line of the registry each; nothing finished reruns.

The files and lines are those that docs/extending.md shows, so that the page cannot promise more than the code keeps.
"""

import re

import pytest

from paths import REPOSITORY

FILES = {  # in the order of the page: the file, and the table of its line
    "negatives/sources/following.py": "SOURCES",
    "negatives/draws/top.py": "DRAWS",
    "negatives/filters/score_cap.py": "FILTERS",
    "training/masks/other_positives.py": "MASKS",
    "training/losses/hinge.py": "LOSSES",
}


def extend(library):
    """Write the files and the lines of the page into a copy of the library."""
    page, registry = (REPOSITORY / "docs/extending.md").read_text(), library / "settings/registry.py"
    blocks = iter(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    for file, table in FILES.items():
        (library / file).write_text(next(blocks))
        text = registry.read_text()
        end = text.index("\n}", text.index(f"\n{table} = ")) + 1
        registry.write_text(text[:end] + next(blocks) + text[end:])
    assert next(blocks, None) is None


@pytest.mark.slow
def test_each_is_one_file_and_one_line(world):
    library = world.folder / "workflow_scripts/teleport"
    extend(library)
    counts, _ = world.would_run()
    assert set(counts) <= {"all"}, counts  # of what is finished nothing runs again

    # A system that recombines what there is: configuration alone.
    world.config["experiments"]["ours"] = {
        "label": "Ours",
        "negatives": {
            "counts": {"query": 4, "following": {"count": 3, "window": 5}},
            "draw": "top",
            "filters": {"score_cap": 1e9},
        },
        "training": {"loss": {"kind": "hinge", "margin": 0.5}, "masks": ["known_positives", "other_positives"]},
        "episodes": [{}],
    }
    before = world.manifests()
    world.snakemake()
    made = {name: manifest for name, manifest in world.manifests().items() if name not in before}
    (merge,) = (manifest for name, manifest in made.items() if name.startswith("merge/"))
    assert merge["facts"]["drawn"] == {"query": 4 * 80, "following": 3 * 80}
    assert merge["settings"]["sources"]["following"]["window"] == 5
    assert merge["facts"]["filters"]["dropped"] == {name: {"score_cap": 0} for name in ("query", "following")}
    (train,) = (manifest for name, manifest in made.items() if name.startswith("train/"))
    assert train["settings"]["training"]["loss"] == {"kind": "hinge", "margin": 0.5} and train["facts"]["steps"] == 6
    assert "| Ours | 1 |" in (world.folder / "results/tables/main.md").read_text()

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
        counts, _ = world.would_run()
        assert counts["train"] == 1 and "merge" not in counts
