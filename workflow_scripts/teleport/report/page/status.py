"""How far the stages of the configuration are: by kind, by experiment and seed, and which took several attempts.

What runs and what is left by the forecast is only known to who looks while it runs: the specification then has it under
`status`, as commands/status.py describes it. The page that the workflow makes at its end has nothing of that.
"""

from collections import Counter


def status_of(reader, spec):
    """{kinds: [[kind, finished, planned]], seeds: [[experiment, seed, finished episodes, episodes, finished stages,
    stages]], attempts: [[stage, label, attempts]], seen: the specification's `status` or None} (plain JSON)."""
    planned = Counter(name.split("/")[0] for name in spec["stages"])
    finished = [name for name in spec["stages"] if reader.finished(name)]
    done = Counter(name.split("/")[0] for name in finished)
    attempts = {name: reader.artefact(name).manifest.get("provenance", {}).get("attempt", 1) for name in finished}
    return {
        "kinds": [[kind, done[kind], number] for kind, number in planned.items()],
        "seeds": [[e["label"], *seed_status(reader, seed)] for e in spec["experiments"] for seed in e["seeds"]],
        "attempts": [[name, spec["stages"][name]["label"], number] for name, number in attempts.items() if number > 1],
        "seen": spec.get("status"),
    }


def seed_status(reader, trajectory):
    """(seed, finished episodes, episodes, finished stages, stages) of an experiment under one seed."""
    stages = {row["stage"] for row in trajectory["rows"]}
    pairs = zip(trajectory["episodes"], trajectory["runs"][1:], strict=True)
    needed = [[episode["train"], *runs.values()] for episode, runs in pairs]
    episodes = sum(all(map(reader.finished, names)) for names in needed)
    return trajectory["seed"], episodes, len(needed), sum(map(reader.finished, stages)), len(stages)
