"""Checks of this machine, each of which tries something: one line per check, with a remedy if it fails.

A check returns (verdict, detail). A Refusal is a failure, and so is any other error: nothing that is tried here
may break on a machine that is to compute for days. An unforeseen error also shows its traceback.
"""

import os
import resource
import shutil
import tempfile
import time
import traceback
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from teleport.refusal import Refusal
from teleport.running.devices import driver_version, require_usable, silent_driver, visible_devices
from teleport.running.files import gigabytes, of_the_system, require_free_space
from teleport.running.locks import try_lock

OK, WARNING, FAILS = "ok", "warning", "fails"
RESULTS = Path("results")
LEAST_DISK, LEAST_MEMORY = 1e9, 4e9  # of the embedded default, with room for the lesson
LIMITS = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}
TINY = {"model_type": "bert", "vocab_size": 200, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
TINY |= {"intermediate_size": 128, "max_position_embeddings": 64, "type_vocab_size": 2, "pad_token_id": 0}
TINY |= {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
SPECIAL = {"before": [2], "after": [3], "pad": 0, "unk": 1, "sep": 3, "vocab_size": 200}
TEXTS, QUERIES = 2000, 8


def doctor(make_plan):
    """Print a line per check; returns the exit status. make_plan: gives the plan whose memory and disk are forecast."""
    verdicts = []
    for name, check in checks(make_plan).items():
        started = time.monotonic()
        try:
            verdict, detail = check()
        except Refusal as error:
            verdict, detail = FAILS, str(error)
        except Exception as error:
            if known := of_the_system(error):  # such as a folder that cannot be written to
                verdict, detail = FAILS, f"{known[0]} ({error}); {known[1]}"
            else:  # from a library: its first line names what is missing
                first_line = str(error).strip().partition("\n")[0]
                verdict, detail = FAILS, f"{type(error).__name__}: {first_line}; docs/gpu.md says what a machine needs"
                traceback.print_exception(error)
        verdicts.append(verdict)
        print(f"{verdict:<8}{name}: {detail} ({time.monotonic() - started:.1f} s)", flush=True)
    return 1 if FAILS in verdicts else 0


def checks(make_plan):
    """{name of a check: its function}; those that others need come first."""
    each = {"devices": devices, "torch": torch_build, "bfloat16": bfloat16, "NCCL": nccl, "compiler": compiler}
    each |= {"locks": locks, "memory": memory, "disk": disk, "forecast": lambda: forecast(make_plan)}
    return each | {"a training step and a search": step_and_search}


def without_gpu():
    """The verdict of a check that needs a GPU, if torch can use none."""
    return (WARNING, "not tried: torch cannot use the GPU") if visible_devices() else (OK, "not needed without a GPU")


def devices():
    """The CUDA devices that torch would see, and the cores."""
    names = visible_devices()
    if not names and (silent := silent_driver()):
        return WARNING, silent
    computing = f"CUDA {', '.join(names)}" if names else "no GPU: stages compute on the processor"
    return OK, f"{computing}; {len(os.sched_getaffinity(0))} cores"


def torch_build():
    """Check what torch was built for, and whether a GPU that is there computes with it."""
    import torch

    built = f"torch {torch.__version__} for {f'CUDA {torch.version.cuda}' if torch.version.cuda else 'the processor'}"
    if not visible_devices():
        return OK, built
    require_usable()
    cards = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    with_memory = ", ".join(f"{card.name} with {gigabytes(card.total_memory)}" for card in cards)
    return OK, f"{built}, driver {driver_version()}; {with_memory}"


def bfloat16():
    """Whether precision auto computes in bfloat16."""
    from teleport.encoder.precision import pick_device, resolve_precision

    if resolve_precision("auto"):
        return OK, "precision auto uses it"
    remark = "this device does not gain by it: precision auto computes in float32"
    if pick_device().type == "cpu":
        return OK, remark
    return WARNING, f"{remark}, several times as slow; a GPU from Ampere on has it"


def nccl():
    """A process alone sums with itself: that loads the library and opens the device."""
    import torch.distributed as distributed
    from torch import cuda, ones

    if not cuda.is_available():
        return without_gpu()
    if not distributed.is_nccl_available():
        return WARNING, "this torch has none: a training takes one GPU; for several install another build of torch"
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        distributed.all_reduce(total := ones(1, device="cuda"))
        float(total)
    finally:
        distributed.destroy_process_group()
    return OK, ".".join(map(str, cuda.nccl.version()))


def compiler():
    """Whether torch.compile can prepare the encoder."""
    from teleport.encoder.precision import pick_device

    if (device := pick_device()).type != "cuda":
        return without_gpu()
    if problem := compiler_problem(device):
        return WARNING, problem
    return OK, "a kernel was compiled, so stages can have the resource `compile`"


def compiler_problem(device):
    """Return the text on a part that torch.compile misses on a CUDA device, such as a C compiler or triton, or None."""
    import torch

    from teleport.encoder.precision import compiles

    try:
        compiles(True, device)
        if not find_spec("triton"):
            return "triton is not installed: run without the resource `compile`, or install torch's own build"
        float(torch.compile(lambda x: 2 * x)(torch.ones(1, device=device)))
    except Refusal as error:
        return str(error)
    except Exception as error:  # a subprocess has printed what is missing
        first_line = str(error).strip().partition("\n")[0]
        helps = "install Python's headers if Python.h is missing (Debian: python3-dev), or run without the resource"
        return f"torch.compile fails: {type(error).__name__}: {first_line}; {helps} `compile`"
    return None


def locks():
    """Lock one file that is opened twice, for writing, because NFS locks only such files (flock(2)). A file system may
    grant the lock to both, which is worse than an error."""
    RESULTS.mkdir(exist_ok=True)
    remedy = f"put {RESULTS} on a file system that has locks (a local disk, NFS 4, Lustre with -o flock)"
    with tempfile.NamedTemporaryFile(dir=RESULTS, prefix=".lock-") as first, open(first.name, "a") as second:
        try:
            shared = try_lock(first) and try_lock(second)
        except OSError as error:
            problem = f"{RESULTS.absolute()} has none ({error})"
            if visible_devices():
                return FAILS, f"{problem}, so jobs cannot share the CUDA devices: {remedy}"
            return WARNING, f"{problem}: do not run two workflows on this folder at once, or {remedy}"
    if shared:
        return FAILS, f"{RESULTS.absolute()} gives one lock to two at a time: {remedy}"
    return OK, f"{RESULTS.absolute()} supports them"


def memory():
    """Free memory, by the system."""
    free = free_bytes()
    if free < LEAST_MEMORY:
        return WARNING, f"{gigabytes(free)} are free, fewer than {gigabytes(LEAST_MEMORY)}: end other programs"
    return OK, f"{gigabytes(free)} are free"


def free_bytes():
    """Memory that this process can still take, within the machine, its control group (a Slurm job) and its own
    limits."""
    limits = {field: resource.getrlimit(limit)[0] for field, limit in LIMITS.items()}
    free = [kilobytes("/proc/meminfo", "MemAvailable")]
    free += [n - kilobytes("/proc/self/status", name) for name, n in limits.items() if n != resource.RLIM_INFINITY]
    # The control groups (version 2) above this process that have a limit.
    name = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"), "/")
    folder = Path("/sys/fs/cgroup") / name.strip("/")
    for group in (folder, *folder.parents):
        limit = group / "memory.max"
        if limit.is_file() and limit.read_text().strip() != "max":
            free.append(int(limit.read_text()) - int((group / "memory.current").read_text()))
    return max(0, min(free))


def kilobytes(path, field):
    """The value of a line such as `VmSize: 12 kB`, in bytes."""
    lines = Path(path).read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def disk():
    """Free space below results."""
    require_free_space(RESULTS, LEAST_DISK)
    return OK, f"{gigabytes(shutil.disk_usage(RESULTS).free)} free below {RESULTS.absolute()}"


def forecast(make_plan):
    """Check the forecast of the configuration's memory and disk, if this machine's rates are known."""
    if find_spec("snakemake") is None:
        return WARNING, "not made, as snakemake is not installed, without which no workflow runs: make demo installs it"
    from commands.forecast.hardware import read_hardware
    from commands.forecast.printed import foreseen, shortages

    plan = make_plan()
    if sentences := shortages(plan):
        return FAILS if any(line.startswith("disk") for line in sentences) else WARNING, " ".join(sentences)
    try:
        foreseen(plan, read_hardware()[1])
    except Refusal as error:  # the size of the collection is not known, or the GPU is unmeasured
        return WARNING, f"not made: {error}"
    return OK, "memory and disk suffice"


def step_and_search():
    """Two training steps of a random BERT in the precision of the stages, then a search of the encoded texts, compared
    with a plain product."""
    import torch
    from transformers import BertConfig, BertModel

    from teleport.arrays import Ragged
    from teleport.encoder.budget import TOKEN_BUDGET
    from teleport.encoder.model import Encoder
    from teleport.encoder.precision import pick_device, resolve_precision
    from teleport.encoder.side import Side
    from teleport.search.exact import Exact
    from teleport.settings.training import Training
    from teleport.training.data import TrainingSet
    from teleport.training.dual_encoder import Trainer
    from teleport.training.losses import softmax
    from teleport.training.objective import Objective, Term

    rng, device, threads = np.random.default_rng(0), pick_device(), len(os.sched_getaffinity(0))
    tokens = Ragged(20 * np.arange(TEXTS + 1), rng.integers(4, 200, 20 * TEXTS).astype(np.uint16))
    backbone = BertModel(BertConfig(**TINY), add_pooling_layer=False)
    for name, weight in backbone.named_parameters():
        norm = "LayerNorm.weight" in name
        torch.nn.init.constant_(weight, 1.0) if norm else torch.nn.init.normal_(weight, std=0.02)
    side = Side(Encoder(backbone, "mean"), tokens, 24, SPECIAL, resolve_precision("auto", device))
    pools = Ragged(8 * np.arange(QUERIES + 1), rng.integers(QUERIES, TEXTS, 8 * QUERIES).astype(np.int32))
    positives = Ragged(np.arange(QUERIES + 1), np.arange(QUERIES, dtype=np.int32))
    options = {"loss": {"kind": "softmax"}, "batch_queries": 4, "negatives_per_query": 3, "steps": 2}
    training = Training(**options, positive="first", warmup_ratio=0.0)
    data = TrainingSet([f"q{i}" for i in range(QUERIES)], positives, pools, training, 0)
    settings = SimpleNamespace(training=training, scale=1.0)
    trainer = Trainer(side, side, data, Objective([Term(softmax.loss)]), settings, 2, 0, device)
    losses = [trainer.finish(trainer.step(step))[0] for step in range(2)]
    with torch.inference_mode():
        side.encoder.eval()
        vectors = side.vectors(np.arange(TEXTS), TOKEN_BUDGET["encode"][device.type]).cpu().numpy()
    index = Exact(vectors, threads=threads)
    found_Q, products_QP = index.search(vectors[:QUERIES], 10)[0][:, 0], vectors[:QUERIES] @ vectors.T
    if not np.allclose(products_QP[np.arange(QUERIES), found_Q], products_QP.max(1), rtol=1e-4):
        return FAILS, "the search did not find the nearest vectors: run `make test-gpu`, which says more"
    return OK, f"on {device.type}, loss {losses[0]:.2f}; {index.engine} search of {TEXTS:,} vectors"
