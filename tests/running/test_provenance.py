"""What a commit of this repository has."""

import subprocess

import pytest

from paths import REPOSITORY
from teleport.running.provenance import not_in_commit


def test_a_file_that_a_commit_lacks_is_found():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, text=True, capture_output=True)
    if head.returncode:
        pytest.skip("this copy of the repository is in no git")
    files = "config/config.yaml", "config/nobody-has-this.yaml", "/elsewhere/config.yaml"
    assert not_in_commit(head.stdout.strip(), files) == list(files[1:])
    assert not_in_commit(40 * "0", files) == [], "of a commit that git does not know nothing is said"
