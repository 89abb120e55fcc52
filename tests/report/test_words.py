"""Times, sizes and progress as text."""

from teleport.report.words import by_kind, duration, listed, number, of_seed, size


def test_a_noun_agrees_with_its_number():
    assert [number(n, "query") for n in (0, 1, 2000)] == ["0 queries", "1 query", "2,000 queries"]
    assert [number(n, "record") for n in (1, 2)] == ["1 record", "2 records"]


def test_a_list_has_commas_and_its_last_word():
    assert [listed("abc"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert listed("abc", "or") == "a, b or c"


def test_times():
    assert [duration(s) for s in (0.4, 40, 89, 720, 11_100, None)] == [
        "0 s",
        "40 s",
        "89 s",
        "12 min",
        "3 h 05 min",
        "–",
    ]
    assert [duration(s, 1) for s in (0.44, 9.94, 9.96, 40)] == ["0.4 s", "9.9 s", "10 s", "40 s"]


def test_sizes():
    assert [size(n) for n in (12, 1500, 999_600, 2e6, 3e12)] == ["12 bytes", "1.5 kB", "1 MB", "2 MB", "3 TB"]


def test_what_is_finished():
    done = {"train/a", "encode/a", "evaluate/a"}.__contains__
    assert by_kind(["train/a", "train/b", "encode/a"], done) == {"train": (1, 2), "encode": (1, 1)}
    episodes = [["train/a", "evaluate/a"], ["train/b"]]
    assert of_seed("Tele", 7, episodes, ["train/a", "train/b"], done) == ["Tele", "7", "1 of 2", "1 of 2"]
