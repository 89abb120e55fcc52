"""What every part of the configuration is: frozen, without unknown keys."""

from pydantic import BaseModel, ConfigDict

NAME = "^[A-Za-z0-9][A-Za-z0-9._-]*$"  # of configurations, experiments and systems from elsewhere: they become folders
TABLE_NAME = "^[A-Za-z0-9][A-Za-z0-9_-]*$"  # of ablations: they become files, whose ending begins at the dot
MAIN_TABLE = "main"


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
