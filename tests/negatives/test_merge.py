"""The merge against an independent implementation: plain loops over Python lists and dictionaries."""

import hashlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teleport.negatives import merge
from teleport.negatives.pool import FIELDS
from teleport.runtime.artefact import Artefact
from teleport.runtime.seed import derive_seed

FLAGS = {"query": 1, "positive": 2, "momentum": 4}
ROLES = {"query": "queries", "positive": "positives"}
MASK = 2**64 - 1


# --- making inputs and running the stage ------------------------------------------------------------------------------


def make_collection(stages, query_ids, judgments, positive_grade=1):
    """judgments: (query row, passage row, grade) triples."""
    job = stages.make("collection")
    queries = {"query_id": query_ids, "text": [f"text of {name}" for name in query_ids]}
    pq.write_table(pa.table(queries), job.output("queries.train.parquet"))
    columns = dict(zip(("query", "passage", "grade"), np.array(judgments, np.int32).reshape(-1, 3).T, strict=True))
    pq.write_table(pa.table(columns), job.output("qrels.train.parquet"))
    return stages.finish(job, {"positive_grade": positive_grade})


def make_retrieval(stages, ids, rows=None):
    """A retrieve stage with lists `ids` [L, D]; scores fall with the rank and differ between lists."""
    ids = np.array(ids, np.int32)
    rows = np.arange(len(ids)) if rows is None else np.array(rows)
    job = stages.make("retrieve")
    scores = (np.arange(len(ids))[:, None] - np.arange(ids.shape[1]) / 64).astype(np.float32)
    for name, array in {"ids": ids, "scores": scores, "rows": rows.astype(np.int32)}.items():
        with open(job.output(f"{name}.npy"), "wb") as file:
            np.save(file, array)
    stages.finish(job)
    job.lists = [(int(row), line.tolist(), score.tolist()) for row, line, score in zip(rows, ids, scores, strict=True)]
    return job


def run_merge(stages, collection, lists, momentum=None, **settings):
    """Run the stage; `lists` is {source: retrieve job}. Returns the finished job, its pools and facts as attributes."""
    inputs = {"collection": collection} | {ROLES[source]: job for source, job in lists.items()}
    inputs |= {"momentum": momentum} if momentum else {}
    given = {"sources": [*lists, *(["momentum"] if momentum else [])], "seed": 42, "keep_duplicates": True} | settings
    job = stages.run(merge.run, "merge", given, inputs)
    columns = {name: np.load(job.folder / f"{name}.npy") for name in FIELDS}
    assert {name: column.dtype for name, column in columns.items()} == FIELDS
    offsets = np.load(job.folder / "offsets.npy")
    flat = list(zip(*(columns[name].tolist() for name in FIELDS), strict=True))
    job.pools = [flat[start:stop] for start, stop in zip(offsets, offsets[1:], strict=False)]
    job.merge_facts = Artefact(job.folder).facts
    return job


def passages_of(job):
    return [[item[0] for item in pool] for pool in job.pools]


# --- the independent implementation -----------------------------------------------------------------------------------


def mix(value):
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def draw(query_id, seed, source, episode, slot):
    hashed = int.from_bytes(hashlib.blake2b(query_id.encode(), digest_size=8).digest(), "little")
    return mix((mix(hashed ^ derive_seed(seed, "merge", source, episode)) + 0x9E3779B97F4A7C15 * (slot + 1)) & MASK)


def sample(candidates, count, *stream):
    """candidates: {slot: item}. The `count` slots with the smallest draws, in the order of the slots."""
    return [candidates[slot] for slot in sorted(sorted(candidates, key=lambda slot: draw(*stream, slot))[:count])]


