"""The grammar of bad inputs notices a reader that changes what was given to it."""

import os

import pytest
from bad_inputs import Case
from campaign import Campaign

from teleport.refusal import Refusal


def refuse_and_write(path):
    path.write_text("mine")
    raise Refusal(f"{path} is no file of ours. Give another one.")


CHANGES = {
    "written over": lambda folder: (folder / "below/file").write_text("mine"),
    "written over, and refused": lambda folder: refuse_and_write(folder / "below/file"),
    "removed": lambda folder: (folder / "below/file").unlink(),
    "a link that leads elsewhere": lambda folder: os.replace(folder / "other link", folder / "link"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("writes", [False, True])
def test_a_reader_that_changes_its_input_is_noticed(tmp_path, change, writes):
    (tmp_path / "below").mkdir()
    (tmp_path / "below/file").write_text("given")
    (tmp_path / "link").symlink_to("below")
    (tmp_path / "other link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")  # which nobody may read
    campaign = Campaign()
    Case("reader", 1, tmp_path, campaign).read(lambda: CHANGES[change](tmp_path), lambda found: None, writes)
    assert len(campaign.wrong) == (0 if writes else 1)
    assert all(str(tmp_path) in wrong for wrong in campaign.wrong)


def test_what_is_written_beside_it_is_allowed(tmp_path):
    (tmp_path / "file").write_text("given")
    campaign = Campaign()
    Case("reader", 1, tmp_path, campaign).read(lambda: (tmp_path / "new").write_text("made"), lambda found: None)
    assert campaign.wrong == []
