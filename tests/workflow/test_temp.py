"""Why vectors are deleted by a rule and not by Snakemake's `temp()`."""

import subprocess
import sys

import pytest

SNAKEFILE = """
READERS = config.get("readers", "a b").split()

rule all:
    input: expand("{reader}.json", reader=READERS)

rule encode:
    output: manifest="manifest.json", vectors=temp("vectors.npy")
    shell: "touch {output}"

rule read:
    input: ancient("manifest.json"), ancient("vectors.npy")
    output: "{reader}.json"
    shell: "touch {output}"
"""


@pytest.mark.slow
def test_a_new_reader_of_temporary_vectors_reruns_every_earlier_reader(tmp_path):
    """A new split would search, merge and train again. When this fails, `temp()` may take delete_vectors' place."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE)

    def run(*arguments):
        command = [sys.executable, "-m", "snakemake", "--cores", "1", "--rerun-triggers", "params", "input", "code"]
        done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    run()
    assert not (tmp_path / "vectors.npy").exists() and "Nothing to be done" in run("-n")
    planned = run("-n", "--config", "readers=a b c")
    assert [planned.count(f"output: {reader}.json") for reader in "abc"] == [1, 1, 1]