def brute_force(query, query_id, positives, lists, last_pool, settings, counts):
    pool, facts = [], SimpleNamespace(short=[], drawn={})
    for source in settings["sources"]:
        candidates, slot = {}, 0
        if source == "momentum":
            candidates = {s: (p, flag | 4, e, r, v) for s, (p, flag, e, r, v) in enumerate(last_pool)}
        else:
            for row, ids, scores in lists[source].lists:
                for rank, (passage, score) in enumerate(zip(ids, scores, strict=True), 1):
                    if row == query:
                        if passage != -1 and passage not in positives:
                            candidates[slot] = (passage, FLAGS[source], settings["episode"], rank, score)
                        slot += 1
        count = counts.get(source, len(candidates))
        if len(candidates) < count:
            facts.short.append(source)
        drawn = sample(candidates, count, query_id, settings["seed"], source, settings["episode"])
        facts.drawn[source] = len(drawn)
        pool += drawn
    facts.duplicates = len(pool) - len({item[0] for item in pool})
    if not settings["keep_duplicates"]:
        united = {}
        for passage, flag, first, rank, score in pool:
            old = united.get(passage, (0, flag, first, rank, score))
            united[passage] = (passage, old[1] | flag, min(old[2], first), old[3], old[4])
        pool = list(united.values())
    return pool, facts


@pytest.mark.parametrize("keep_duplicates", [True, False])
@pytest.mark.parametrize("mode", ["mixture", "released"])
@pytest.mark.parametrize("sources", [("query", "positive"), ("query",), ("positive",)])
def test_equals_the_brute_force_over_three_episodes(stages, monkeypatch, mode, keep_duplicates, sources):
    monkeypatch.setattr(merge, "BLOCK_SLOTS", 150)  # several blocks of queries, the last one incomplete
    rng = np.random.default_rng(len(mode) + 10 * keep_duplicates + 100 * len(sources[0]) + 1000 * len(sources))
    num_queries, num_passages, depth, grade = 23, 40, 12, 2
    query_ids = [f"q{number}" for number in rng.permutation(1000)[:num_queries]]
    judgments = [
        (q, p, rng.integers(4)) for q in range(num_queries) for p in rng.choice(num_passages, 6, replace=False)
    ]
    positives = [{p for q, p, g in judgments if q == query and g >= grade} for query in range(num_queries)]
    collection = make_collection(stages, query_ids, judgments, grade)
    counts = [{"query": 4, "positive": 4}, {"query": 2, "positive": 2, "momentum": 4}]
    if len(sources) == 1:
        counts = [dict.fromkeys(sources, 8), dict.fromkeys(sources, 4) | {"momentum": 4}]
    if mode == "released":
        counts = [dict.fromkeys(sources, 7)] * 2
    last = None
    for episode in (1, 2, 3):
        ids = {source: [rng.permutation(num_passages)[:depth] for _ in range(40)] for source in sources}
        for line in ids[sources[0]]:
            line[rng.integers(1, depth + 1) :] = -1  # some lists end early, some nearly at once
        rows = {"query": np.arange(num_queries), "positive": rng.integers(num_queries, size=40)}
        lists = {s: make_retrieval(stages, ids[s][: len(rows[s])], rows[s]) for s in sources}
        settings = {"mode": mode, "episode": episode, "keep_duplicates": keep_duplicates}
        settings |= {"per_source": 7} if mode == "released" else {"pool": 8, "alpha": 0.5, "beta": 0.5}
        job = run_merge(stages, collection, lists, last, **settings)
        expected, facts = zip(
            *(
                brute_force(
                    query, query_ids[query], positives[query], lists, last and last.pools[query], job.raw_settings,
                    counts[episode > 1],
                )
                for query in range(num_queries)
            ),
            strict=True,
        )  # fmt: skip
        assert job.pools == list(expected)
        drawn = {s: sum(fact.drawn[s] for fact in facts) for s in job.raw_settings["sources"]}
        assert job.merge_facts["drawn"] == drawn
        short = {s: sum(s in fact.short for fact in facts) for s in job.merge_facts["wanted"]}
        assert job.merge_facts["short_queries"] == short
        assert job.merge_facts["overlap"] == sum(fact.duplicates for fact in facts) / sum(drawn.values())
        last = job
    assert any(job.merge_facts["short_queries"].values()) and job.merge_facts["overlap"] > 0.02  # not vacuous


