"""What every part of the configuration is: frozen, without unknown keys."""

from pydantic import BaseModel, ConfigDict

NAME = "^[A-Za-z0-9][A-Za-z0-9._-]*$"  # of configurations, experiments and ablations: they become folders


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
