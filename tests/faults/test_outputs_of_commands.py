"""What stands where a command is to write: a file, a folder, a link, a device, /proc, a name that is too long.

A command writes there or refuses by a sentence; what was there and is no file of that name stays as it was, byte for
byte. Below `results`, which is ours, a link may become a file; what it leads to stays.
"""

import os
import re
import shutil
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from bad_inputs import each_case, slow_but
from desk import CONFIGURATION, EPISODE, METHOD, SHARED, make_desk
from test_inputs_of_newcomers import GIVEN, LINKS, PLAIN, Shelf

import manage
from teleport.refusal import Refusal
from untouched import content_of

pytestmark = pytest.mark.faults
OUT = "OUT"
OF_SHELF = {
    "export of a run": ["export", str(LINKS[0]), OUT],
    "share, a folder": ["share", "tele", "--to", OUT],
    "share, an archive": ["share", "tele", "--to", f"{OUT}.tar"],
    "new": ["new", "mine", "given"],
    "link": ["link", "plain.yaml"],
}
OF_DESK = {
    "export of a pool": ["export", f"{EPISODE}/merge", OUT],
    "export of a checkpoint": ["export", f"{EPISODE}/train", OUT],
    "export of vectors, Parquet": ["export", f"{EPISODE}/encode-passages", f"{OUT}.parquet"],
    "export of vectors, faiss": ["export", f"{EPISODE}/encode-passages", f"{OUT}.faiss"],
    "mine": ["mine", "mine", "--method", METHOD, "--output", OUT],
    "report": ["report", CONFIGURATION, "--output", OUT],
    "report in one file": ["report", CONFIGURATION, "--share", OUT],
    "figures": ["figures", CONFIGURATION, "--output", OUT],
    "tables": ["tables", CONFIGURATION],
    "fetch": ["fetch", SHARED],
}
# Where commands without such an argument write.
OWN = {
    "new": ["config", "config/mine.yaml", "data", "data/mine-divided"],
    "link": ["results/experiments/x", "results/experiments/x/plan.tsv"],
    "tables": ["results/tables", "results/tables/mine", "results/tables/mine/main.md", "results/tables/mine/main.csv"],
    "fetch": ["results/stages", "results/stages/evaluate", "results/locks", "results/locks/evaluate"],
}
# What commands write besides, or below the folder that they write to.
BESIDE = {
    "export of vectors, faiss": ["out.faiss.ids.txt"],
    "report": ["out/index.html", "out/_page", "out/_page/index.html", "out/_page/vega.js"],
    "figures": ["out/episodes.pdf", "out/loss-tuned.png"],
}
LONG = ("export of a checkpoint", "report", "report in one file", "figures")  # seconds each
ENDINGS = {"share, an archive": ".tar", "export of vectors, Parquet": ".parquet", "export of vectors, faiss": ".faiss"}
KINDS = ["new", "new below", "a file", "an empty folder", "a folder", "a link to a file", "a link to a folder"]
KINDS += ["a dangling link", "a pipe", "a device", "a socket", "below a file", "below a dangling link"]
PLACES = [
    "/proc/x",
    "/proc/self/x",
    "/sys/x",
    "/dev/null/x",
    "n" * 300,
    "n" * 5000,
    "",
    ".",
    "..",
    "./",
    "a\nb",
    "-",
    "é x",
]


def make(kind, path):
    """Put something at a path; returns the path to write to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    other = Path("other").absolute()
    if kind in ("a file", "below a file"):
        path.write_text("mine")
    elif kind in ("an empty folder", "a folder"):
        path.mkdir()
        if kind == "a folder":
            (path / "mine.txt").write_text("mine")
    elif kind == "a link to a file":
        path.symlink_to(other / "file.txt")
    elif kind == "a link to a folder":
        path.symlink_to(other / "folder")
    elif kind in ("a dangling link", "below a dangling link"):
        path.symlink_to(other / "nowhere")
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        with suppress(PermissionError):  # only root makes one
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as server:
            place = os.open(path.parent, os.O_RDONLY)
            server.bind(f"/proc/self/fd/{place}/{path.name}")  # whose own path may be too long
            os.close(place)
    return path / "out" if kind.startswith(("below", "new below")) else path


def look(folder):
    """{path: what it is} of all that lies below a folder."""
    found, stages = {}, folder / "results/stages"
    for path in sorted(each for each in folder.rglob("*") if not each.is_relative_to(stages)):
        mode = path.lstat().st_mode
        known = stat.S_ISLNK(mode) or stat.S_ISDIR(mode) or stat.S_ISREG(mode)
        found[str(path.relative_to(folder))] = (stat.S_IFMT(mode), content_of(path) if known else path.lstat().st_rdev)
    return found


def with_others(folder):
    """Put beside results what commands read, and what links lead to."""
    (folder / "plain.yaml").write_text(yaml.safe_dump(PLAIN))
    (folder / "given").mkdir()
    for file, line in GIVEN.items():
        for split in ("train", "test"):
            (folder / "given" / file.format(0, split)).write_text("".join(line.format(n) for n in range(60)))
    (folder / "other/folder").mkdir(parents=True)
    (folder / "other/file.txt").write_text("mine")
    (folder / "other/folder/file.txt").write_text("mine")
    return folder


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A folder with finished evaluations."""
    folder = tmp_path_factory.mktemp("desk")
    Shelf(folder)
    return with_others(folder)


