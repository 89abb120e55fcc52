"""The promises of the list are kept by lines that are there, and a few of them are broken in a copy."""

import random

import mutants
import pytest
from mutants import LIVING, MUTANTS, REPOSITORY, text_of, try_mutants

pytestmark = pytest.mark.faults
SLICE = 4


def test_every_line_of_the_list_is_there():
    for mutant in MUTANTS:
        text_of(mutant)  # raises where it is not, or more than once
        assert mutant.old != mutant.new
        assert all((REPOSITORY / "tests" / name.partition("::")[0]).exists() for name in mutant.tests.split())
    assert len({mutant.promise for mutant in MUTANTS}) == len(MUTANTS) >= 40 and len(LIVING) <= len(MUTANTS) - 38


def test_the_page_has_every_mutant():
    rows = (REPOSITORY / "docs/measured/mutants.md").read_text().splitlines()
    promises = [row.split(" | ")[0].removeprefix("| ") for row in rows if row.startswith("| ") and " | `" in row]
    assert sorted(promises) == sorted(mutant.promise for mutant in MUTANTS), "make test-mutants"


@pytest.mark.slow
def test_tests_kill_a_slice_of_the_mutants():
    quick = [mutant for mutant in MUTANTS if mutant.tests.startswith("running/test_") and mutant.promise not in LIVING]
    quick = [mutant for mutant in quick if mutant.file != "running/devices.py"]  # which are killed when patience ends
    for mutant, dead, _ in try_mutants(random.Random(0).sample(quick, SLICE), processes=1):
        assert dead, mutant.promise


def test_tests_that_fail_anyway_kill_nothing(monkeypatch):
    monkeypatch.setattr(mutants, "status_of", lambda tests, folder: (1, 0.0))
    with pytest.raises(RuntimeError, match=r"^running/.*: fail without a mutant, too"):
        try_mutants([mutant for mutant in MUTANTS if mutant.tests.startswith("running/")][:1], processes=1)
