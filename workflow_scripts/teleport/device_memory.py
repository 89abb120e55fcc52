"""What a person can do when a CUDA device has too little memory."""

from contextlib import contextmanager


@contextmanager
def out_of_memory(remedy):
    """Within the block (or the function decorated with it) torch.OutOfMemoryError becomes a ValueError with `remedy`.

    It is told by its name, so that torch need not be loaded.
    """
    try:
        yield
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        raise ValueError(
            f"{error} {remedy} Other programs take memory of the device too: nvidia-smi lists them."
        ) from error
