"""What a person brought is as it was: byte for byte."""

import hashlib
from contextlib import contextmanager
from pathlib import Path


def contents(folder):
    """{path below a folder: what tells its content} of all files, links and folders; a link is not followed."""
    return {str(path.relative_to(folder)): content_of(path) for path in sorted(Path(folder).rglob("*"))}


def content_of(path):
    """The target of a link, the SHA-256 of a file, True of a folder."""
    if path.is_symlink():
        return path.readlink()
    return path.is_dir() or hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def untouched(*folders):
    """Fails where what lies below one of these folders has changed, has gone, or was joined by something else."""
    before = [contents(folder) for folder in folders]
    assert all(before), "there is nothing to look at"
    try:
        yield
    finally:
        after = [contents(folder) for folder in folders]
    for old, found in zip(before, after, strict=True):
        assert sorted(path for path in old.keys() | found.keys() if old.get(path) != found.get(path)) == []
