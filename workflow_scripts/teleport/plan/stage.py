"""A planned stage: its key, its settings and its inputs.

The key is a digest of the stage's kind, of the settings that decide its result, and of the keys of the stages it reads.
It depends on content: a file enters as its SHA-256, and no path, no version of Python and no machine is part of a key.
So experiments share stages as far as they agree, and a changed setting makes new keys from the first stage it decides.
"""

import hashlib
import json
from dataclasses import dataclass, field

from teleport.settings.section import MINER, Section


@dataclass(frozen=True, eq=False)
class Stage:
    """One node of the DAG. `settings` are typed (a `Section`), `inputs` map a role to the stage that fills it.

    loads: {name: library module} to load by name; origins: where files are fetched from. Neither is part of the key.
    """

    kind: str
    settings: Section
    inputs: dict
    loads: dict = field(default_factory=dict)
    origins: dict = field(default_factory=dict)
    key: str = field(init=False)

    def __post_init__(self):
        identity = {"kind": self.kind, "settings": self.settings.identity(), "inputs": self.input_names}
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False)
        object.__setattr__(self, "key", hashlib.sha256(text.encode()).hexdigest()[:12])

    @property
    def name(self):
        """`kind/key`, also the stage's folder below results/stages."""
        return f"{self.kind}/{self.key}"

    @property
    def raw_settings(self):
        """All settings as plain JSON, including defaults."""
        return self.settings.model_dump(mode="json")

    @property
    def input_names(self):
        """{role: `kind/key`} of the stages it reads."""
        return {role: stage.name for role, stage in self.inputs.items()}


def out_of_domain(name, what):
    """The name of a split, or a stage, of the other collection `name`: "test-of-squad"."""
    return f"{what}-of-{name}"


def draws_from_retrieval(pool):
    """Whether a merge stage draws from a checkpoint's retrieval."""
    return any(stage.kind == "retrieve" for stage in pool.inputs.values())


def mined_by_others(pool):
    """The retrievals (list) by teachers that a merge stage draws from; none if the checkpoint that mines has one,
    too."""
    roles = [role for role, stage in pool.inputs.items() if stage.kind == "retrieve"]
    others = [role for role in roles if role.startswith("neighbours.") and role != f"neighbours.{MINER}"]
    return [pool.inputs[role] for role in others] if others == roles else []
