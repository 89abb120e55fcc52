"""The environment of a kit, once: python prepare.py KIT. Run by run.sh, with the Python that has torch."""

import importlib.util
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

DRAW = """
import sys, torch
from transformers import AutoConfig, AutoModel, utils
utils.logging.disable_progress_bar()
torch.manual_seed(0)
AutoModel.from_config(AutoConfig.from_pretrained(sys.argv[1])).save_pretrained(sys.argv[1])
"""


def pack(folder, wheels):
    """Make a wheel again of its unpacked files; returns its path."""
    made = wheels / folder.name
    if not made.is_file():
        part = made.with_suffix(".part")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED, strict_timestamps=False) as file:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                file.write(path, path.relative_to(folder))
        os.replace(part, made)
    return made


def fits(name):
    """Whether a wheel is for this Python."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return f"-{tag}-" in name or "-abi3-" in name or "-none-any" in name


def main(kit):
    env, ready = kit / "env", kit / "env" / "ready"
    if ready.is_file():
        return
    print("preparing the environment in", env, flush=True)
    venv.create(env, system_site_packages=True, with_pip=True, clear=True)
    python = env / "bin" / "python"
    packages = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = Path(subprocess.check_output([python, "-c", packages], text=True).strip())
    # The torch that is here may lie in an environment, of which this one does not see the packages.
    of_torch = Path(importlib.util.find_spec("torch").origin).parents[1]
    (site / "kit.pth").write_text(f"{kit / 'checkpoint'}\n{of_torch}\n")
    (kit / "packed").mkdir(exist_ok=True)
    wheels = [pack(folder, kit / "packed") for folder in sorted((kit / "wheels").iterdir()) if fits(folder.name)]
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--ignore-installed",
    ]
    subprocess.run([python, "-m", "pip", "install", *options, *wheels], check=True)
    for wheel in wheels:
        wheel.unlink()
    [config] = (kit / "checkpoint").glob("*/model/config.json")
    subprocess.run([python, "-c", DRAW, config.parent], check=True)
    ready.touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
