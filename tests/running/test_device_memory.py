"""A CUDA device with too little memory ends a stage with what a person can do, not with a traceback."""

import pytest
import torch

from teleport.encoder import encode
from teleport.running.devices import out_of_memory
from teleport.search import retrieve
from teleport.training import train


class JobOutOfMemory:
    """Fails wherever it is touched, as a device does that is full."""

    def __getattr__(self, name):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize(
    ("run", "remedy"),
    [
        (train.run, "gradient_caching: true .*--set-resources train:gpu=N"),
        (encode.run, "Set encoder.precision to bf16"),
        (encode.run_shard, "Set encoder.precision to bf16"),
        (retrieve.run, "Lower mining.depth or evaluation.depth"),
    ],
)
def test_stages_say_what_helps(run, remedy):
    for _ in range(2):  # a decorator that works once would do for a first call alone
        with pytest.raises(ValueError, match=rf"2\.00 GiB\. .*{remedy}.*nvidia-smi"):
            run(JobOutOfMemory())


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail type FlatData dev 0 space Device stream "
        "0x0 size 27 bytes (cudaMalloc error out of memory [2])",
    ],
)
def test_a_context_that_finds_no_memory_is_known_by_its_words(message):
    with pytest.raises(ValueError, match="remedy.*nvidia-smi"), out_of_memory("remedy"):
        raise RuntimeError(message)


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="^another$"), out_of_memory("remedy"):
        raise RuntimeError("another")
