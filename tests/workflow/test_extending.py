"""A new source of negatives and a new loss: one file and one line of the registry each, and nothing finished reruns.

docs/extending.md shows this file.
"""

SOURCE = '''
"""The last passages of the corpus, as negatives that nobody needs."""

import numpy as np

from teleport.negatives.pool import Items


def open_source(job, name, known):
    return Tail(job.settings.sources[name].flag, job.settings.episode, known, job.facts("collection")["num_passages"])


class Tail:
    """Every query has the last ten passages as its candidates."""

    def __init__(self, flag, episode, known, num_passages):
        self.flag, self.episode, self.known, self.num_passages = flag, episode, known, num_passages
        self.widths_Q = np.full(len(known), 10)

    def passages(self, first, last):
        return np.tile(np.arange(self.num_passages - 10, self.num_passages, dtype=np.int32), (last - first, 1))

    def candidates(self, first, last):
        rows = self.passages(first, last)
        return np.stack([~np.isin(row, self.known[query]) for query, row in enumerate(rows, first)])

    def take(self, first, last, slots_QN):
        passages_QN = np.take_along_axis(self.passages(first, last), slots_QN, axis=1)
        flags, episodes = (np.full(slots_QN.shape, n, np.uint8) for n in (self.flag, self.episode))
        ranks, scores = (np.zeros(slots_QN.shape, dtype) for dtype in (np.int16, np.float32))
        return Items(passages_QN, flags, episodes, ranks, scores)
'''
SOURCE_LINE = '    "tail": Source("teleport.negatives.sources.tail", 64),\n'

LOSS = '''
"""Hinge: a negative may come as close to the positive as a margin of 1."""


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    own_QN = scores_QP.gather(1, own_columns_QN)
    return (1 + own_QN - scores_QP.gather(1, positive_columns_Q[:, None])).clamp(min=0).mean()
'''
LOSS_LINE = '    "hinge": "teleport.training.losses.hinge",\n'


def add_line(path, after, line):
    """Put a line into a file, behind the one that begins with `after`."""
    text = path.read_text()
    begin = text.index(after)
    end = text.index("\n", begin) + 1
    path.write_text(text[:end] + line + text[end:])


def test_a_source_and_a_loss_are_one_file_and_one_line_each(world):
    library = world.folder / "workflow_scripts/teleport"
    (library / "negatives/sources/tail.py").write_text(SOURCE)
    (library / "training/losses/hinge.py").write_text(LOSS)
    add_line(library / "settings/registry.py", "SOURCES", SOURCE_LINE)
    add_line(library / "settings/registry.py", "LOSSES", LOSS_LINE)
    counts, _ = world.would_run()
    assert set(counts) <= {"all"}, counts  # of what is finished nothing runs again

    # A system that recombines what there is: configuration alone.
    world.config["experiments"]["tail"] = {
        "label": "Tail",
        "negatives": {"counts": {"query": 4, "tail": 3}},
        "training": {"loss": "hinge"},
        "episodes": [{}],
    }
    before = world.manifests()
    world.snakemake()
    made = {name: manifest for name, manifest in world.manifests().items() if name not in before}
    (merge,) = (manifest for name, manifest in made.items() if name.startswith("merge/"))
    assert merge["facts"]["drawn"]["tail"] == 3 * 80 and merge["facts"]["drawn"]["query"] == 4 * 80
    (train,) = (manifest for name, manifest in made.items() if name.startswith("train/"))
    assert train["settings"]["training"]["loss"] == "hinge" and train["facts"]["steps"] == 6
    assert "| Tail | 1 |" in (world.folder / "results/tables/main.md").read_text()

    # An edit of the new loss concerns the training that uses it, and what follows, alone.
    path = library / "training/losses/hinge.py"
    path.write_text(path.read_text().replace("1 + own_QN", "2 + own_QN"))
    counts, _ = world.would_run()
    assert counts["train"] == 1 and "merge" not in counts
