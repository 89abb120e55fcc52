"""A toy configuration of runs from elsewhere and judgments alone."""

import numpy as np
from toy import SPLITS, World


def runs_world(folder, labels):
    """A `World` with a drawn run per label, and judgments."""
    world, rng = World(folder), np.random.default_rng(0)
    World.copy_repository(folder)
    (folder / "qrels.txt").write_text("".join(f"q{n} 0 d{n} 1\n" for n in SPLITS["test"]))
    for at in range(len(labels)):
        lists = {n: rng.permutation([f"d{n}", *(f"x{i}" for i in range(9))]) for n in SPLITS["test"]}
        lines = (f"q{n} Q0 {p} {rank} {20 - rank} t\n" for n, of in lists.items() for rank, p in enumerate(of, 1))
        (folder / f"{at}.run").write_text("".join(lines))
    runs = {f"run-{at:02}": {"label": label, "runs": {"test": f"{at}.run"}} for at, label in enumerate(labels)}
    world.config = {
        "collection": {"source": "judgments", "splits": {"test": {"qrels": "qrels.txt"}}},
        "external": runs,
        "evaluation": {"splits": ["test"], "measures": ["RR@10", "R@5"], "significance": {"baseline": labels[0]}},
    }
    return world
