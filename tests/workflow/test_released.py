"""`snakemake published_checkpoints`: released checkpoints in their repositories' file forms, from a hub on loopback.

Their vectors are those that transformers computes, and nothing is trained.
"""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest
from official_world import OfficialWorld, marco_files, nq_files, read_config

LIGHT = {"download", "corpus", "split", "pretrained", "tokens", "encode", "index", "retrieve", "evaluate"}


def check_released(tmp_path, name, files):
    """(world, what was printed, rows of the table) of a released target that has run."""
    world = OfficialWorld.create(tmp_path / name, name, files, episodes=1)
    try:
        printed = world.snakemake("published_checkpoints")
    finally:
        world.close()
    with open(world.folder / f"results/published/{name}/released-checkpoints.csv") as table:
        return world, printed, list(csv.DictReader(table))


def column(world, name, *columns):
    """Columns of a file of the corpus, or of a split, as lists."""
    (path,) = (world.folder / "results/stages").glob(f"*/*/{name}")
    table = pq.read_table(path)
    return [table[column].to_pylist() for column in columns]


def texts(world, encoder):
    """{file of the encode stage: its texts as the released code joins them}."""
    titles, passages = column(world, "corpus.parquet", "title", "text")
    if encoder.get("title") != "none":
        passages = [f"{t} [SEP] {p}" if t else p for t, p in zip(titles, passages, strict=True)]
    split = "test" if encoder.get("tied") is False else "dev"
    return {"passages.npy": passages, f"queries.{split}.npy": column(world, f"queries.{split}.parquet", "text")[0]}


def assert_vectors_are_those_of_transformers(world):
    """Of every entry of `external`, by the manifests that lead from its hub id to its encode stage."""
    manifests = world.manifests()
    pretrained = {name: m for name, m in manifests.items() if name.startswith("pretrained/")}
    made = {name: m for name, m in manifests.items() if name.startswith("encode/")}
    encodes = {(m["inputs"]["checkpoint"], f"{m['settings']['of']}.npy"): name for name, m in made.items()}
    for entry in read_config(world.name)["external"].values():
        encoder = entry["encoder"]
        hub_ids = [encoder[side]["hub"] for side in ("checkpoint", "query_checkpoint") if side in encoder]
        (stage,) = [n for n, m in pretrained.items() if m["settings"]["checkpoint"]["hub"] == hub_ids[0]]
        assert pretrained[stage]["facts"]["commit"] == world.hub.commit(hub_ids[0])
        for (file, wanted), hub_id in zip(texts(world, encoder).items(), (hub_ids * 2)[:: len(hub_ids)], strict=False):
            side = "passage" if file == "passages.npy" else "query"
            longest = encoder.get(f"max_{side}_tokens", world.config["encoder"][f"max_{side}_tokens"])
            hub_id = hub_ids[-1] if side == "query" else hub_ids[0]
            expected = world.released[hub_id].encode(wanted, longest)
            found = np.load(world.folder / "results/stages" / encodes[stage, file] / file)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=f"{hub_id} {file}")


@pytest.mark.slow
def test_two_repositories_of_one_system(tmp_path):
    world, printed, rows = check_released(tmp_path, "nq", nq_files())
    assert {name.split("/")[0] for name in world.manifests()} == LIGHT, "nothing is mined, merged or trained"
    assert [(row["system"], row["figure"], float(row["published"])) for row in rows] == [
        *(("ANCE-Tele", f"NQ test R@{k}", value) for k, value in ((5, 77.0), (20, 84.9), (100, 89.7))),
        ("ANCE, Natural Questions and TriviaQA", "NQ test R@20", 82.24),
        ("ANCE, Natural Questions and TriviaQA", "NQ test R@100", 87.87),
    ]
    assert all(0 <= float(row["ours"]) <= 100 and row["verdict"] != "not run" for row in rows)
    for words in ("Released checkpoints under our evaluation", "| NQ test R@20 | 84.9 |", "Verdict"):
        assert words in printed
    assert_vectors_are_those_of_transformers(world)


@pytest.mark.slow
def test_tied_headed_and_distilbert(tmp_path):
    world, printed, rows = check_released(tmp_path, "marco", marco_files())
    assert {name.split("/")[0] for name in world.manifests()} == LIGHT
    systems = {
        "ANCE-Tele",
        "ANCE-Tele from COCO-DR, without titles",
        "ANCE FirstP",
        "TAS-B",
        "TAS-B (card)",
        "coCondenser",
    }
    assert {row["system"] for row in rows if row["ours"]} == systems
    assert {row["system"] for row in rows if row["verdict"] == "not run"} == {"ADORE+STAR"}
    assert "| ANCE FirstP | MS MARCO dev MRR@10 | 33.02 |" in printed
    assert_vectors_are_those_of_transformers(world)


@pytest.mark.ci(0)
def test_without_released_checkpoints_the_target_says_so(world):
    printed = world.snakemake("published_checkpoints", check=False)
    assert "no published table has only figures of released checkpoints: name one under the key" in printed