# --- single properties ------------------------------------------------------------------------------------------------


def test_a_literal_example(stages):
    """Lists no longer than the counts, so nothing is left to chance."""
    collection = make_collection(stages, ["a", "b", "c"], [(0, 10, 1), (1, 11, 1), (1, 12, 1), (2, 13, 1), (0, 1, 0)])
    queries = make_retrieval(stages, [[1, 10, 2], [11, 12, 3], [13, -1, -1]])
    positives = make_retrieval(stages, [[10, 2, 4], [11, 12, -1], [13, -1, -1]])
    lists = {"query": queries, "positive": positives}
    first = run_merge(stages, collection, lists, mode="released", per_source=2, episode=1)
    assert first.pools == [
        [(1, 1, 1, 1, 0.0), (2, 1, 1, 3, -2 / 64), (2, 2, 1, 2, -1 / 64), (4, 2, 1, 3, -2 / 64)],
        [(3, 1, 1, 3, 1 - 2 / 64)],
        [],
    ]
    assert first.merge_facts == {
        "wanted": {"query": 2, "positive": 2},
        "drawn": {"query": 3, "positive": 2},
        "short_queries": {"query": 2, "positive": 2},
        "first_episodes": {"1": 5},
        "negatives": 5,
        "empty_queries": 1,
        "overlap": 0.2,
    }
    second = run_merge(stages, collection, lists, first, mode="released", per_source=2, episode=2)
    assert passages_of(second) == [[1, 2, 2, 4, 1, 2, 2, 4], [3, 3], []]
    assert [item[1:3] for item in second.pools[0]] == [(1, 2)] * 2 + [(2, 2)] * 2 + [(5, 1)] * 2 + [(6, 1)] * 2
    single = run_merge(
        stages, collection, lists, first, mode="released", per_source=2, episode=2, keep_duplicates=False
    )
    assert [item[:3] for item in single.pools[0]] == [(1, 5, 1), (2, 7, 1), (4, 6, 1)]
    assert single.merge_facts["negatives"] == 4


def test_all_queries_may_be_without_negatives(stages):
    collection = make_collection(stages, ["a", "b"], [(0, 1, 1), (1, 1, 1)])
    lists = {"query": make_retrieval(stages, [[1], [1]])}
    first = run_merge(stages, collection, lists, mode="mixture", pool=4, episode=1)
    second = run_merge(stages, collection, lists, first, mode="mixture", pool=4, alpha=0.5, episode=2)
    assert first.pools == second.pools == [[], []]
    assert second.merge_facts["empty_queries"] == 2


def long_lists(stages, num_queries=200, depth=100, start=0):
    """Lists of passages that no other list has, so that the passage tells query and rank."""
    return make_retrieval(stages, start + np.arange(num_queries * depth).reshape(num_queries, depth))


def test_sampling_really_happens(stages):
    names = [f"q{n}" for n in range(200)]
    collection, lists = make_collection(stages, names, [(q, 10**6, 1) for q in range(200)]), long_lists(stages)
    settings = {"mode": "released", "per_source": 30, "episode": 1}
    job = run_merge(stages, collection, {"query": lists}, **settings)
    ranks = np.array([[item[3] for item in pool] for pool in job.pools])
    assert (ranks.min(), ranks.max()) == (1, 100)
    assert abs(ranks.mean() - 50.5) < 1.5  # 4 standard errors; the best thirty have 15.5
    assert len({tuple(row) for row in ranks.tolist()}) == 200  # each query has its own draw
    both = run_merge(stages, collection, {"query": lists, "positive": lists}, **settings)
    assert [pool[:30] for pool in both.pools] == job.pools  # another source changes nothing in this one
    assert all([item[0] for item in pool[:30]] != [item[0] for item in pool[30:]] for pool in both.pools)
    for other in ({"seed": 43}, {"episode": 2}):
        changed = run_merge(stages, collection, {"query": lists}, **(settings | other))
        assert all(a != b for a, b in zip(passages_of(job), passages_of(changed), strict=True))
    assert run_merge(stages, collection, {"query": lists}, **settings).pools == job.pools


