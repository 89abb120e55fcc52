"""The way of a setting: which files of the library see alpha, from YAML to the count that a pool is told."""

import yaml

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.running.code import LIBRARY
from teleport.settings.negatives import Negatives
from teleport.settings.read import load_files
from walk import files_that_hold


def has_alpha(value):
    """Whether a value is the settings of negatives, as they stand in YAML or typed."""
    return isinstance(value, Negatives) or (isinstance(value, dict) and value.get("alpha") == 0.25)


MERGED = {"settings/read.py"}  # as a part of a whole configuration
BASE = {"settings/section.py"}  # what all settings are, which knows none of them
DRAWN = {"negatives/merge.py", "negatives/draw.py", "negatives/draws/uniform.py"}  # they see a count of each source


def test_alpha_passes_at_most_eight_files_from_yaml_to_a_drawn_slot(tmp_path):
    raw = yaml.safe_load((REPOSITORY / "config/config.yaml").read_text())
    raw["negatives"] = {"alpha": 0.25}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(raw))
    seen = files_that_hold(has_alpha, lambda: Plan(*load_files([path])))
    assert "settings/negatives.py" in seen and "plan/counts.py" in seen, "not vacuous"
    passed = (seen - BASE) | MERGED | DRAWN
    assert len(passed) <= 8, passed
    way = (REPOSITORY / "docs/extending.md").read_text().partition("**`alpha`**")[2].partition("follows it)")[0]
    assert all(f"`{file}`" in way and (LIBRARY / file).is_file() for file in passed)
