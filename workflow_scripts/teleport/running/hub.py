"""The Hugging Face hub: how its repositories are named, errors of its client as refusals, and uploads."""

from contextlib import contextmanager

from teleport.refusal import Refusal
from teleport.running.files import of_the_system

HUB_NAME = "hub:([^/@]+/[^/@]+)"  # the pattern of hub:OWNER/NAME


@contextmanager
def hub_errors(problem, remedy):
    """Within the block, an error of the hub's client becomes a Refusal: the problem, the error, the remedy; one of the
    system, such as a full disk, has a remedy of its own."""
    from huggingface_hub.errors import HFValidationError, HTTPError  # the latter: whatever its HTTP library raises

    try:
        yield
    except (OSError, HFValidationError, HTTPError, RuntimeError) as error:  # the last: every error of hf_xet
        problem += f" ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
        known = of_the_system(error)
        raise Refusal(f"{problem}: {'; '.join(known)}." if known else f"{problem}. {remedy}") from None


def uploaded(repository, folder, public=False):
    """Send a folder to a repository of the hub, which is private if it is new, unless `public`; returns the hub's
    record of it."""
    from huggingface_hub import HfApi

    api = HfApi()
    with hub_errors(f"{repository} cannot be sent to the hub", "Check its name, the network, and `hf auth whoami`."):
        api.create_repo(repository, exist_ok=True, private=not public)
        return api.upload_folder(repo_id=repository, folder_path=folder)
