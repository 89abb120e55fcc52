"""Every loss and mask of the registry, and a loss of several widths, with gradient caching, processes, micro-batches
and MaxP: the gradients of the plain step; and what a training refuses of those who teach it."""

import json
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from test_training_parallel import spec_of, without_gpu  # noqa: F401
from training_process import gradients_of

from teleport.arrays import CHUNK_OFFSETS, Ragged
from teleport.negatives import file
from teleport.negatives.scores import PairTable, write_table
from teleport.refusal import Refusal
from teleport.running.files import sha256_file
from teleport.running.launch import launch
from teleport.settings.registry import LOSSES, MASKS, own_settings
from teleport.training import objective, train, vectors
from teleport.training.data import read_training_set
from teleport.training.parallel import ALONE
from training_world import World, backward, make_trainer

CHUNKED = {"max_passage_tokens": 8, "chunks": 3}
BATCH = [name for name, entry in LOSSES.items() if entry.takes != "lists"]
BY_JUDGMENTS = ["bixse", "listmle"]
SUMS = ["margin-mse and softmax", "kl and distill", "joint and bixse"]
REMEMBERING = ["bidirectional", "hardness", "focal", "m3-kd", "bixse", "hardest", "margin-mse and softmax"]
# All of them have the mask known_positives, and other_negatives is refused.
REMEMBERING += [f"mask {name}" for name in MASKS if name not in ("known_positives", "other_negatives")]
NAMES = [
    *BATCH,
    *(f"mask {name}" for name in MASKS),
    *(f"{name} by judgments" for name in BY_JUDGMENTS),
    *(f"{name} with memory" for name in REMEMBERING),
    *SUMS,
    "widths",
    "mixed",
]
CASES = [(name, chunks) for name in NAMES for chunks in (1, 3) if chunks == 1 or name != "mixed"]


def chosen(table, name, **changes):
    return {"kind": name} | own_settings(table[name].module)().model_dump() | changes


def training_of(name):
    """The settings of a training with a loss or two, or with the softmax and a mask, or with it over several widths."""
    if name == "widths":
        return {"widths": [8, 20, 32]}
    if name == "mixed":
        return {"mixed_negatives": 4, "widths": [16, 32]}
    if name.endswith(" with memory"):
        made = training_of(name := name.removesuffix(" with memory"))
        if name == "hardness":
            made["loss"]["of"] = "all"  # else own negatives count for nearly all
        return made | {"memory": 40, "masks": ["known_positives", *made.get("masks", [])]}
    if " and " in name:
        first, second = name.split(" and ")
        return {"loss": [chosen(LOSSES, first), chosen(LOSSES, second, weight=0.5)]}
    if name.endswith(" by judgments"):
        return {"loss": chosen(LOSSES, name.removesuffix(" by judgments"), scores="judgments")}
    table, name = (MASKS, name.removeprefix("mask ")) if name.startswith("mask ") else (LOSSES, name)
    return {"masks": [chosen(table, name)]} if table is MASKS else {"loss": chosen(table, name)}


def world_of(stages):
    return World(stages, dropout=0.0, first_negative=0)  # pools have positives of others


def taught_of(world, **teacher):
    """{most chunks of a passage: inputs of a teacher whose passages have as many chunks as the model's}."""
    return {1: world.taught(**teacher), 3: world.taught(chunks=tuple(CHUNKED.values()), **teacher)}


def job_of(world, taught, name, chunks=1, **training):
    sizes = CHUNKED if chunks > 1 else {}
    training = {"batch_queries": 8, "max_grad_norm": 1e9} | training_of(name) | training
    return world.job(training, inputs=taught[chunks], scale=5.0, **sizes)


