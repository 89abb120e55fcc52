"""What a `negatives_file` stage is told."""

from typing import Literal

from teleport.settings.section import Section


class NegativesFileSettings(Section):
    """The settings of a `negatives_file` stage."""

    path: str
    sha256: str
    form: Literal["tevatron", "dpr", "token-ids"]
