"""Downloads a file with `curl`: from the first mirror that has it, continued after a cut, verified before use.

curl's own --retry begins at byte 0 again, so this module repeats the attempts. NAME.part has the bytes received so far.
"""

import errno
import hashlib
import re
import shutil
import subprocess
import time

from teleport.refusal import Refusal
from teleport.running.files import PRUNE, gigabytes
from teleport.running.launch import end_with_parent
from teleport.running.log import log

ATTEMPTS = 5  # connections in a row that bring next to nothing before the next mirror is tried
PAUSE_SECONDS = 2.0
TIMEOUT_SECONDS = 60  # to connect, and then for a rate below the slowest
SLOWEST_RATE = 1000  # bytes a second: a gigabyte in eleven days
CHUNK_BYTES = 2**20
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses after which the same mirror is tried again
NOTHING_AFTER = 416  # HTTP status: the range begins at the end of the file
# Exit statuses of curl. Trying again does not help against NO_HTTP and NO_URL.
NO_HTTP, NO_URL, HTTP_ERROR, WRITE_ERROR, NO_RANGES, TOO_LARGE = 1, 3, 22, 23, 33, 63
# -q: no ~/.curlrc. Redirects must lead to HTTP or HTTPS, too.
CURL = ["curl", "-q", "--silent", "--show-error", "--fail", "--location", "--globoff", "--proto", "=http,https"]
CURL += ["--user-agent", "teleport", "--continue-at", "-"]
CURL += ["--write-out", "%{http_code} %{content_type}\n%header{content-range}"]
# Content types that a mirror may send when it has moved or wants a login, and what the name of a real such file
# contains. Checked only without a digest, which would tell better.
PAGES = {"text/html": ".htm", "application/xhtml+xml": ".htm", "application/json": ".json"}


class OtherFile(Refusal):
    """A mirror has another file under this name, or a damaged one."""


def fetch(path, mirrors, expected):
    """Fetch a file to `path` from the first of `mirrors` (URLs) that has it; returns {bytes, sha256, md5}.

    An interrupted download is continued, also by a later call. If the last mirror has a file of another size or digest,
    it is kept (`set_aside`). Raises OSError when the disk is full.
    """
    if not shutil.which("curl"):
        remedy = "install it (apt install curl), or put all files into a folder and name it in collection.local."
        raise Refusal(f"{path} cannot be downloaded without the program curl, which is not installed: {remedy}")
    part, failures, wrong = part_of(path), [], None
    path.parent.mkdir(parents=True, exist_ok=True)
    for url in mirrors:
        if wrong:  # another mirror may have the right one, and the disk no room for both
            forget(part)
        try:
            digests = fetch_from(url, part, expected, f"{url}, fetched for {path},")
        except ConnectionError as error:
            log.info("%s: %s", url, error)
            failures.append(f"{url}: {error}")
            continue
        except OtherFile as error:
            log.info("%s", error)
            wrong = error
            continue
        part.replace(path)
        forget(part)
        return digests
    if wrong:
        raise set_aside(part, path, wrong) if part.is_file() else wrong
    reasons = "; ".join(failures) or "none is given"
    raise Refusal(
        f"{path}: no mirror has this file ({reasons}). Correct collection.files.{path.name}.mirrors, or put all files "
        "of the set into a folder and name it in collection.local."
    )


def fetch_from(url, part, expected, what):
    """{bytes, sha256, md5} of `part` once it is whole and verified."""
    for again in (True, False):
        continued = receive_all(url, part, expected)
        try:
            return verified(part, expected, what)
        except OtherFile as error:
            if not (continued and again):
                raise
            forget(part)
            log.info("%s Its parts may be from two versions: downloading it again from the start", error)


def receive_all(url, part, expected):
    """Receive `url` into the file `part`, connecting again after every cut; returns whether anything was continued.
    Raises ConnectionError when it fails, OSError when `part` cannot be written, Refusal when it is too large."""
    fruitless, continued = 0, False
    while True:
        options = version_options(part, expected)
        before, started, free = size(part), time.monotonic(), shutil.disk_usage(part.parent).free
        continued = continued or before > 0
        status, answer, kind, whole, reason = run_curl(url, part, [*options, "--max-filesize", str(free)])
        if answer in (200, 206) and not has_digest(expected) and PAGES.get(kind, "") not in part.name:
            forget(part)
            raise ConnectionError(f"the answer is of the type {kind}, not the file")
        nothing_after = before and answer == NOTHING_AFTER
        if ((status == 0 and size(part)) or nothing_after) and whole in (None, size(part)):
            return continued
        if status == WRITE_ERROR:
            open(part, "ab").close()  # raises the system's error if nothing can be written
            raise OSError(errno.ENOSPC, reason, str(part))
        if status == TOO_LARGE:
            raise Refusal(f"{url} is larger than the {gigabytes(free)} free for {part}: free some space ({PRUNE}).")
        if status == NO_RANGES or nothing_after:  # or `part` began with another version
            forget(part)
        elif status in (NO_HTTP, NO_URL) or (status == HTTP_ERROR and answer not in TRANSIENT):
            raise ConnectionError(reason)
        brought = size(part) - before
        fruitless = 0 if brought > SLOWEST_RATE * (time.monotonic() - started) else fruitless + 1
        if fruitless == ATTEMPTS:
            raise ConnectionError(f"{reason}, {ATTEMPTS} times in a row")
        log.info("%s: %s after %d bytes; trying again", url, reason, size(part))
        if fruitless:
            time.sleep(PAUSE_SECONDS)


