"""What the papers' command lines say beside what ours plan: a setting that differs has a row in docs/methods.md."""

import re
from fnmatch import fnmatch

import pytest
import yaml

from paths import REPOSITORY
from teleport.plan.plan import Plan

CONFIG = REPOSITORY / "config"
RELEASED = yaml.safe_load((REPOSITORY / "tests/plan/released_arguments.yaml").read_text())
# The files that make the experiments of a paper, after that of their collection; MS MARCO's ablations are ANCE-Tele's.
FILES = {
    "marco": [
        *(f"ablations/{name}" for name in ("alpha-beta", "bm25", "checkpoints", "continue-training", "duplicates")),
        *("ablations/negatives", "ablations/titles"),
        *(f"variants/marco-{name}" for name in ("ance", "star-adore", "rank-segments", "analysis", "table-3")),
        "variants/marco-adore-star",
    ],
    "marco-same-n": ["variants/marco-same-n", "variants/without-released"],
    "marco-episode-3": [
        *("ablations/negatives", "ablations/continue-training"),
        *("variants/marco-episode-3", "variants/without-released"),
    ],
    "nq": ["variants/nq-ance", "variants/qa-cocondenser"],
    "triviaqa": ["variants/triviaqa-ance", "variants/qa-cocondenser"],
    "marco-doc": ["variants/marco-doc-systems", "variants/marco-doc-dynamic"],
}
# Those of no paper: at another size, on other collections, or without experiments of their own.
OTHERS = {
    *(f"ablations/{name}" for name in ("analysis", "dynamic", "rank-segments", "recipes")),
    *(
        f"variants/{name}"
        for name in (
            "config-out-of-domain",
            "fewer-vectors",
            "in-batch-alone",
            "mined",
            "openqa-squad",
            "recipe",
            "systems-squad",
            "three-seeds",
        )
    ),
    *(f"variants/arms-{name}" for name in ("docstrings", "pilot", "whole", "words")),
    *(f"variants/draws-{name}" for name in ("cloud", "teachers")),
}
WEB_DRIVE = ("star", "adore-star")  # checkpoints that are on no hub: config/variants/marco-adore-star.yaml
# What every training has to name, because a setting that nobody looked up decides results too.
REQUIRED = {"encoder.title", "training.masks", "training.accumulate", "training.cycle_steps", "training.loss"}
REQUIRED |= {"training.optimizer", "training.learning_rate", "training.batch_queries"}
WITH_ANSWERS = ("nq", "triviaqa")  # there a passage with an answer is maybe no negative
# Losses over a query's own negatives alone: how a batch is divided then decides memory, and no gradient.
OWN_NEGATIVES = {"nll"}
ROWS = set(re.findall(r"^\| ([A-Z]?\d+) \|", (REPOSITORY / "docs/methods.md").read_text(), re.M))


@pytest.fixture(scope="module", params=FILES)
def planned(request, tmp_path_factory):
    """(name of a plan in FILES, the plan with all experiments of its papers)."""
    base = request.param if (CONFIG / f"{request.param}.yaml").is_file() else "marco"
    files = [CONFIG / f"{name}.yaml" for name in (base, *FILES[request.param])]
    folder = tmp_path_factory.mktemp("web-drive")
    for name in WEB_DRIVE:
        (folder / f"data/released/{name}").mkdir(parents=True)
        (folder / f"data/released/{name}/config.json").write_text('{"model_type": "roberta"}')
        (folder / f"data/released/{name}/pytorch_model.bin").write_bytes(b"weights")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return request.param, Plan.of_files(files)


def test_every_file_of_a_paper_is_planned_here():
    files = {
        f"{path.parent.name}/{path.stem}"
        for name in ("ablations", "variants")
        for path in CONFIG.glob(f"{name}/*.yaml")
    }
    planned = {file for of_plan in FILES.values() for file in of_plan}
    assert not planned & OTHERS and planned | OTHERS == files, "a new file belongs to FILES, or to OTHERS"


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


def required(configuration, trajectory, number, found):
    """The settings that a source has to name for episode `number` (from 0): REQUIRED, and what decides its negatives;
    found: its entry. Nobody released how rows with `unreleased` join their sources."""
    pool = trajectory.episodes[number + 1].pool
    sources = pool.settings.sources if pool else {}
    names = REQUIRED | ({"mining.anchor"} if "lookahead" in sources else set())
    names |= {"negatives.keep_duplicates"} if len(sources) > 1 and "unreleased" not in found else set()
    names |= {"negatives.remove"} if sources and configuration in WITH_ANSWERS else set()
    return names | ({"live.append_positives"} if trajectory.trains[number].settings.live else set())


def of_first_seed(plan):
    """The trajectories of experiments, and of checkpoints from elsewhere: one seed of each."""
    return [seeds[0] for seeds in plan.trajectories.values()]


def test_every_difference_from_a_released_command_line_has_a_row(planned):
    configuration, plan = planned
    wrong = []
    for trajectory in of_first_seed(plan):
        found = entry(configuration, trajectory.name)
        assert found, f"{configuration}: {trajectory.name} is missing in released_arguments.yaml"
        if found.get("unpublished"):  # no line says how its figures were made: docs/released.md
            assert trajectory.name in plan.config.external
            continue
        differing, numbers = {}, range(len(trajectory.trains)) or [None]
        for number in numbers:
            values = expected(found, number)
            if number is None:  # it is not trained
                values = {setting: value for setting, value in values.items() if setting.startswith("encoder.")}
            least = 10 if trajectory.trains else 4 if trajectory.name in plan.config.external else 6
            assert len(values) >= least, trajectory.name
            if trajectory.trains and (unnamed := required(configuration, trajectory, number, found) - values.keys()):
                wrong.append(f"{trajectory.name}: no source says {', '.join(sorted(unnamed))}")
            for setting, value in values.items():
                if setting == "training.accumulate" and values["training.loss"] in OWN_NEGATIVES:
                    continue
                if (have := ours(plan, trajectory, number, setting)) != value:
                    differing[setting] = f"{value!r} released, {have!r} here"
        owned = found.get("differs", {})
        wrong += [f"{trajectory.name}: {name}: {differing[name]}" for name in differing.keys() - owned.keys()]
        wrong += [f"{trajectory.name}: {name} does not differ any more" for name in owned.keys() - differing.keys()]
    assert not wrong, "\n".join(wrong)


def test_every_entry_is_of_an_experiment_and_every_row_is_there(planned):
    configuration, plan = planned
    names = [trajectory.name for trajectory in of_first_seed(plan)]
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
