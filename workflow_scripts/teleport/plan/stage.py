"""A stage as it is planned: its key, what it reads, and what run_stage.py is told.

The key of a stage is a digest of its kind, of the settings that decide its result, and of the keys of the stages it
reads. Experiments that agree up to a stage therefore share it, and a changed setting makes new keys from the first
stage that it decides, nowhere else.
"""

import hashlib
import json
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stage:
    """One node of the DAG. `inputs` maps a role to the stage that fills it.

    `places` are told to the stage but decide nothing: where files are fetched from. They are in neither key nor spec.
    """

    kind: str
    settings: dict
    inputs: dict
    key: str = field(default="")
    places: dict = field(default_factory=dict, compare=False)

    def __post_init__(self):
        identity = [self.kind, self.settings, {role: stage.name for role, stage in self.inputs.items()}]
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False)
        object.__setattr__(self, "key", hashlib.sha256(text.encode()).hexdigest()[:12])

    @property
    def name(self):
        """`kind/key`, also the stage's folder below results/stages."""
        return f"{self.kind}/{self.key}"

    def spec(self):
        """The stage as run_stage.py takes it (JSON text)."""
        inputs = {role: stage.name for role, stage in self.inputs.items()}
        spec = {"kind": self.kind, "key": self.key, "settings": self.settings, "inputs": inputs}
        return json.dumps(spec, sort_keys=True, ensure_ascii=False)


def score(collection, run, split, evaluation):
    """Kind, settings and inputs of the evaluation of a run on a split."""
    settings = {"split": split, "measures": evaluation.measures_of(split)}
    if evaluation.collapse:
        settings |= {"collapse": evaluation.collapse, "separator": evaluation.separator}
    return "evaluate", settings, {"collection": collection, "run": run}
