"""What the published tables are compared with."""

import pytest
import yaml


@pytest.fixture
def papers(shared):
    """The transcribed papers: {paper: {table: {columns, rows: [{system, group, values}]}}}."""
    return yaml.safe_load((shared / "reference/published_results.yaml").read_text())["papers"]