def gradients(job):
    """(loss, {name: gradient}) of a step with several buckets, in float64, which remembers passages of two others."""
    made = make_trainer(job, budget=60, double=True)
    if made.memory:
        made.optimizer.step = lambda: None
        made.step(0)
        made.step(2)
    loss = backward(made, made.data.batch(1))
    return loss, {name: p.grad.numpy() for name, p in made.encoders.named_parameters() if p.grad is not None}


def require_same(found, expected, tolerance=1e-9):
    assert found[0] == pytest.approx(expected[0], rel=tolerance)
    assert found[1].keys() == expected[1].keys() and len(expected[1]) > 30
    norm = np.sqrt(sum(np.square(gradient).sum() for gradient in expected[1].values()))
    error = np.sqrt(sum(np.square(found[1][name] - gradient).sum() for name, gradient in expected[1].items()))
    assert error <= tolerance * norm and norm > 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """{case: (its train job, loss and gradients of the plain step)}, and the world."""
    from stages import Stages

    torch.set_num_threads(1)  # small products gain nothing from more
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "pick_device", lambda: torch.device("cpu"))
        world = world_of(Stages(tmp_path_factory.mktemp("taught")))
        taught = taught_of(world)
        jobs = {case: job_of(world, taught, *case) for case in CASES}
        return world, taught, {case: (job, gradients(job)) for case, job in jobs.items()}


def test_guard_every_case_is_another_step(made):
    losses = {case: loss for case, (_, (loss, _)) in made[2].items()}
    assert len({round(loss, 8) for loss in losses.values()}) == len(CASES) >= 25


@pytest.mark.ci(16)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cached_equals_direct(made, case):
    world, taught, plain = made
    require_same(gradients(job_of(world, taught, *case, gradient_caching=True)), plain[case][1])


@pytest.mark.parametrize("name", [name for name in NAMES if "guide" in name or name in {"kl", "margin-mse", "distill"}])
def test_guard_the_teacher_matters(made, name):
    world, _, plain = made
    other = gradients(job_of(world, taught_of(world, seed=6), name))
    with pytest.raises(AssertionError):
        require_same(other, plain[name, 1][1], tolerance=1e-3)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(" with memory")])
def test_guard_the_memory_matters(made, name):
    world, taught, plain = made
    with pytest.raises(AssertionError):
        require_same(gradients(job_of(world, taught, name, memory=0)), plain[name, 1][1], tolerance=1e-3)


@pytest.mark.parametrize(("name", "chunks"), [("kl", 1), ("margin-mse", 1), ("listmle", 1), ("distill", 3)])
def test_micro_batches_of_a_loss_over_own_texts_are_the_whole_step(made, name, chunks):
    """A query's own list is in one micro-batch with it; `margin-mse` weighs pairs equally if masks leave some out, and
    `distill` weighs passages equally, however many chunks they have."""
    world, taught, _ = made
    masks = ["known_positives"]
    whole, split = (gradients(job_of(world, taught, name, chunks, accumulate=n, masks=masks)) for n in (1, 2))
    require_same(split, whole)


@pytest.mark.slow
@pytest.mark.usefixtures("without_gpu")
def test_two_processes_equal_one(made, tmp_path, monkeypatch):
    """All cases in one pair of processes, each with gradient caching."""
    world, taught, _ = made
    jobs = {case: job_of(world, taught, *case, gradient_caching=True) for case in CASES}
    pairs = json.dumps([[str(job.resume.parents[3]), spec_of(job)] for job in jobs.values()])
    script = str(Path(__file__).with_name("training_process.py"))
    assert launch(2, [sys.executable, script, pairs, str(tmp_path / "found")]) == 0
    ranks = [np.load(tmp_path / f"found.{rank}.npz") for rank in (0, 1)]
    torch.set_num_threads(1)
    for number, job in enumerate(jobs.values()):
        alone = gradients_of(job, ALONE, True)
        expected = alone.pop("loss"), alone
        for rank in ranks:
            require_same((rank[f"{number}d/loss"], {name: rank[f"{number}d/{name}"] for name in alone}), expected)


