"""What the papers' command lines say beside what ours plan: a setting that differs has a row in docs/divergences.md."""

import re
from fnmatch import fnmatch

import pytest
import yaml

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.settings.read import load, merged

CONFIG = REPOSITORY / "config"
RELEASED = yaml.safe_load((REPOSITORY / "tests/plan/released_arguments.yaml").read_text())
# The files of a paper's configuration that make its experiments; MS MARCO's ablations are ANCE-Tele's.
FILES = {
    "marco": [
        *(f"ablations/{name}" for name in ("alpha-beta", "bm25", "checkpoints", "continue-training", "duplicates")),
        *("ablations/negatives", "ablations/titles"),
        *(f"variants/marco-{name}" for name in ("ance", "star-adore", "rank-segments", "analysis")),
    ],
    "nq": ["variants/nq-ance"],
    "triviaqa": ["variants/triviaqa-ance"],
    "marco-doc": ["variants/marco-doc-systems", "variants/marco-doc-dynamic"],
}
ROWS = set(re.findall(r"^\| ([A-Z]?\d+) \|", (REPOSITORY / "docs/divergences.md").read_text(), re.M))


@pytest.fixture(scope="module", params=FILES)
def planned(request):
    """(name of a configuration, its plan with all experiments of its papers)."""
    raw, files = {}, [CONFIG / f"{name}.yaml" for name in (request.param, *FILES[request.param])]
    for file in files:
        raw = merged(raw, yaml.safe_load(file.read_text()))
    return request.param, Plan(*load(raw, files))


def entry(configuration, name):
    """The entry of an experiment, with what it takes from another one; the first pattern that fits it."""
    entries = RELEASED["experiments"][configuration]
    found = entries.get(name) or next((entries[pattern] for pattern in entries if fnmatch(name, pattern)), None)
    if not found or "like" not in found:
        return found
    other = entry(configuration, found["like"])
    both = {key: other.get(key, {}) | found.get(key, {}) for key in ("changes", "differs")}
    return other | found | both


def expected(found, number):
    """{setting: value} of episode `number` (from 0) as released or published."""
    of_episode = found["episodes"][number] if "episodes" in found else []
    values = {}
    for source in (*found["sources"], *of_episode):
        for argument in RELEASED["sources"][source]["arguments"].values():
            values[argument["setting"]] = argument.get("ours", argument["value"])
    return values | {key: value for key, value in found.get("changes", {}).items() if key != "of"}


def ours(plan, trajectory, number, setting):
    """What our plan has for a setting in episode `number` (from 0), or at the start where it has none."""
    part, name = setting.split(".") if "." in setting else (setting, None)
    episode = trajectory.episodes[number + 1] if len(trajectory.episodes) > 1 else None
    if part == "encoder":
        encoder = plan.experiments[trajectory.name].encoder
        return encoder.checkpoint.hub if name == "checkpoint" else getattr(encoder, name)
    if part == "steps":  # of the whole experiment
        return sum(train.settings.training.stop_after_steps for train in trajectory.trains)
    if part == "counts":
        draws = episode.pool.settings.sources if episode.pool else {}
        return draws[name].count if name in draws else None
    if part == "live":
        return getattr(episode.train.settings.live, name, None)
    if setting == "training.start_from":
        start = episode.settings.training.start_from
        return start if isinstance(start, str) else start.model_dump()
    if part == "loss":
        return getattr(episode.settings.training.loss, name, None)
    if part == "training":
        value = getattr(episode.train.settings.training, name)
        return {"loss": lambda: value.kind, "masks": lambda: [mask.kind for mask in value]}.get(name, lambda: value)()
    return getattr(getattr(episode.settings, part), name)


def trained(plan):
    """The trajectories of experiments, without checkpoints from elsewhere: one seed of each."""
    return [seeds[0] for name, seeds in plan.trajectories.items() if name not in plan.config.external]


def test_every_difference_from_a_released_command_line_has_a_row(planned):
    configuration, plan = planned
    wrong = []
    for trajectory in trained(plan):
        found = entry(configuration, trajectory.name)
        assert found, f"{configuration}: {trajectory.name} is missing in released_arguments.yaml"
        differing, numbers = {}, range(len(trajectory.trains)) or [None]
        for number in numbers:
            values = expected(found, number)
            if number is None:  # it is not trained
                values = {setting: value for setting, value in values.items() if setting.startswith("encoder.")}
            assert len(values) > (10 if trajectory.trains else 5), trajectory.name
            for setting, value in values.items():
                if (have := ours(plan, trajectory, number, setting)) != value:
                    differing[setting] = f"{value!r} released, {have!r} here"
        owned = found.get("differs", {})
        wrong += [f"{trajectory.name}: {name}: {differing[name]}" for name in differing.keys() - owned.keys()]
        wrong += [f"{trajectory.name}: {name} does not differ any more" for name in owned.keys() - differing.keys()]
    assert not wrong, "\n".join(wrong)


def test_every_entry_is_of_an_experiment_and_every_row_is_there(planned):
    configuration, plan = planned
    names = [trajectory.name for trajectory in trained(plan)]
    for pattern in RELEASED["experiments"][configuration]:
        assert any(fnmatch(name, pattern) for name in names), pattern
        found = entry(configuration, pattern)
        rows = {*found.get("differs", {}).values(), *([found["unreleased"]] if "unreleased" in found else [])}
        assert {str(row) for row in rows} <= ROWS, (pattern, rows)


def test_every_source_says_where_it_is_from():
    used = str(RELEASED["experiments"])
    for name, source in RELEASED["sources"].items():
        assert source.get("of") or RELEASED["repositories"][source["repository"]]["commit"] and source["file"], name
        assert f"'{name}'" in used, f"{name} is of no experiment"
        for argument in source["arguments"].values():
            assert argument.keys() <= {"line", "value", "setting", "ours"} >= {"value", "setting"}, (name, argument)
