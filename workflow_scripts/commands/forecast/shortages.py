"""What a plan needs and this machine lacks: room on the disk, memory, and memory of the GPU."""

import glob
import shutil

from commands.forecast.hardware import MEASURED, read_hardware
from commands.forecast.table import GB, forecast
from commands.forecast.timeline import bytes_to_come
from teleport.runtime.artefact import STAGES
from teleport.runtime.devices import DEVICE_FILES
from teleport.runtime.files import PRUNE

REMEDIES = {
    "retrieve": "Vectors that do not fit are read from the disk again for every block of queries, slowly.",
    "train": "Set training.gradient_caching: true, which gives the same gradients, or share the training among GPUs "
    "(--set-resources train:gpu=4); where it is set already, training.precision: bf16 or a device with more memory is "
    "left. A lower training.batch_queries or training.negatives_per_query changes the result.",
}


def shortages(plan):
    """What is too small for a plan on this machine, before it runs here: one sentence each (list of str).

    None where the size of the collection is not known yet, nor where there are GPUs and nobody has measured them.
    Where the measurement of this machine is not usable, a sentence on that.
    """
    if glob.glob(DEVICE_FILES) and not MEASURED.is_file():
        return []
    try:
        hardware = read_hardware()[1]
    except ValueError as error:
        return [str(error)]
    try:
        lines, _, costs = forecast(plan, hardware)
    except ValueError:
        return []
    return disk_shortage(bytes_to_come(plan, costs, hardware)) + memory_shortages(lines, hardware)


def disk_shortage(needed, folder=STAGES):
    """A sentence, in a list, where the disk of `folder`, where artefacts are written, has less than `needed` bytes."""
    existing = next(path for path in [folder.resolve(), *folder.resolve().parents] if path.exists())
    free = shutil.disk_usage(existing).free
    if needed <= free:
        return []
    return [
        f"disk: {needed / GB:.1f} GB are needed below {folder}, {free / GB:.1f} GB are free. Free some space "
        f"({PRUNE}), move `results`, or keep fewer vectors (`keep_vectors: none`, `encoder.vectors: fp16`)."
    ]


def memory_shortages(lines, hardware):
    """What is too small for the stages that are still to do: one sentence each (list of str)."""
    found = []
    for what, has in (("memory", hardware.room["memory"]), ("device_memory", hardware.device_memory)):
        for line in lines:
            needed = getattr(line, f"{what}_left")
            if has is not None and needed > has:
                found.append(
                    f"{what.replace('_', ' ')}: {line.kind} needs about {needed / GB:.1f} GB, there are "
                    f"{has / GB:.1f} GB. {REMEDIES.get(line.kind, 'Use a larger machine.')}"
                )
    return found
