"""The walk of one training step: few files, and `docs/extending.md` names them in its order."""

import importlib
import re

import pytest
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY


@pytest.mark.ci(0)
def test_a_step_goes_through_the_files_that_the_page_names_in_their_order():
    calls = importlib.import_module("step_walk").walk()
    files = list(dict.fromkeys(file for file, _ in calls))
    page = (REPOSITORY / "docs/extending.md").read_text()
    section = page[page.index("## One training step") :].split("\n## ")[0]
    assert files == re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE) and len(files) <= 14
