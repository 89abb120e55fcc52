"""Miniatures of decoders through the whole workflow: evaluated, mined with, trained by LoRA, exported merged. That they
are killed and resumed to the same bits is in tests/training/test_lora.py."""

import re
import subprocess
import sys

import pytest
from toy import World

from encoder_world import source_folder

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "llama"])
def test_a_decoder_is_evaluated_mined_with_trained_and_exported(tmp_path, family):
    """The export compares itself with transformers and sentence-transformers, to 1e-5, and with the weights before."""
    world = World.create(tmp_path / "world")
    source_folder(world.folder / "data/decoder", family)
    world.config["encoder"] |= {"checkpoint": {"folder": "data/decoder"}, "pooling": "last", "title": "space"}
    world.config["encoder"]["lora"] = {"rank": 4, "alpha": 8}
    world.config["episodes"] = [{"training": {"stop_after_steps": 4}}, {}]
    world.snakemake()
    kinds = [name.split("/")[0] for name in world.manifests()]
    assert kinds.count("train") == kinds.count("merge") == 2 and kinds.count("evaluate") == 4
    table = (world.folder / "results/tables/main.md").read_text()
    assert re.findall(r"^\| ([\w-]+) \| (\d) \|", table, re.M) == [
        *(("BM25", "0"), ("Zero-shot", "0"), ("ANCE-Tele", "1"), ("ANCE-Tele", "2"))
    ]
    stage = "results/experiments/tele/episode-2/train"
    command = [sys.executable, "workflow_scripts/manage.py", "export", stage, "out"]
    said = subprocess.run(command, cwd=world.folder, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    checked = r"Checked: transformers and sentence-transformers give \d+ texts the vectors of the stage"
    assert re.search(checked, said.stdout) and (world.folder / "out/model.safetensors").is_file()
    assert (world.folder / "out/adapter/adapter_model.safetensors").is_file()
