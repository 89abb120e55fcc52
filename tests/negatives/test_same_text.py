"""Copies of known positives under other ids, and a query's own text, are no negatives where a setting says so."""

import numpy as np
import pytest

from teleport.collection.reader import read_positives, with_same_text
from teleport.running.artefact import Artefact
from teleport.training.data import read_training_set
from training_world import settings as train_settings

TEXTS = ["a cat", "two dogs", "A  CAT", "an emu", "who runs", "two dogs", "a fox", "Who runs", "a hen", "a cow"]
QUERIES = ["what sleeps", "who runs", "what barks"]
POSITIVES = [[0], [3], [1, 6]]  # whose copies are 2; none, but 4 and 7 are the query itself; 5
KNOWN = [{0, 2}, {3, 4, 7}, {1, 5, 6}]


@pytest.fixture
def collection(stages, tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "corpus.tsv").write_text("".join(f"d{n}\t{text}\n" for n, text in enumerate(TEXTS)))
    (folder / "queries.train.tsv").write_text("".join(f"q{n}\t{text}\n" for n, text in enumerate(QUERIES)))
    judged = [(query, passage) for query, own in enumerate(POSITIVES) for passage in own]
    (folder / "qrels.train.tsv").write_text("".join(f"q{query} 0 d{passage} 1\n" for query, passage in judged))
    return stages.collection({"source": "folder", "path": str(folder)})


def test_known_passages_have_all_copies(collection):
    train = collection.split("train")
    known = with_same_text(Artefact(collection["corpus"].folder), train, "train", read_positives(train, "train"))
    assert [known[row].tolist() for row in range(3)] == [sorted(own) for own in KNOWN]
    assert known.values.dtype == np.int32


@pytest.mark.parametrize("same_text", [False, True])
def test_a_pool_has_no_copy_of_a_positive(world, collection, same_text):
    """All passages that may be drawn are; without the setting copies are among them."""
    job = world.merge(collection, {"random": 200}, {}, keep_duplicates=False, same_text=same_text)
    known = KNOWN if same_text else map(set, POSITIVES)
    assert [set(pool) for pool in job.passages] == [set(range(len(TEXTS))) - own for own in known]


@pytest.mark.parametrize("same_text", [False, True])
def test_a_mask_knows_the_copies(stages, collection, same_text):
    """Those of other queries in the batch."""
    training = {"masks": ["known_positives"], "negatives_per_query": 0, "batch_queries": 2}
    job = stages.make("train", train_settings(training, same_text=same_text), {"collection": collection})
    data = read_training_set(job, seed=1)
    known = KNOWN if same_text else map(set, POSITIVES)
    assert [set(data.known_positives(row).tolist()) for row in range(3)] == list(known)
    assert [data.positives[row].tolist() for row in range(3)] == POSITIVES, "what is trained on stays"


def test_papers_go_by_ids_and_own_collections_by_text():
    """The key of a pool that does not ask for it is as before."""
    from paths import REPOSITORY
    from teleport.settings.negatives import Negatives
    from teleport.settings.yaml_mapping import read_mapping

    assert "same_text" not in Negatives().model_dump() and Negatives(same_text=True).model_dump()["same_text"] is True
    own = read_mapping(REPOSITORY / "config/own-data.yaml")["negatives"]
    assert own == {"same_text": True}
    for name in ("marco", "nq", "triviaqa", "marco-doc", "config"):
        assert "same_text" not in (REPOSITORY / f"config/{name}.yaml").read_text()
