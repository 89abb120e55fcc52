"""Files that a reader sees whole or not at all; their digests, disk space, and system errors with files."""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from threading import get_ident

from teleport.refusal import Refusal

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")  # endings of names
PRUNE = "`teleport prune FILES` lists unused stages"
MORE_ROOM = f"free some disk space ({PRUNE}), or raise the limit on file sizes (`ulimit -f`, quotas)"
NO_ROOM = ("no room left on the disk", f"{MORE_ROOM}, and run again: the run continues if it can")
NO_ACCESS = (
    "access is refused",
    "make the named file readable, and results and data/downloads writable, then run again",
)
FAULT = "check the disk (dmesg), and run again on a sound disk: the run continues if it can"
FAILING = ("the disk reports a fault", FAULT)
NO_MEMORY = (
    "there is not enough memory",
    "run fewer jobs at once (--cores); `teleport forecast` shows the memory of each",
)
TOO_LONG = ("a name is too long for the file system", "give a shorter one")
MOUNTED = ("a folder is a mount point or in use", "give the path of a new folder, and run again")
OTHER_KIND = ("a file is where a folder must be, or the other way round", "move it away, and run again")
OF_THE_SYSTEM = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), NO_ROOM)
OF_THE_SYSTEM |= (
    dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), NO_ACCESS)
    | {errno.EIO: FAILING, errno.ENOMEM: NO_MEMORY, errno.ENAMETOOLONG: TOO_LONG}
    | dict.fromkeys((errno.EBUSY, errno.EXDEV), MOUNTED)
    | dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP), OTHER_KIND)
)


def sha256_file(path):
    """Hex SHA-256 of the bytes of one file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_planned(digests):
    """Raise Refusal for a file that has changed or is gone since it was planned: a reader may do without it, or read
    another one, such as NAME.gz. digests: {path: SHA-256}"""
    for path, planned in digests.items():
        now = f"SHA-256 {sha256_file(path)}" if os.path.isfile(path) else "no such file"
        if now != f"SHA-256 {planned}":
            raise Refusal(f"{path} has changed since it was planned ({now}). Run the workflow again.")


def require_none_new(digests, read):
    """Raise Refusal for a file that was added since others were planned. digests: as for `require_planned`, of all that
    were there; {}: none was planned; read: the paths about to be read"""
    if new := [path for path in read if digests and os.path.exists(path) and str(path) not in digests]:
        raise Refusal(f"{new[0]} was added since the collection was planned. Run the workflow again.")


def sync(path):
    """Force the bytes of a file to the disk, so that they survive a power failure."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def share(path):
    """Give a file the permissions of new files: those of safetensors and temporary files are for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    Path(path).chmod(0o666 & ~mask)


@contextmanager
def part_of(path):
    """Yield the name (Path) under which to make a file or folder before renaming it to `path`; makes the folders above.

    The name is this process's own: if several processes write one file, the last whole file stays. A file left under
    the name is removed at the end; files that killed processes of this machine left for `path` are removed first.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_parts(path)
    part = path.with_name(f"{path.name}.{os.uname().nodename}-{os.getpid()}-{get_ident()}.part")
    try:
        yield part
    finally:
        try:
            remove(part)
        except (KeyboardInterrupt, SystemExit):  # even at Ctrl-C during the removal: a command ends by SystemExit
            remove(part)
            raise


def remove_parts(path):
    """Remove files that killed processes of this machine left for `path` under names of `part_of`."""
    for part in path.parent.glob(f"{escape(path.name)}.*.part"):
        if is_left(part, path.name):
            remove(part)


def is_left(part, name):
    """Whether a process of this machine that has ended left `part` (Path) for a file or folder called `name`."""
    start = f"{name}.{os.uname().nodename}-"
    return part.name.startswith(start) and not lives(part.name.removeprefix(start).partition("-")[0])


def lives(process):
    """Whether a process of this machine lives, by its id as text. /proc may hide those of other users."""
    try:
        os.kill(int(process), 0)  # sends nothing
    except (OSError, ValueError, OverflowError) as error:
        return isinstance(error, PermissionError)
    return True


