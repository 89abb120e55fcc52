"""One file over HTTP: from the first mirror that has it, continued where a connection was cut, verified before use."""

import errno
import hashlib
import http.client
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager

from teleport.runtime.files import read_saved, require_free_space, write_json
from teleport.runtime.log import log

ATTEMPTS = 5  # connections in a row that bring next to nothing before the next mirror is tried
PAUSE_SECONDS = 2.0
TIMEOUT_SECONDS = 60.0  # for an answer to begin, and then for as many bytes as the slowest rate brings
SLOWEST_RATE = 1000.0  # bytes a second: a gigabyte in eleven days
CHUNK_BYTES = 2**20
TRANSIENT = (408, 416, 425, 429, 500, 502, 503, 504)  # HTTP answers after which the same mirror is asked again
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no other mirror helps


def fetch(path, mirrors, expected):
    """Fetch a file to `path` from the first of `mirrors` (URLs) that has it; returns its `file_digests`.

    An interrupted download is continued, also by a later call: what has come so far is in `path`.part. Raises
    ValueError for a wrong size or digest, of which nothing is kept, and when every mirror fails, listing why; OSError
    when the disk is full.
    """
    part, failures = part_of(path), []
    path.parent.mkdir(parents=True, exist_ok=True)
    for url in mirrors:
        try:
            receive_all(url, part, expected)
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in DISK_FULL:
                raise
            log.info("%s: %s", url, error)
            failures.append(f"{url}: {error}")
            continue
        found = file_digests(part)
        try:
            verify(found, expected, f"{url}, fetched for {path},")
        except ValueError:
            forget(part)
            raise
        part.replace(path)
        forget(part)
        return found
    reasons = "; ".join(failures) or "none is given"
    raise ValueError(
        f"{path}: no mirror has this file ({reasons}). Correct collection.files.{path.name}.mirrors, or put all files "
        "of the set into a folder and name it in collection.local."
    )


def receive_all(url, part, expected):
    """Receive `url` into the file `part`, connecting again after every cut; OSError or HTTPException when in vain."""
    if part.exists() and not (has_digest(expected) or origin(part).get("url") == url):
        forget(part)  # nothing would tell whether two halves of different files were joined
    fruitless = 0
    while True:
        before, started, reason = size(part), time.monotonic(), "the connection was cut"
        try:
            with no_slower_than(SLOWEST_RATE, part):
                if receive(url, part, expected):
                    return
        except (OSError, http.client.HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code not in TRANSIENT
            if refused or isinstance(error, http.client.InvalidURL) or getattr(error, "errno", None) in DISK_FULL:
                raise
            reason = error
        brought = size(part) - before
        fruitless = 0 if brought > SLOWEST_RATE * (time.monotonic() - started) else fruitless + 1
        if fruitless == ATTEMPTS:
            raise OSError(f"{reason}, {ATTEMPTS} times in a row")
        log.info("%s: %s after %d bytes; trying again", url, reason, size(part))
        if fruitless:
            time.sleep(PAUSE_SECONDS)


def receive(url, part, expected):
    """One connection: append to `part` what it lacks; returns whether it is complete now."""
    have = size(part)
    if have and have == expected["bytes"]:
        return True
    try:
        response = answer(url, part, have)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing after what is here: it is all there, or it is not this file
            if error.headers.get("Content-Range", "").removeprefix("bytes */") == str(have):
                return True
            forget(part)
        raise
    with response:
        continued, found = response.status == 206, response.headers.get("Content-Range")
        if continued and not (found or "").startswith(f"bytes {have}-"):
            forget(part)
            raise OSError(f"answered bytes {have}- with {found!r}")
        length = content_length(response)
        require_free_space(part.parent, length or 0)
        if not continued:
            validator = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
            write_json(origin_path(part), {"url": url, "validator": "" if validator.startswith("W/") else validator})
        with open(part, "ab" if continued else "wb", buffering=0) as file:
            while chunk := response.read1(CHUNK_BYTES):  # what has come, so that a slow rate is seen
                file.write(chunk)
    return length is None or size(part) == length + (have if continued else 0)


@contextmanager
def no_slower_than(rate, part):
    """Within the block, TimeoutError when `part` has not grown at `rate` (bytes a second) for TIMEOUT_SECONDS.

    It comes wherever the block waits: each byte of a header or of a chunk's size ends a socket's own timeout.
    """
    grown = [size(part)]

    def look(*_):
        grown.append(size(part))
        if 0 <= grown[-1] - grown[-2] < rate * TIMEOUT_SECONDS:  # smaller: it begins anew
            raise TimeoutError(f"{grown[-1] - grown[-2]} bytes in {TIMEOUT_SECONDS:g} s")

    previous = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT_SECONDS, TIMEOUT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def answer(url, part, have):
    """The response to the request for `url`. Raises InvalidURL when this, or where it leads to, is no URL."""
    try:
        return urllib.request.urlopen(request(url, part, have), timeout=TIMEOUT_SECONDS)
    except ValueError as error:
        raise http.client.InvalidURL(f"it is no URL, or leads to none ({error})") from None


def content_length(response):
    """The bytes that an answer announces, None without. Raises OSError for what is no number."""
    text = response.headers.get("Content-Length")
    try:
        return text and int(text)
    except ValueError:
        raise OSError(f"answered Content-Length {text[:40]!r}, which is no number") from None


def request(url, part, have):
    """The request for `url` from byte `have` on, as long as it is the version that `part` began with."""
    headers = {"User-Agent": "teleport", "Accept-Encoding": "identity"}
    if (urllib.parse.urlsplit(url).hostname or "").endswith(".core.windows.net"):
        headers["X-Ms-Version"] = "2019-12-12"  # without it this storage (MS MARCO's) does not offer ranges
    if have:
        headers["Range"] = f"bytes={have}-"
        if validator := origin(part).get("validator"):
            headers["If-Range"] = validator
    return urllib.request.Request(url, headers=headers)


def size(path):
    """The bytes of a file, 0 when there is none."""
    return path.stat().st_size if path.exists() else 0


def part_of(path):
    """Where what has come of a file lies until it is complete."""
    return path.with_name(path.name + ".part")


def origin_path(part):
    """Beside an unfinished download: where it comes from, and the server's validator of that version."""
    return part.with_name(part.name + ".json")


def origin(part):
    """{url, validator} of an unfinished download; empty without a note of them."""
    noted = read_saved(origin_path(part))
    return noted if all(isinstance(value, str) for value in noted.values()) else {}


def forget(part):
    """Remove an unfinished download and the note beside it."""
    part.unlink(missing_ok=True)
    origin_path(part).unlink(missing_ok=True)


def has_digest(expected):
    """Whether a digest is given, so that the content cannot be another one."""
    return bool(expected["sha256"] or expected["md5"])


def file_digests(path):
    """{bytes, sha256, md5} of a file, read once."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            sha256.update(chunk)
            md5.update(chunk)
    return {"bytes": path.stat().st_size, "sha256": sha256.hexdigest(), "md5": md5.hexdigest()}


def verify(found, expected, what):
    """Raise ValueError when a value of `expected` ({bytes, sha256, md5}; None: not given) is not that of `found`."""
    for name, value in expected.items():
        if value not in (None, found[name]):
            raise ValueError(
                f"{what} has {name} {found[name]}, expected {value}: another file, or a damaged one. It is not used; "
                f"fetch it anew, or correct {name} in collection.files if the publisher changed it."
            )
