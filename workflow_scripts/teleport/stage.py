"""What every stage shares: checked inputs, atomic outputs, resume state, manifest, progress.

A stage is one function `run(job) -> facts` of its settings, its input artefacts and its code. It writes files
through `job.output`, and `run_stage` publishes them: hash, rename, and last of all the manifest, which is the only
file that other stages and Snakemake wait for. A stage that dies leaves no manifest and no half-written artefact
under its final name.
"""

import hashlib
import json
import logging
import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

STAGES = Path("results/stages")
RESUME = Path("results/resume")
SHARDS = Path("results/shards")
PRUNE = "`make prune CONFIG=FILES` lists stages that neither this configuration nor a finished result uses"
LOCKS = Path("results/locks")
MANIFEST = "manifest.json"
# Files up to this size are hashed whenever they are read; larger ones only by `make verify`, because hashing an
# index of 27 GB at every use would cost more than the search.
ALWAYS_HASHED_BYTES = 64 * 2**20
PROGRESS_SECONDS = 10.0

log = logging.getLogger("teleport")


def sha256_file(path):
    """Hex SHA-256 of one file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path, value):
    """Write `value` as JSON under a temporary name, then rename: a reader sees the old file or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(part, path)


def files_below(path):
    """The files of an artefact: itself, or all files below it when it is a folder (sorted)."""
    path = Path(path)
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def read_manifest(folder, missing, remedy):
    """The manifest in a folder (dict). Raises ValueError when there is none (`missing` says why) or a torn one."""
    path = folder / MANIFEST
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: {missing}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}): torn or edited. {remedy}") from None


def remake(kind, key):
    """The sentence that says how a finished stage is made anew. Snakemake does not miss what only stages have read."""
    manifest = STAGES / kind / key / MANIFEST
    return f"Run the workflow again with --forcerun {manifest}: this stage and what follows are made anew."