def call(line, monkeypatch, capsys):
    """What a command prints. Raises Refusal for the sentence that it ends with."""
    monkeypatch.setattr(sys, "argv", ["teleport", *line])
    with pytest.raises(SystemExit) as ended:
        manage.main()
    said = capsys.readouterr()
    if (status := ended.value.code) in (None, 0):
        return said.out
    raise Refusal(status if isinstance(status, str) else re.search(r"error: .*", said.err)[0] + ".")


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a finished experiment."""
    folder = tmp_path_factory.mktemp("finished")
    make_desk(folder)
    return with_others(folder)


@pytest.mark.parametrize("name", slow_but(["export of a run", "link"], OF_SHELF))
def test_where_a_command_writes(shelf, tmp_path, monkeypatch, capsys, campaign, name):
    each_place(shelf, OF_SHELF[name], name, (tmp_path, monkeypatch, capsys, campaign))


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_DESK)
def test_where_a_command_writes_what_an_experiment_has(desk, tmp_path, monkeypatch, capsys, campaign, name):
    each_place(desk, OF_DESK[name], name, (tmp_path, monkeypatch, capsys, campaign))


def each_place(desk, words, name, fixtures):
    tmp_path, monkeypatch, capsys, campaign = fixtures
    ending = ENDINGS.get(name, "")

    def one(case):
        # Links to the same files: what is written again gets another file, as nothing is written over.
        shutil.copytree(desk, case.folder, symlinks=True, dirs_exist_ok=True, copy_function=os.link)
        monkeypatch.chdir(case.folder)
        if name == "fetch":  # else all that it could take is there
            shutil.rmtree("results/stages")
        kind, place, taken = "new", Path("out"), None
        if name in OWN:
            place = Path(case.draw.choice(OWN[name]))
            if not case.sound:
                kind = case.draw.choice([each for each in KINDS if "below" not in each])
                make(kind, place)
        elif not case.sound and name in BESIDE and case.draw.random() < 0.3:
            kind = case.draw.choice([each for each in KINDS if "below" not in each])
            taken = Path(case.draw.choice(BESIDE[name]))
            make(kind, taken)
        elif not case.sound and case.draw.random() < 0.3:
            place = kind = case.draw.choice(PLACES)
        elif not case.sound:
            kind = case.draw.choice(KINDS)
            made = make(kind, Path("out") if "below" in kind else Path(f"out{ending}"))
            place = made if "below" in kind else place
        before, written = look(case.folder), {f"{place}{ending}"} if kind == "a file" else set()
        if taken and kind in ("a file", "a link to a file", "a dangling link"):  # what bears the name of a file of ours
            written = {str(taken)}

        def misread(_):
            return changed(before, look(case.folder), written)

        case.read(lambda: call([word.replace(OUT, str(place)) for word in words], monkeypatch, capsys), misread, True)
        after = look(case.folder)
        left = [path for path in after if ".part" in path and path not in before]
        wrong = left or changed(before, after, written)
        campaign.note("what was there is as it was", f"teleport {name}", wrong and f"{kind}: {wrong}", case.number)
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, f"output of {name}", one, few=2, share=10 if name in LONG else 1)


def changed(before, after, written):
    """Paths that are another thing than before. What is `written` (paths) may be made again, as commands do."""
    other = [path for path in before if after.get(path) != before[path]]
    ours = ("results/digests", "results/experiments", "results/tables")
    return [path for path in other if not path.startswith(ours) and path not in written]
