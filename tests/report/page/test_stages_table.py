"""The table of all finished stages on the page."""

import json

import numpy as np

from teleport.arrays import save_array
from teleport.report.page.overview import every_stage, finished_stages
from teleport.report.stages import Stages
from teleport.running.artefact import MANIFEST, Artefact
from teleport.running.files import write_json

PROVENANCE = {"wall_seconds": 1.0, "attempt": 1, "peak_memory_bytes": 1, "started": "2026-01-01T00:00:00Z"}
PROVENANCE |= {"hardware": {"processor": "P"}}


def test_deleted_vectors_are_not_on_the_disk(stages):
    job = stages.make("encode")
    save_array(job.output("passages.npy"), np.zeros(1000))
    stages.finish(job)
    write_json(job.folder / MANIFEST, json.loads((job.folder / MANIFEST).read_text()) | {"provenance": PROVENANCE})
    contents = {"stages": {f"encode/{job.key}": {"users": ["ance-tele"], "label": "encode"}}}

    def on_disk():
        return every_stage(finished_stages(Stages(stages.root), contents)).frame["On disk"].tolist()

    assert on_disk() == ["8.13 kB"]
    Artefact(job.folder).delete_files()
    assert on_disk() == ["0 bytes"]
