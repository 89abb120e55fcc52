"""One finished toy workflow, shared by the tests of this folder; each takes a copy when it changes something."""

import pytest
from toy import finished  # noqa: F401


@pytest.fixture
def world(finished, tmp_path):  # noqa: F811
    """A copy of the finished world that a test may change."""
    return finished.copy(tmp_path / "world")