def test_a_training_learns_from_each_teacher(stages):
    """A whole stage: the loss falls."""
    world = World(stages)
    for name in ("kl and softmax", "distill"):
        facts = train.run(world.job({"steps": 40} | training_of(name), inputs=world.taught()))
        assert facts["last_loss"] < 0.9 * facts["first_loss"]


def test_a_training_learns_from_the_scores_of_a_file_of_negatives(stages, tmp_path):
    """The steps are those that a table of the same scores gives."""
    world, path, rng = World(stages), tmp_path / "negatives.jsonl", np.random.default_rng(2)
    ids = pq.read_table(world.inputs["collection"].folder / "corpus.parquet")["doc_id"].to_pylist()
    lines, table = [], {}
    for query in range(20):
        scores = {passage: float(rng.random(dtype=np.float32)) for passage in (query, query + 20, *range(40, 59))}
        table |= {(query, passage): score for passage, score in scores.items()}
        passages = [{"docid": ids[passage], "score": score} for passage, score in scores.items()]
        sides = {"positive_passages": passages[:2], "negative_passages": passages[2:]}
        lines.append(json.dumps({"query_id": f"query-{query:02d}"} | sides))
    path.write_text("\n".join(lines) + "\n")
    settings = {"path": str(path), "form": "tevatron", "sha256": sha256_file(path)}
    given = stages.run(file.run, "negatives_file", settings, {"collection": world.inputs["collection"]})
    other = stages.make("score")
    pairs = np.array(sorted(table))
    write_table(other, *pairs.T, np.array([table[tuple(pair)] for pair in pairs.tolist()]), 20)
    losses = []
    for teacher in (given, stages.finish(other)):
        loss = chosen(LOSSES, "margin-mse", scores="file")
        losses.append(train.run(world.job({"steps": 4, "loss": loss}, inputs={"scores.file": teacher}))["last_loss"])
    assert losses[0] == losses[1] > 0


@pytest.mark.parametrize(
    ("name", "taught", "says"),
    [
        ("distill", {"width": 16}, "teacher miner .*16 wide .*32.*encoder.projection to 16"),
        ("kl", {"scores": lambda n: np.ones(n)}, r"miner \(score/\w+\): all \d+ scores are 1"),
        ("bixse", {"scores": lambda n: np.linspace(-1, 1, n)}, r"bixse takes grades.*miner .*from -1 to 1"),
    ],
)
def test_what_teaches_nothing_is_refused(stages, name, taught, says):
    world = World(stages)
    with pytest.raises(Refusal, match=says):
        train.run(world.job(training_of(name), inputs=world.taught(**taught)))


def same(of, name, vectors):
    return np.repeat(vectors[:1], len(vectors), axis=0) if name == of else vectors


def broken(of, name, vectors):
    vectors[17, 5] = np.nan if name == of else vectors[17, 5]
    return vectors


@pytest.mark.parametrize("name", ["mask guide", "distill"])
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (partial(broken, "queries.train"), r"query 'query-17' \(row 17\) is not finite"),
        (partial(broken, "passages"), r"passage '(\w+)' \(row 17\) is not finite"),
        (partial(same, "queries.train"), "all 20 query vectors"),
        (partial(same, "passages"), "all 60 passage vectors"),
    ],
)
def test_vectors_that_teach_nothing_are_refused(stages, monkeypatch, name, spoil, says):
    """In blocks of which the first is sound."""
    monkeypatch.setattr(vectors, "BLOCK", 16)
    world = World(stages)
    with pytest.raises(Refusal, match=f"^the teacher miner: .*{says}"):
        train.run(world.job(training_of(name), inputs=world.taught(spoil=spoil)))


