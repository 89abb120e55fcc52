"""What a person can do when a CUDA device has too little memory."""

from contextlib import contextmanager

SIGNS = "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"


@contextmanager
def out_of_memory(remedy):
    """Within the block (or the function decorated with it) lack of device memory becomes a ValueError with `remedy`.

    It is told by its name, so that torch need not be loaded; errors of CUDA itself, as of a context, by their text.
    """
    try:
        yield
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError" and not any(sign in str(error) for sign in SIGNS):
            raise
        others = "Other programs take memory of the device too: nvidia-smi lists them."
        raise ValueError(f"{error} {remedy} {others}") from error
