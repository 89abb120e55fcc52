"""Fixtures shared by all tests: the library on the path, and stages run in a temporary results folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from paths import SHARED  # noqa: E402
from stages import Stages  # noqa: E402

FIRST = {"slurm": 0, "workflow": 1}  # folders of the tests that take longest


@pytest.fixture
def stages(tmp_path):
    return Stages(tmp_path)


@pytest.fixture(scope="session")
def shared():
    """The folder of real collections and judgments beside the repository; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip("no folder `shared` beside the repository: real collections are not here")
    return SHARED


@pytest.hookimpl(tryfirst=True)  # before the plugin that reads the groups
def pytest_collection_modifyitems(items):
    """Workers share the tests by file; those of the finished toy workflow, and of the disturbed one, go together, so that
    each runs once.

    The long ones come first, so that the workers end at about the same time.
    """
    items.sort(key=lambda item: FIRST.get(item.path.parent.name, len(FIRST)))
    for item in items:
        group = "finished" if {"finished", "disturbed"} & set(item.fixturenames) else item.path.name
        item.add_marker(pytest.mark.xdist_group(group))
