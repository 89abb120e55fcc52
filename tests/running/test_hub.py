"""Errors of the hub's client are refusals, whichever library raises them."""

import errno
import os

import pytest

from teleport.refusal import Refusal
from teleport.running.hub import hub_errors

FULL = os.strerror(errno.ENOSPC)
XET = "Task error: File reconstruction error: "  # how hf_xet, which downloads large files, begins


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (RuntimeError(f"{XET}HTTP status client error (403 Forbidden)"), "Check the network."),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "Check the network."),
        (RuntimeError(f"{XET}{FULL} (os error {errno.ENOSPC})"), "free some disk space"),
        (OSError(errno.EDQUOT, "quota"), "free some disk space"),
        (PermissionError(errno.EACCES, "denied", "models--o--m"), "make the named file readable"),
    ],
)
def test_an_error_names_its_reason_and_its_own_remedy(error, remedy):
    with pytest.raises(Refusal) as caught, hub_errors("cannot get o/m", "Check the network."):
        raise error
    message = str(caught.value)
    assert message.startswith("cannot get o/m (") and str(error) in message and remedy in message
    assert remedy == "Check the network." or "Check the network." not in message


def test_our_own_defects_keep_their_traceback():
    with pytest.raises(KeyError), hub_errors("cannot get o/m", "Check the network."):
        raise KeyError("name")
