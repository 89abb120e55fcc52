"""Why a job has failed, by the end of its log."""

import pytest

from commands.job_texts import reason, verdicts_in

STARTING = 'Traceback (most recent call last):\n  File "run_stage.py", line 0, in <module>\nKeyboardInterrupt\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("12:00:00 attempt 1\nerror: the file is torn. Make it again.\n", ("the file is torn. Make it again.", False)),
        ("error: the file is torn.\nerror: one of 2 processes died.\n", ("the file is torn.", False)),
        ("Traceback (most recent call last):\nKeyError: 'a'\n", ("KeyError: 'a'", True)),
        (STARTING, ("it was interrupted (SIGINT) before it began", False)),
        ("", ("its log is empty", False)),
        (
            "12:00 attempt 1\n",
            ("it ended without an error message; the last line of its log is: 12:00 attempt 1", False),
        ),
    ],
)
def test_the_cause_and_whether_it_is_a_defect(tmp_path, text, said):
    (tmp_path / "a.log").write_text(text)
    assert reason(tmp_path / "a.log") == said


def test_verdicts_are_shown_without_markdown_s_escapes():
    table = "Title\n\n* \\_a_b\\_ .1: \\*best\\*\n\n| System |\n"
    assert verdicts_in(table) == ["Title:", "_a_b_ .1: *best*"]
