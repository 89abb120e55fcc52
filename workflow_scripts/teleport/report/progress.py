"""How much of a plan is finished, by kind of stage and by experiment and seed: the same for terminal and page."""

from collections import Counter

SEED_COLUMNS = ["experiment", "seed", "episodes", "stages"]  # of `of_seed`


def by_kind(names, is_finished):
    """{kind: (finished stages, all stages)} of the stages `names` ("kind/key"), in their order."""
    planned = Counter(name.split("/")[0] for name in names)
    finished = Counter(name.split("/")[0] for name in names if is_finished(name))
    return {kind: (finished[kind], number) for kind, number in planned.items()}


def of_seed(label, seed, episodes, stages, is_finished):
    """[label, seed, "2 of 3" episodes, "29 of 32" stages] as text; episodes: names of the stages that each needs."""
    done = sum(all(map(is_finished, names)) for names in episodes)
    return [label, str(seed), f"{done} of {len(episodes)}", f"{sum(map(is_finished, stages))} of {len(stages)}"]
