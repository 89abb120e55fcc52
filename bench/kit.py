"""What a GPU machine without a network needs, in one file: this commit, wheels, and a checkpoint to be drawn there.

    python bench/kit.py [results/kit.tar.xz]    # or: make kit

On the other side `tar xf kit.tar.xz && kit/run.sh` makes an environment in kit/ on top of the torch that is there (2.11
or newer, Python 3.11 or 3.12), installs the packed wheels alone, asks the doctor and runs the campaign.

The packages are those that the GPU's work loads; without Snakemake, numba, faiss and scipy, which alone are larger than
the kit may be, no workflow runs there and the campaign leaves out BM25 and PQ. The embedded checkpoint is too large as
well: its tokenizer goes along, and weights of its form are drawn there, which is as good for everything but accuracy.
Wheels lie unpacked in it, of two with the same file the second as a link, for so they compress to half.
"""

import argparse
import hashlib
import io
import lzma
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from rounds import REPOSITORY
from teleport.encoder.source import folder_in_package
from teleport.running.files import part_of
from texts import PACKAGE

PYTHONS, MOST_BYTES = ("3.11", "3.12"), 60e6
PLATFORMS = "manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"
LIBRARIES = "numpy pyarrow pydantic pydantic_core annotated-types typing-inspection typing_extensions PyYAML tqdm"
OF_TRANSFORMERS = "transformers tokenizers safetensors regex packaging filelock fsspec huggingface_hub click httpx2"
OF_TRANSFORMERS += " httpcore2 h11 anyio idna truststore certifi typer shellingham rich markdown-it-py mdurl"
OTHERS = "ijson annotated-doc Pygments pytest iniconfig pluggy ir_measures"
OTHERS += " pytrec_eval-terrier threadpoolctl Jinja2 MarkupSafe"
PACKED = f"{LIBRARIES} {OF_TRANSFORMERS} {OTHERS}".split()
LEFT_OUT = re.compile("/tests/|/include/|flight|/$")  # of wheels: nothing loads Arrow's server, the largest of these
COMPRESSION = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**26}]


def pins():
    """The lines of the lock for the packed packages."""
    lines = (REPOSITORY / "requirements.lock").read_text().splitlines()
    locked = {line.partition("==")[0].lower(): line for line in lines if "==" in line}
    return [locked[name.lower()] for name in PACKED]


def download(folder):
    """Fetch the wheels of the lock for both Pythons into `folder`, by pip and the index that it is set to."""
    for python in PYTHONS:
        target = ["--python-version", python, "--implementation", "cp"]
        target += [word for abi in (f"cp{python.replace('.', '')}", "abi3", "none") for word in ("--abi", abi)]
        target += [word for platform in PLATFORMS for word in ("--platform", platform)]
        options = ["-qq", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--dest", folder]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, *target, *pins()], check=True)


def add(archive, name, content, mode=0o644):
    """Write a file of `content` (bytes) into the archive; owner and time are the same in every kit."""
    entry = tarfile.TarInfo(f"kit/{name}")
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def add_wheels(archive, folder):
    """The files of all wheels below wheels/NAME.whl/, those that are there already as hard links. By their names within
    a wheel, as those of two Pythons differ little: side by side they compress together."""
    first, wheels = {}, [zipfile.ZipFile(path) for path in sorted(Path(folder).glob("*.whl"))]
    members = [(name, wheel) for wheel in wheels for name in wheel.namelist() if not LEFT_OUT.search(name)]
    for name, wheel in sorted(members, key=lambda member: member[0]):
        content, place = wheel.read(name), f"wheels/{Path(wheel.filename).name}/{name}"
        if (same := first.setdefault(hashlib.sha256(content).digest(), place)) == place:
            add(archive, place, content)
        else:
            entry = tarfile.TarInfo(f"kit/{place}")
            entry.type, entry.linkname = tarfile.LNKTYPE, f"kit/{same}"
            archive.addfile(entry)


def add_repository(archive):
    """The files of HEAD below repository/, and its commit, as there will be no git."""
    made = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(made)) as files:
        for entry in (entry for entry in files if entry.isfile()):
            add(archive, f"repository/{entry.name}", files.extractfile(entry).read(), entry.mode)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True).stdout
    add(archive, "COMMIT", commit)


def make_kit(output):
    """Write the kit; returns its size in bytes."""
    checkpoint = folder_in_package(PACKAGE)
    with tempfile.TemporaryDirectory() as folder, part_of(output) as part:
        download(folder)
        with lzma.open(part, "w", filters=COMPRESSION) as file, tarfile.open(fileobj=file, mode="w|") as archive:
            for name in ("run.sh", "prepare.py"):
                add(archive, name, (REPOSITORY / "bench/in_kit" / name).read_bytes(), 0o755)
            add_repository(archive)
            for path in sorted(path for path in checkpoint.rglob("*") if path.suffix in (".json", ".txt")):
                add(archive, f"checkpoint/{PACKAGE}/model/{path.relative_to(checkpoint)}", path.read_bytes())
            add(archive, f"checkpoint/{PACKAGE}/__init__.py", b"")
            add_wheels(archive, folder)
        os.replace(part, output)
    return output.stat().st_size


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", nargs="?", type=Path, default=Path("results/kit.tar.xz"), help="the file to write")
    output = parser.parse_args(arguments).output
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that wheels and the half of a kit go
    print("fetching wheels, then compressing: some minutes of one core", flush=True)
    size = make_kit(output)
    print(f"{output}: {size / 1e6:.1f} MB. There: tar xf {output.name} && kit/run.sh")
    if size > MOST_BYTES:
        sys.exit(f"error: that is more than {MOST_BYTES / 1e6:.0f} MB: leave packages out of PACKED in bench/kit.py")


if __name__ == "__main__":
    main()