def version_options(part, expected):
    """Options of curl that prevent joining parts of two versions of a file without a digest. Deletes `part` if it
    cannot be continued safely."""
    if has_digest(expected):
        return []
    headers = headers_of(part)  # their ETag names the version
    last = headers.read_text(errors="replace").strip().rpartition("\n\n")[2] if headers.is_file() else ""
    # A weak ETag, W/"…", does not promise the same bytes.
    etag = re.search('^etag: *("[!#-~]{1,200}")$', last, re.IGNORECASE | re.MULTILINE)
    if size(part):
        if etag:
            return ["--header", f"If-Range: {etag[1]}"]
        forget(part)
    return ["--dump-header", str(headers)]


def run_curl(url, part, options):
    """Append the rest of the file to `part` over one connection. Returns (exit status, HTTP status, content type, bytes
    of the whole file if only a part was sent, else None, reason of a failure)."""
    limits = ["--connect-timeout", TIMEOUT_SECONDS, "--speed-time", TIMEOUT_SECONDS, "--speed-limit", SLOWEST_RATE]
    if ".core.windows.net/" in url:  # without this header the storage (MS MARCO's) offers no ranges
        limits += ["--header", "X-Ms-Version: 2019-12-12"]
    command = [*CURL, *map(str, limits), *options, "--output", str(part), "--url", url]
    # restore_signals=False: if the file may not grow, curl reports an error and is not killed by SIGXFSZ.
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", preexec_fn=end_with_parent, restore_signals=False
    )
    reason = done.stderr.strip().rpartition("\n")[2] or "the answer ends early"
    first_line, _, whole = done.stdout.partition("\n")  # bytes 0-5999/49780
    answer, _, kind = first_line.partition(" ")
    whole, kind = re.search(r"/(\d+)$", whole), kind.partition(";")[0].strip().lower()
    return done.returncode, int(answer or 0), kind, whole and int(whole[1]), re.sub(r"^curl: \(\d+\) ", "", reason)


def size(path):
    """Bytes of a file, 0 when there is none."""
    return path.stat().st_size if path.exists() else 0


def part_of(path):
    """Return the path of the received part of an incomplete file."""
    return path.with_name(path.name + ".part")


def headers_of(part):
    """Return the path of the answer's headers, whose ETag names the version, beside an unfinished download without a
    digest."""
    return part.with_name(part.name + ".headers")


def forget(part):
    """Remove an unfinished download and the headers beside it."""
    part.unlink(missing_ok=True)
    headers_of(part).unlink(missing_ok=True)


def set_aside(file, path, error):
    """Keep a file that is not the expected `path` as NAME.other: the digest may be wrong, or the file another
    collection's. Returns the `OtherFile` to raise."""
    file.replace(other := other_of(path))
    headers_of(file).unlink(missing_ok=True)
    return OtherFile(f"{error} It is kept as {other}.")


def take_back(path, expected):
    """Exchange the file at `path` with the one that was set aside, if that is as expected; returns {bytes, sha256,
    md5} or None. So collections whose files have the same name take turns."""
    other, between = other_of(path), path.with_name(f".{path.name}.between")
    if between.is_file() and not other.is_file():  # after a kill
        between.replace(other)
    if not any(expected.values()) or not other.is_file():
        return None
    try:
        digests = verified(other, expected, str(other))
    except OtherFile:
        return None
    if path.is_file():
        path.replace(between)
    other.replace(path)
    if between.is_file():
        between.replace(other)
    return digests


def other_of(path):
    """Return the path of the file that was there, or was received, in the place of the expected one."""
    return path.with_name(path.name + ".other")


def has_digest(expected):
    """Whether a digest is given, which fixes the content."""
    return bool(expected["sha256"] or expected["md5"])


def verified(path, expected, what):
    """{bytes, sha256, md5} of a file. Raises Refusal about `what` if it differs from `expected` (None: not given)."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            sha256.update(chunk)
            md5.update(chunk)
    digests = {"bytes": path.stat().st_size, "sha256": sha256.hexdigest(), "md5": md5.hexdigest()}
    for name, value in expected.items():
        if value not in (None, digests[name]):
            raise OtherFile(
                f"{what} has {name} {digests[name]}, expected {value}: another file, or a damaged one. It is not used: "
                f"fetch it again, or correct {name} in collection.files if the publisher changed it."
            )
    return digests
