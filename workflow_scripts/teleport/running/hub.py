"""The Hugging Face hub: how its repositories are named, and errors of its client as refusals."""

from contextlib import contextmanager

from teleport.refusal import Refusal

HUB_NAME = "hub:([^/@]+/[^/@]+)"  # the pattern of hub:OWNER/NAME


@contextmanager
def hub_errors(problem, remedy):
    """Within the block, an error of the hub's client becomes a Refusal: the problem, the error, the remedy."""
    from huggingface_hub.errors import HFValidationError, HTTPError  # the latter: whatever its HTTP library raises

    try:
        yield
    except (OSError, HFValidationError, HTTPError) as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise Refusal(f"{problem} ({reason}). {remedy}") from None
