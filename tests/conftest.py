"""Fixtures shared by all tests, the library in the processes that they start, and stages in a temporary folder."""

import os
import random
import signal

import pytest

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of many hundred processes would compile the library again
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in its background ignores Ctrl-C

from paths import REPOSITORY, SHARED  # noqa: E402
from stages import Stages  # noqa: E402

# Processes that tests start find the library of the folder that they start in, such as an edited copy of the
# repository; then that of this checkout, also where another one is installed.
FOUND = ["workflow_scripts", str(REPOSITORY / "workflow_scripts"), str(REPOSITORY / "tests")]
FOUND += filter(None, [os.environ.get("PYTHONPATH")])  # packages of a machine without a network
os.environ["PYTHONPATH"] = os.pathsep.join(FOUND)

# The order of folders, those of the longest tests first. One file of `workflow` makes the finished workflow that the
# others read: until then they would wait for it, so another worker takes other folders in between.
ORDER = ["slurm", "workflow", "bench", "collection", "commands", "of the finished workflow"]


@pytest.fixture
def stages(tmp_path):
    return Stages(tmp_path)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """The test runs in an empty folder, where nothing is built."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def nothing_here(empty_folder, tmp_path):
    """An empty folder: what is planned in it cannot depend on downloaded files."""
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def no_fallback():
    """torch.compile raises an error where it would stop compiling: it compiles a function at most eight times, and the
    layers of all models share one."""
    import torch

    torch._dynamo.reset()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield


@pytest.fixture(scope="session")
def shared():
    """The folder of real collections and judgments beside the repository; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip("no folder `shared` beside the repository: real collections are not here")
    return SHARED


class Sample:
    """Of a test marked `ci(n)`, n cases drawn by its name are for `make test`; the `rest` is for `make test-slow`."""

    @pytest.hookimpl(tryfirst=True)  # before `-m` chooses
    def pytest_collection_modifyitems(self, items):
        cases = {}
        for item in items:
            elsewhere = item.get_closest_marker("slow") or item.get_closest_marker("gpu")
            if (mark := item.get_closest_marker("ci")) and not elsewhere:
                cases.setdefault((item.path, item.originalname), (mark.args[0], []))[1].append(item)
        for (_, name), (number, found) in cases.items():
            drawn = random.Random(name).sample(range(len(found)), min(number, len(found)))
            for place, item in enumerate(found):
                if place not in drawn:
                    item.add_marker(pytest.mark.rest)


def pytest_configure(config):
    config.pluginmanager.register(Sample())


@pytest.hookimpl(trylast=True)  # of what is run: slow tests are out by then
def pytest_collection_modifyitems(items):
    """The long tests come first, so that the workers end at about the same time."""
    of_finished = dict.fromkeys(item.path for item in items if "finished" in item.fixturenames)
    maker = next((path for path in of_finished if path.parent.name == "workflow"), None)

    def place(item):
        waits = item.path in of_finished and item.path != maker
        folder = "of the finished workflow" if waits else item.path.parent.name
        return ORDER.index(folder) if folder in ORDER else len(ORDER), item.path != maker

    items.sort(key=place)


class Clock:
    """Seconds that pass when `spend` is called; `reports` has what a stage has reported: (second, done, rate)."""

    def __init__(self):
        self.now, self.reports = 1000.0, []

    def spend(self, seconds, function):
        """`function`, each call of which takes so many seconds."""

        def slow(*arguments, **options):
            self.now += seconds
            return function(*arguments, **options)

        return slow

    def first_rate(self):
        """Seconds of work until a rate was reported: from the first report on."""
        return next(second for second, _, rate in self.reports if rate) - self.reports[0][0]


@pytest.fixture
def clock(monkeypatch):
    """A `Clock` by which a stage reports its progress."""
    from teleport.running import log

    made = Clock()
    monkeypatch.setattr(log.time, "monotonic", lambda: made.now)
    monkeypatch.setattr(
        log, "write_json", lambda path, said: made.reports.append((made.now, said["done"], said["rate"]))
    )
    return made