def test_a_sample_does_not_depend_on_the_other_queries(stages):
    names = [f"q{n}" for n in range(200)]
    lists, some = long_lists(stages), [150, 3, 77]
    settings = {"mode": "mixture", "pool": 20, "episode": 1}
    whole = run_merge(stages, make_collection(stages, names, []), {"query": lists}, **settings)
    ids = np.load(lists.folder / "ids.npy")[some]
    part = run_merge(
        stages,
        make_collection(stages, [names[n] for n in some], []),
        {"query": make_retrieval(stages, ids)},
        **settings,
    )
    assert passages_of(part) == [passages_of(whole)[n] for n in some]


def shares_of_episodes(stages, episodes, **settings):
    """Share of each first episode in the last pool, when all episodes mine different passages."""
    collection, last = make_collection(stages, [f"q{n}" for n in range(200)], []), None
    for episode in range(1, episodes + 1):
        lists = {
            "query": long_lists(stages, start=episode * 10**5),
            "positive": long_lists(stages, start=10**7 + episode * 10**5),
        }
        last = run_merge(stages, collection, lists, last, episode=episode, **settings)
    total = last.merge_facts["negatives"]
    return {episode: count / total for episode, count in last.merge_facts["first_episodes"].items()}


def test_old_episodes_decay_geometrically_in_mode_mixture(stages):
    shares = shares_of_episodes(stages, 4, mode="mixture", pool=40, alpha=0.5, beta=0.5)
    assert shares["4"] == 0.5
    assert abs(shares["3"] - 0.25) < 0.02
    assert abs(shares["2"] - 0.125) < 0.02
    assert abs(shares["1"] - 0.125) < 0.02


def test_all_episodes_weigh_the_same_in_mode_released(stages):
    shares = shares_of_episodes(stages, 3, mode="released", per_source=30)
    assert shares == {"1": 1 / 3, "2": 1 / 3, "3": 1 / 3}


def test_a_query_with_many_anchors_does_not_make_the_blocks_of_others_small(monkeypatch):
    monkeypatch.setattr(merge, "BLOCK_SLOTS", 100)
    settings = SimpleNamespace(mode="released", per_source=1, sources=["positive", "momentum"], seed=1, episode=2)
    widths = {"positive": [10] * 14 + [300, 0, 0, 120] + [10] * 3, "momentum": [0] * 20 + [40]}
    sources = {name: SimpleNamespace(widths_Q=np.array(widths_Q)) for name, widths_Q in widths.items()}
    blocks = list(merge.Merge(settings, sources, np.zeros(21, np.uint64)).blocks())
    assert blocks == [(0, 10), (10, 14), (14, 15), (15, 17), (17, 18), (18, 20), (20, 21)]


def test_known_positives_are_removed_from_every_anchor_s_list(stages):
    judgments = [(0, 1, 1), (0, 2, 1), (0, 3, 0), (1, 3, 1)]
    collection = make_collection(stages, ["a", "b"], judgments)
    anchors = make_retrieval(stages, [[1, 2, 3, 4], [2, 1, 4, 5], [3, 1, 2, 6]], rows=[0, 0, 1])
    job = run_merge(stages, collection, {"positive": anchors}, mode="released", per_source=9, episode=1)
    assert passages_of(job) == [[3, 4, 4, 5], [1, 2, 6]]
    assert [item[3] for item in job.pools[0]] == [3, 4, 3, 4]


def test_momentum_alone_is_refused(stages):
    collection = make_collection(stages, ["a"], [])
    with pytest.raises(ValueError, match=r"negatives.sources leaves episode 1 with \[\].*Add `query` or `positive`"):
        run_merge(stages, collection, {}, mode="mixture", pool=4, episode=1)


def test_merge_loads_neither_torch_nor_pandas():
    scripts = Path(__file__).resolve().parents[2] / "workflow_scripts"
    code = "import sys, teleport.negatives.merge; print([n for n in ('torch', 'pandas', 'scipy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=scripts, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