class Artefact:
    """A finished stage as its readers see it: its folder and its manifest.

    Raises ValueError when the manifest is missing, unreadable, or belongs to another stage.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.remedy = remake(self.folder.parent.name, self.folder.name)
        self.manifest = read_manifest(self.folder, f"not finished, or deleted. {self.remedy}", self.remedy)
        found = (self.manifest.get("kind"), self.manifest.get("key"))
        if found != (self.folder.parent.name, self.folder.name):
            raise ValueError(f"{self.folder / MANIFEST} describes {found[0]}/{found[1]}, another stage. {self.remedy}")

    @property
    def facts(self):
        """The counts and measurements that the stage returned (dict)."""
        return self.manifest["facts"]

    def path(self, name, full=False):
        """The path of file or folder `name` of this artefact, after checking it against the manifest.

        Sizes are always compared; SHA-256 for files up to 64 MiB, or for all of them with `full`.
        Raises ValueError naming the file that is missing, torn or edited.
        """
        listed = {n: f for n, f in self.manifest["files"].items() if n == name or n.startswith(name + "/")}
        if not listed:
            raise ValueError(
                f"{self.folder} has no artefact {name!r}; its manifest lists {sorted(self.manifest['files'])}."
            )
        for file_name, expected in listed.items():
            check_file(self.folder / file_name, expected, full, self.remedy)
        return self.folder / name

    def verify(self):
        """Check every file of the artefact by its full SHA-256. Raises ValueError naming the first bad one."""
        for name in self.manifest["files"]:
            self.path(name, full=True)

    @property
    def digest(self):
        """One SHA-256 over the names and contents of all files: equal digests mean equal artefacts."""
        lines = "".join(f"{n} {f['sha256']}\n" for n, f in sorted(self.manifest["files"].items()))
        return hashlib.sha256(lines.encode()).hexdigest()


def file_entry(path):
    """What a manifest says of a file: `{bytes, sha256}`."""
    return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}


def check_file(path, expected, full, remedy):
    """Compare a file with its manifest entry `{bytes, sha256}`. Raises ValueError that names file and remedy."""
    if not path.is_file():
        raise ValueError(f"{path} is missing although its manifest lists it. {remedy}")
    size = path.stat().st_size
    if size != expected["bytes"]:
        raise ValueError(f"{path} has {size} bytes, its manifest says {expected['bytes']}: torn or edited. {remedy}")
    if (full or size <= ALWAYS_HASHED_BYTES) and sha256_file(path) != expected["sha256"]:
        raise ValueError(f"{path} does not have the SHA-256 of its manifest: torn or edited. {remedy}")


class Progress:
    """Plain log lines with step, rate and ETA, at most one every ten seconds, and a small JSON file for `status`."""

    def __init__(self, path):
        self.path = path
        self.started = self.last = None

    def __call__(self, done, total, unit):
        """Report `done` of `total` units, for example `progress(128, 5000, "passages")`."""
        now = time.monotonic()
        if self.started is None:
            self.started, self.first = now, done
        if self.last is not None and now - self.last < PROGRESS_SECONDS and done < total:
            return
        self.last = now
        rate = (done - self.first) / max(now - self.started, 1e-9)
        eta = f"{(total - done) / rate:.0f} s left" if rate > 0 else "rate not known yet"
        log.info("%d/%d %s, %.1f %s/s, %s", done, total, unit, rate, unit, eta)
        write_json(self.path, {"done": done, "total": total, "unit": unit, "rate": rate, "time": time.time()})


class Job:
    """One run of one stage: settings, checked inputs, output paths, resume folder.

    `settings` are attributes (`job.settings.depth`). `save_every` is how many seconds of work a kill may cost.
    `places` (dict) say where things are fetched from; they decide no result and are not in the manifest.
    `shards`: how many shards the stage joins, 1 for none. `shard`: "2-of-4" when the job makes only that shard, whose
    folder is then `resume`. `compile`: whether torch.compile may prepare the encoder.
    """

    def __init__(self, spec, threads=1, save_every=60.0, root=Path(".")):
        self.kind, self.key, self.code = spec["kind"], spec["key"], spec["code"]
        self.raw_settings = spec["settings"]
        self.places = spec.get("places", {})
        self.settings = namespace(spec["settings"])
        self.threads, self.save_every = threads, save_every
        self.folder = root / STAGES / self.kind / self.key
        self.shard, self.shards = spec.get("shard"), spec.get("shards", 1)
        self.compile = spec.get("compile", False)
        self.shards_folder = root / SHARDS / self.kind / self.key
        self.resume = self.shards_folder / self.shard if self.shard else root / RESUME / self.kind / self.key
        self.lock = root / LOCKS / self.kind / (f"{self.key}.{self.shard}" if self.shard else self.key)
        self.inputs = {role: Artefact(root / STAGES / name) for role, name in spec["inputs"].items()}
        self.outputs = {}
        self.progress = Progress(self.resume / "progress.json")

    def input(self, role, name):
        """The checked path of file or folder `name` made by the upstream stage in `role`."""
        return self.inputs[role].path(name)

    def facts(self, role):
        """What the upstream stage in `role` reported (dict)."""
        return self.inputs[role].facts

    def output(self, name):
        """Where to write the artefact `name` (file or folder); it gets its final name when the stage succeeds."""
        part = self.folder / f"{name}.part"
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        self.outputs[name] = part
        return part

    def stamp(self):
        """What resume state depends on besides the settings in the key: the code and the bytes of the inputs."""
        return {"code": self.code, "inputs": {role: a.digest for role, a in sorted(self.inputs.items())}}

    def open_resume(self):
        """Keep resume state made by the same code from the same inputs; throw away any other."""
        path = self.resume / "stamp.json"
        try:
            same = json.loads(path.read_text()) == self.stamp()
        except (FileNotFoundError, json.JSONDecodeError):
            same = False
        if not same:
            shutil.rmtree(self.resume, ignore_errors=True)
            write_json(path, self.stamp())
        return same

    def publish(self):
        """Give every output its final name; returns the manifest's `files` ({name: {bytes, sha256}})."""
        files = {}
        for name, part in sorted(self.outputs.items()):
            if not part.exists():
                raise RuntimeError(f"stage {self.kind} announced the output {name!r} but did not write it")
            final = self.folder / name
            if final.is_dir():
                shutil.rmtree(final)
            os.replace(part, final)
            for file in files_below(final):
                files[str(file.relative_to(self.folder))] = file_entry(file)
        return files


def namespace(value):
    """JSON objects as attributes, lists and scalars as they are."""
    return json.loads(json.dumps(value), object_hook=lambda pairs: SimpleNamespace(**pairs))


def require_free_space(folder, num_bytes):
    """Raise ValueError when the disk of `folder` has less than `num_bytes` free: say so before hours of work."""
    existing = next(p for p in [Path(folder).resolve(), *Path(folder).resolve().parents] if p.exists())
    free = shutil.disk_usage(existing).free
    if free < num_bytes:
        raise ValueError(
            f"{folder} needs {num_bytes / 1e9:.2f} GB, its disk has {free / 1e9:.2f} GB free: "
            f"free some space ({PRUNE}) and run again."
        )


def configure_logging():
    """Log lines with time on stderr; Snakemake redirects them into the stage's log file."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
