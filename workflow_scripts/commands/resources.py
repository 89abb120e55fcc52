"""This workflow's own resources, from --set-resources and profiles: they decide how a stage runs, and no result."""

import re

from pydantic import Field

from teleport.refusal import Refusal
from teleport.settings.section import Section
from teleport.settings.yaml_mapping import Locations, validated


class Own(Section):
    """The resources of a kind of stage besides Snakemake's own."""

    save_every: float = Field(60, ge=0, description="Seconds of work that a kill may cost.")
    processes: int | None = Field(None, ge=1, description="Of a training, as on CPUs; null: one for each GPU.")
    compile: bool = Field(False, description="Whether torch.compile prepares an encoder on CUDA.")


def own_resources(kind, resources):
    """The `Own` resources of a job. Raises Refusal that names the kind and the resource."""
    given = {name: value for name in Own.model_fields if (value := resources.get(name)) is not None}
    return validated(Own, given, ("resources", kind), Locations([]))


def gpus_of(resources):
    """How many GPUs a job has: by `gpu`, or by `gres` (gpu:2 or gpu:A100:2) if a site takes only that.

    Raises Refusal for a `gres` of another form.
    """
    gpus, given = resources.get("gpu", 0), str(resources.get("gres", ""))
    gres = re.fullmatch(r"gpu(?::(?!\d+$)[\w.-]+)?(?::(\d+))?", given)
    if re.match("gpu(:|$)", given) and not gres and not gpus:
        raise Refusal(f"resources: gres is {given!r}. Write gpu:2, or gpu:TYPE:2 with the type of the card.")
    return gpus or (int(gres[1] or 1) if gres else 0)