def remove(path):
    """Remove a file, a link or a folder, if it exists; files of a folder that cannot be removed stay."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def require_output(path, folder=False, begins=b"", new=False):
    """Raise Refusal unless `path`, which a person names, may become a file of ours (folder: a folder).

    An existing `path` must be a regular file, which is replaced (new: an empty file; folder: an empty folder): a rename
    would replace anything, even /dev/null, and the target of a link may belong to a person. begins: the first bytes of
    the file unless it is empty, so that a slip replaces no configuration. The folder above must be writable. A file
    that is called x.gz would not be one.
    """
    path = Path(path)
    if not folder and path.suffix.lower() in COMPRESSED:
        raise Refusal(f"{path}: files are written uncompressed. Leave {path.suffix} out, and compress it afterwards.")
    try:
        mode = path.lstat().st_mode if os.path.lexists(path) else None
        if mode is not None and not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
            raise Refusal(f"{path} is {kind_of(mode)}, which is never overwritten. Give another path.")
        if mode is not None and (next(path.iterdir(), None) if folder else new and path.stat().st_size):
            raise Refusal(f"{path} exists already. Remove it, or give another path.")
        if begins and mode is not None:
            with open(path, "rb") as file:
                if (first := file.read(len(begins))) and first != begins:
                    raise Refusal(f"{path} is a file of another kind, which is never overwritten. Give another path.")
        above = next(each for each in path.absolute().parents if os.path.lexists(each))
        if not above.is_dir():
            raise Refusal(
                f"{path} cannot be written: {above} is {kind_of(above.lstat().st_mode)}, not a folder. Move it."
            )
        with tempfile.TemporaryFile(dir=above):
            pass
    except Refusal:
        raise
    except (NotADirectoryError, FileNotFoundError, ValueError) as error:  # such as /proc, or a NUL in a name
        raise Refusal(f"{path} cannot be written ({error}). Give another path.") from None


def kind_of(mode):
    """Return the kind of file with this mode (os.lstat), for a person."""
    kinds = {stat.S_ISLNK: "a link", stat.S_ISDIR: "a folder", stat.S_ISREG: "a file", stat.S_ISFIFO: "a pipe"}
    return next((kind for is_kind, kind in kinds.items() if is_kind(mode)), "a device or a socket")


def require_file(path):
    """Raise Refusal if a path exists and is not a regular file."""
    if Path(path).exists() and not Path(path).is_file():
        raise Refusal(f"{path} is {kind_of(os.stat(path).st_mode)}, which is never overwritten. Move it away.")


def require_new_folder(output):
    """Raise Refusal for a path that `write_new_folder` would refuse whatever it is to hold: before work of minutes."""
    if output.is_symlink() or not output.is_dir():
        require_output(output, folder=True)


def write_new_folder(write, output, made):
    """Make the folder `output` by `write`, a function of the folder to write to, and add it to `made` (list). A folder
    with the same files, as a killed command leaves it, is taken as it is. Raises Refusal for anything else there."""
    require_new_folder(output)
    with part_of(output) as part:
        write(part)
        if not output.is_dir() or not same_files(part, output):
            require_output(output, folder=True)
            made.append(output)
            os.rename(part, output)


def same_files(folder, other):
    """Whether two folders have files of the same names and bytes; links count as what they lead to."""
    try:
        ours, theirs = ({path.relative_to(each): path for path in files_below(each)} for each in (folder, other))
        same = ours.keys() == theirs.keys()  # digests last: they read the files
        return same and all(sha256_file(path) == sha256_file(theirs[name]) for name, path in ours.items())
    except OSError:  # a file that cannot be read is not ours
        return False


def write_bytes(path, content):
    """Write a file under a temporary name (`part_of`), then rename: a reader sees the old file or the new one."""
    require_file(path)
    with part_of(path) as part:
        part.write_bytes(content)
        os.replace(part, path)


def write_text(path, text):
    """Write UTF-8 `text` as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_json(path, value):
    """Write `value` as JSON, as `write_text` does; folders above it are made."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_saved(path):
    """The content (dict) of a JSON file that a process saved for later ones; {} if it is missing or torn."""
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):  # ValueError: no JSON, or not in UTF-8
        return {}
    return saved if isinstance(saved, dict) else {}


def files_below(path):
    """The files of an artefact: itself, or all files below it when it is a folder (sorted)."""
    path = Path(path)
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def free_bytes(folder):
    """How many bytes the disk has free on which a folder is, or will be."""
    existing = next(path for path in [Path(folder).resolve(), *Path(folder).resolve().parents] if path.exists())
    return shutil.disk_usage(existing).free


def require_free_space(folder, num_bytes):
    """Raise Refusal if the disk of `folder` has less than `num_bytes` free, before hours of work."""
    if (free := free_bytes(folder)) < num_bytes:
        problem = f"{folder} needs {gigabytes(num_bytes)}, but its disk has {gigabytes(free)} free"
        raise Refusal(f"{problem}: free some space ({PRUNE}) and run again.")


def gigabytes(num_bytes):
    """A size for a person, in bytes if it is small."""
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e7 else f"{num_bytes:,.0f} bytes"


def of_the_system(error):
    """(problem, remedy) for an error of the system, such as a full disk; None for any other error.

    Libraries in Rust (safetensors, tokenizers) give the system's error number as text, numpy not at all.
    """
    if re.fullmatch(r"\d+ requested and \d+ written", str(error)):
        return NO_ROOM
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # the latter is torch's
        return NO_MEMORY
    code = re.search(r"os error (\d+)", str(error))
    return OF_THE_SYSTEM.get(getattr(error, "errno", None) or (int(code[1]) if code else None))