def test_a_chunk_that_is_not_finite_is_refused_with_its_passage(stages):
    world, chunks = World(stages), tuple(CHUNKED.values())
    taught = world.taught(chunks=chunks, spoil=partial(broken, "passages"))
    offsets = np.load(taught["vectors.miner.passages"].folder / CHUNK_OFFSETS)
    (row,) = np.flatnonzero((offsets[:-1] <= 17) & (offsets[1:] > 17))
    assert row != 17
    with pytest.raises(Refusal, match=rf"teacher miner: .*passage '\w+' \(row {row}\) is not finite"):
        train.run(world.job(training_of("mask guide"), inputs=taught, **CHUNKED))


def test_a_guide_may_have_vectors_of_another_width(stages):
    world = World(stages)
    assert train.run(world.job({"steps": 1} | training_of("mask guide"), inputs=world.taught(width=16)))["steps"] == 1


@pytest.mark.parametrize(("model", "teacher"), [(CHUNKED, None), ({}, (8, 3)), (CHUNKED, (9, 3))])
def test_vectors_of_other_chunks_are_not_compared(stages, model, teacher):
    world = World(stages)
    with pytest.raises(Refusal, match="teacher miner .*chunks"):
        train.run(world.job(training_of("distill"), inputs=world.taught(chunks=teacher), **model))


@pytest.mark.parametrize("model", [{}, CHUNKED])
def test_a_guide_may_have_chunks_of_its_own(stages, model):
    world = World(stages)
    job = world.job({"steps": 1} | training_of("mask guide"), inputs=world.taught(width=16, chunks=(9, 4)), **model)
    assert train.run(job)["steps"] == 1


@pytest.mark.parametrize("lacks", ["positive", "negative", "later positive", "untrained"])
def test_a_pair_that_only_a_later_batch_has_is_refused_before_the_first_step(stages, monkeypatch, lacks):
    """In blocks of queries of which the first is whole. What no batch has needs no score."""
    monkeypatch.setattr(objective, "BLOCK_QUERIES", 7)
    world = World(stages, sizes=[10] * 19 + [0])  # the last query has no pool
    training = training_of("kl") | {"positive": "first" if lacks == "later positive" else "rotate"}
    data = read_training_set(world.job(training), 1)
    pairs = {(query, passage) for query in range(20) for of in (data.positives, data.pools) for passage in of[query]}
    pairs.remove({"negative": (18, data.pools[18][9]), "untrained": (19, 19)}.get(lacks, (18, 38)))
    table = stages.make("score")
    write_table(table, *np.array(sorted(pairs)).T, np.random.default_rng(2).random(len(pairs)), 20)
    job = world.job(training, inputs={"scores.miner": stages.finish(table)})
    if lacks in ("positive", "negative"):
        with pytest.raises(Refusal, match=r"miner .*'query-18' \(row 18\)"):
            objective.open_objective(job, data, None)
    else:
        assert objective.open_objective(job, data, None).terms


def test_a_pair_without_a_score_is_refused_with_its_ids(stages):
    world = World(stages)
    taught = world.taught()
    world.inputs["negatives"] = World(stages, first_negative=0).inputs["negatives"]  # another pool than was scored
    with pytest.raises(Refusal, match=r"miner .*'query-\d\d' \(row \d+\) .*passage '"):
        train.run(world.job(training_of("kl"), inputs=taught))


def test_positives_are_looked_up_where_there_are_no_pools():
    """Nothing is mined: the loss reads the scores of positives alone."""
    table = PairTable("judge", np.array([0, 1, 1]), np.array([5], np.int32), np.array([0.5], np.float32))
    positives = Ragged(np.array([0, 1, 2]), np.array([5, 6], np.int32))
    for rows in ([0], [0, 1]):
        data = SimpleNamespace(
            positives=positives, pools=None, rows=np.array(rows), training=SimpleNamespace(positive="rotate")
        )
        with pytest.raises(Refusal, match="judge .*in row 1 .*in row 6") if 1 in rows else nullcontext():
            objective.require_pairs(table, data)
