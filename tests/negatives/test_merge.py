"""The merge against an independent implementation: plain loops over Python lists and dictionaries."""

import hashlib
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from teleport.arrays import Run, save_array
from teleport.negatives import merge
from teleport.negatives.budget import FIELDS
from teleport.negatives.candidates import blocks
from teleport.seed import derive_seed
from teleport.settings.pool import Pool
from teleport.settings.section import Part

SEED_NAMES = {"query": "query", "lookahead": "positive", "momentum": "momentum"}
MASK = 2**64 - 1
POOLS = "752bdd827ada0696"  # of three pools of ANCE-Tele below; the brute force could change together with the stage

# --- the independent implementation -----------------------------------------------------------------------------------


def mix(value):
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def draw(query_id, seed, source, episode, slot):
    hashed = int.from_bytes(hashlib.blake2b(query_id.encode(), digest_size=8).digest(), "little")
    return mix(
        (mix(hashed ^ derive_seed(seed, "merge", SEED_NAMES[source], episode)) + 0x9E3779B97F4A7C15 * (slot + 1)) & MASK
    )


def sample(candidates, count, *stream):
    """candidates: {slot: item}. The `count` slots with the smallest draws, in the order of the slots."""
    return [candidates[slot] for slot in sorted(sorted(candidates, key=lambda slot: draw(*stream, slot))[:count])]


def brute_force(query, query_id, positives, lists, last_pool, settings, counts):
    pool, facts = [], SimpleNamespace(short=[], drawn={})
    for source in settings["sources"]:
        candidates, slot = {}, 0
        if source == "momentum":
            found = [source.removesuffix("+momentum") for _, source, *_ in last_pool]
            candidates = {
                s: (p, f"{name}+momentum", e, r, None)
                for s, (name, (p, _, e, r, _)) in enumerate(zip(found, last_pool, strict=True))
            }
        else:
            for row, ids, scores in lists[source].lists:
                for rank, (passage, score) in enumerate(zip(ids, scores, strict=True), 1):
                    if row == query:
                        if passage != -1 and passage not in positives:
                            known = score if source == "query" else None  # d+·d is no score of the query
                            candidates[slot] = (passage, source, settings["episode"], rank, known)
                        slot += 1
        count = counts[source]
        if len(candidates) < count:
            facts.short.append(source)
        drawn = sample(candidates, count, query_id, settings["seed"], source, settings["episode"])
        facts.drawn[source] = len(drawn)
        pool += drawn
    facts.duplicates = len(pool) - len({item[0] for item in pool})
    if not settings["keep_duplicates"]:
        united = {}
        for passage, source, first, rank, score in pool:
            old = united.get(passage, (0, source, first, rank, score))
            names = {*old[1].split("+"), *source.split("+")}
            joined = "+".join(sorted(names, key=list(SEED_NAMES).index))
            united[passage] = (passage, joined, min(old[2], first), old[3], old[4])
        pool = list(united.values())
    return pool, facts


def plain(pools):
    """Pools whose scores are None where they are NaN, which equals nothing."""
    return [[(*item[:4], None if np.isnan(item[4]) else item[4]) for item in pool] for pool in pools]


def counts_of(mode, sources, episode):
    """What the plan resolves of a pool of 8, alpha and beta 0.5, or of 7 per source and all of the last pool."""
    if mode == "released_code":
        counts = dict.fromkeys(sources, 7)
        return counts | ({"momentum": 7 * len(sources) * (episode - 1)} if episode > 1 else {})
    if episode == 1:
        return dict.fromkeys(sources, 8 // len(sources))
    return dict.fromkeys(sources, 4 // len(sources)) | {"momentum": 4}


@pytest.mark.parametrize("keep_duplicates", [True, False])
@pytest.mark.parametrize("mode", ["mixture", "released_code"])
@pytest.mark.parametrize("sources", [("query", "lookahead"), ("query",), ("lookahead",)])
def test_equals_the_brute_force_over_three_episodes(world, monkeypatch, mode, keep_duplicates, sources):
    monkeypatch.setattr(merge, "BLOCK_SLOTS", 150)  # several blocks of queries, the last one incomplete
    rng = np.random.default_rng(len(mode) + 10 * keep_duplicates + 100 * len(sources[0]) + 1000 * len(sources))
    num_queries, num_passages, depth, grade = 23, 40, 12, 2
    query_ids = [f"q{number}" for number in rng.permutation(1000)[:num_queries]]
    judgments = [
        (q, p, rng.integers(4)) for q in range(num_queries) for p in rng.choice(num_passages, 6, replace=False)
    ]
    positives = [{p for q, p, g in judgments if q == query and g >= grade} for query in range(num_queries)]
    collection = world.collection(query_ids, judgments, grade)
    last = None
    for episode in (1, 2, 3):
        ids = {source: [rng.permutation(num_passages)[:depth] for _ in range(40)] for source in sources}
        for line in ids[sources[0]]:
            line[rng.integers(1, depth + 1) :] = -1  # some lists end early, some nearly at once
        rows = {"query": np.arange(num_queries), "lookahead": rng.integers(num_queries, size=40)}
        lists = {s: world.retrieval(ids[s][: len(rows[s])], rows[s]) for s in sources}
        counts = counts_of(mode, sources, episode)
        momentum = {"momentum": last} if last else {}
        settings = {"episode": episode, "keep_duplicates": keep_duplicates, "relevant_grade": grade}
        job = world.merge(collection, counts, lists, momentum, **settings)
        expected, facts = zip(
            *(
                brute_force(
                    query, query_ids[query], positives[query], lists, last and last.pools[query], job.raw_settings,
                    counts,
                )
                for query in range(num_queries)
            ),
            strict=True,
        )  # fmt: skip
        assert plain(job.pools) == list(expected)
        assert job.merge_facts["wanted"] == counts
        assert job.merge_facts["drawn"] == {s: sum(fact.drawn[s] for fact in facts) for s in counts}
        assert job.merge_facts["short_queries"] == {s: sum(s in fact.short for fact in facts) for s in counts}
        drawn = sum(job.merge_facts["drawn"].values())
        assert job.merge_facts["overlap"] == sum(fact.duplicates for fact in facts) / drawn
        last = job
    short = [job.merge_facts["short_queries"][source] for source in sources]
    assert any(short) and job.merge_facts["overlap"] > 0.02  # not vacuous
    assert drawn > 5 * num_queries and len({tuple(pool) for pool in job.pools}) == num_queries
    if (mode, keep_duplicates, sources) == ("released_code", True, ("query", "lookahead")):
        assert hashlib.sha256(str(plain(job.pools)).encode()).hexdigest()[:16] == POOLS, "another draw, other results"


# --- single properties ------------------------------------------------------------------------------------------------


def test_a_literal_example(world, caplog):
    """Lists no longer than the counts, so nothing is left to chance."""
    caplog.set_level(logging.WARNING, "teleport")  # a stage that ran in this process may have asked for more
    collection = world.collection(["a", "b", "c"], [(0, 10, 1), (1, 11, 1), (1, 12, 1), (2, 13, 1), (0, 1, 0)])
    queries = world.retrieval([[1, 10, 2], [11, 12, 3], [13, -1, -1]])
    anchors = world.retrieval([[10, 2, 4], [11, 12, -1], [13, -1, -1]])
    lists, counts = {"query": queries, "lookahead": anchors}, {"query": 2, "lookahead": 2}
    first = world.merge(collection, counts, lists)
    assert plain(first.pools) == [
        [
            (1, "query", 1, 1, 0.0),
            (2, "query", 1, 3, -2 / 64),
            (2, "lookahead", 1, 2, None),
            (4, "lookahead", 1, 3, None),
        ],
        [(3, "query", 1, 3, 1 - 2 / 64)],
        [],
    ]
    assert first.merge_facts == {
        "wanted": {"query": 2, "lookahead": 2},
        "drawn": {"query": 3, "lookahead": 2},
        "short_queries": {"query": 2, "lookahead": 2},
        "first_episodes": {"1": 5},
        "negatives": 5,
        "queries": 3,
        "empty_queries": 1,
        "overlap": 0.2,
    }
    assert [record.getMessage() for record in caplog.records] == [
        "lookahead gives 0.7 negatives per query in the mean, not 2: its lists are short, or filters, known "
        "passages or its draw leave little",
        "1 of 3 queries have no negative: their lists are empty, or filters and known passages leave none",
    ]
    lists, counts = lists | {"momentum": first}, counts | {"momentum": 4}
    second = world.merge(collection, counts, lists, episode=2)
    assert second.passages == [[1, 2, 2, 4, 1, 2, 2, 4], [3, 3], []]
    found = ["query", "query", "lookahead", "lookahead"]
    old = [(f"{name}+momentum", 1) for name in found]
    assert [item[1:3] for item in second.pools[0]] == [(name, 2) for name in found] + old
    assert np.isnan([item[4] for item in second.pools[0][4:]]).all(), "another checkpoint scored the last pool"
    single = world.merge(collection, counts, lists, episode=2, keep_duplicates=False)
    united = [(1, "query+momentum", 1), (2, "query+lookahead+momentum", 1), (4, "lookahead+momentum", 1)]
    assert [item[:3] for item in single.pools[0]] == united
    assert single.merge_facts["negatives"] == 4


def test_all_queries_may_be_without_negatives(world):
    collection = world.collection(["a", "b"], [(0, 1, 1), (1, 1, 1)])
    lists = {"query": world.retrieval([[1], [1]])}
    first = world.merge(collection, {"query": 4}, lists)
    second = world.merge(collection, {"query": 2, "momentum": 2}, lists | {"momentum": first}, episode=2)
    assert first.pools == second.pools == [[], []]
    assert second.merge_facts["empty_queries"] == 2


def long_lists(world, num_queries=200, depth=100, start=0):
    """Lists of passages that no other list has, so that the passage tells query and rank."""
    return world.retrieval(start + np.arange(num_queries * depth).reshape(num_queries, depth))


def test_sampling_really_happens(world):
    names = [f"q{n}" for n in range(200)]
    collection, lists = (
        world.collection(names, [(q, 10**6, 1) for q in range(200)], num_passages=10**6 + 1),
        long_lists(world),
    )
    job = world.merge(collection, {"query": 30}, {"query": lists})
    ranks = np.array([[item[3] for item in pool] for pool in job.pools])
    assert (ranks.min(), ranks.max()) == (1, 100)
    assert abs(ranks.mean() - 50.5) < 1.5  # 4 standard errors; the best thirty have 15.5
    assert len({tuple(row) for row in ranks.tolist()}) == 200  # each query has its own draw
    both = world.merge(collection, {"query": 30, "lookahead": 30}, {"query": lists, "lookahead": lists})
    assert [pool[:30] for pool in both.pools] == job.pools  # another source changes nothing in this one
    assert all(pool[:30] != pool[30:] for pool in both.passages)
    for other in ({"seed": 43}, {"episode": 2}):
        changed = world.merge(collection, {"query": 30}, {"query": lists}, **other)
        assert all(a != b for a, b in zip(job.passages, changed.passages, strict=True))
    assert world.merge(collection, {"query": 30}, {"query": lists}).pools == job.pools


def test_a_sample_does_not_depend_on_the_other_queries(world):
    names = [f"q{n}" for n in range(200)]
    lists, rows = long_lists(world), [150, 3, 77]
    whole = world.merge(world.collection(names, [], num_passages=10**6), {"query": 20}, {"query": lists})
    part = world.merge(
        world.collection([names[n] for n in rows], [], num_passages=10**6),
        {"query": 20},
        {"query": world.retrieval(np.load(lists.folder / "ids.npy")[rows])},
    )
    assert part.passages == [whole.passages[n] for n in rows]


def shares_of_episodes(world, episodes, counts_of_episode):
    """Share of each first episode in the last pool, when all episodes mine different passages."""
    collection, last = world.collection([f"q{n}" for n in range(200)], [], num_passages=10**8), None
    for episode in range(1, episodes + 1):
        lists = {
            "query": long_lists(world, start=episode * 10**5),
            "lookahead": long_lists(world, start=10**7 + episode * 10**5),
        }
        lists |= {"momentum": last} if last else {}
        last = world.merge(collection, counts_of_episode(episode), lists, episode=episode)
    total = last.merge_facts["negatives"]
    return {episode: count / total for episode, count in last.merge_facts["first_episodes"].items()}


def test_old_episodes_decay_geometrically_when_a_pool_keeps_its_size(world):
    later = {"query": 10, "lookahead": 10, "momentum": 20}
    shares = shares_of_episodes(world, 4, lambda episode: later if episode > 1 else {"query": 20, "lookahead": 20})
    assert shares["4"] == 0.5
    assert abs(shares["3"] - 0.25) < 0.02
    assert abs(shares["2"] - 0.125) < 0.02
    assert abs(shares["1"] - 0.125) < 0.02


def test_all_episodes_weigh_the_same_when_the_last_pool_is_taken_whole(world):
    new = {"query": 30, "lookahead": 30}
    shares = shares_of_episodes(world, 3, lambda n: new | ({"momentum": 60 * (n - 1)} if n > 1 else {}))
    assert shares == {"1": 1 / 3, "2": 1 / 3, "3": 1 / 3}


def test_a_query_with_many_anchors_does_not_make_the_blocks_of_others_small():
    widths = [[10] * 14 + [300, 0, 0, 120] + [10] * 3, [0] * 20 + [40]]
    found = list(blocks(list(map(np.array, widths)), 0, 21, 100))
    assert found == [(0, 10), (10, 14), (14, 15), (15, 17), (17, 18), (18, 20), (20, 21)]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_with_a_part_its_queries_alone_get_negatives_whatever_the_source(world, number):
    """7 queries in 3 parts: rows 0-1, 2-3 and, with the rest, 4-6. Their negatives are those without a part."""
    names, judgments = [f"q{n}" for n in range(7)], [(q, q, 1) for q in range(7)]
    collection = world.collection(names, judgments)
    rng = np.random.default_rng(0)
    lists = {name: world.retrieval(10 + rng.permuted(np.tile(np.arange(80), (7, 1)), axis=1)[:, :9])
             for name in ("query", "bm25", "file")}  # fmt: skip
    last = world.merge(collection, {"query": 5}, lists)
    counts = {"query": 3, "momentum": 2, "bm25": 2, "random": 4, "file": 1}
    whole, part = (
        world.merge(collection, counts, lists | {"momentum": last}, episode=2, part=chosen)
        for chosen in (None, Part(number=number, of=3))
    )
    rows = [range(0, 2), range(2, 4), range(4, 7)][number]
    expected, found = ([[item[:4] for item in pool] for pool in job.pools] for job in (whole, part))  # scores: NaN
    assert [pool if q in rows else [] for q, pool in enumerate(expected)] == found
    facts = part.merge_facts
    assert (facts["queries"], facts["negatives"], facts["empty_queries"]) == (len(rows), 12 * len(rows), 0)
    assert set(facts["short_queries"].values()) == {0} and facts["drawn"]["random"] == 4 * len(rows)
    assert whole.merge_facts["queries"] == 7


def test_known_positives_are_removed_from_every_anchor_s_list(world):
    judgments = [(0, 1, 1), (0, 2, 1), (0, 3, 0), (1, 3, 1)]
    collection = world.collection(["a", "b"], judgments)
    anchors = world.retrieval([[1, 2, 3, 4], [2, 1, 4, 5], [3, 1, 2, 6]], rows=[0, 0, 1])
    job = world.merge(collection, {"lookahead": 9}, {"lookahead": anchors})
    assert job.passages == [[3, 4, 4, 5], [1, 2, 6]]
    assert [item[3] for item in job.pools[0]] == [3, 4, 3, 4]


def test_relevant_passages_are_no_negatives_even_if_they_are_not_trained_on(world):
    """Query a: grade 2 is trained on, grade 1 is not, and neither is a negative, in lists, last pools and at random."""
    judgments = [(0, 1, 2), (0, 2, 1), (0, 3, 0), (1, 3, 2)]
    collection = world.collection(["a", "b"], judgments, positive_grade=2, num_passages=6)
    lists = {"query": world.retrieval([[1, 2, 3, 4], [1, 2, 3, 4]])}
    loose = world.merge(collection, {"query": 9}, lists, relevant_grade=2)
    assert loose.passages == [[2, 3, 4], [1, 2, 4]]
    counts = {"query": 9, "momentum": 9, "random": 9}
    strict = world.merge(collection, counts, lists | {"momentum": loose}, episode=2)
    assert strict.passages == [[3, 4, 3, 4, 0, 3, 4, 5], [1, 2, 4, 1, 2, 4, 0, 1, 2, 4, 5]]
    higher = world.merge(collection, {"query": 9}, lists, relevant_grade=3)
    assert higher.passages == [[2, 3, 4], [1, 2, 4]], "what is trained on is no negative, whatever the grade"


def test_rank_ranges_count_what_is_left_of_each_list(world):
    """Positives 1 and 2 are not counted, nor is the end of a list; the pool keeps the ranks of the retrieval."""
    collection = world.collection(["a", "b"], [(0, 1, 1), (0, 2, 1)])
    lists = world.retrieval([[1, 5, 2, 6, 7, 8, 9], [1, 2, 3, -1, -1, -1, -1]])
    for source in ("query", "lookahead", "bm25", "file"):
        job = world.merge(collection, {source: 9}, {source: lists}, ranks={source: [[1, 2], [4, 4]]})
        assert [[item[0:4:3] for item in pool] for pool in job.pools] == [[(5, 2), (6, 4), (8, 6)], [(1, 1), (2, 2)]]
    skipped = world.merge(collection, {"query": 9}, {"query": lists}, filters={"skip_ranks": 2})
    assert skipped.passages == [[7, 8, 9], [3]]
    both = world.merge(
        collection, {"query": 9}, {"query": lists}, filters={"skip_ranks": 1}, ranks={"query": [[1, 2], [4, 4]]}
    )
    assert both.passages == [[6, 8], [2]]
    first_of_each = world.retrieval([[1, 5, 6], [2, 7, 8]], rows=[0, 0])
    anchors = world.merge(collection, {"lookahead": 9}, {"lookahead": first_of_each}, ranks={"lookahead": [[1, 1]]})
    assert anchors.passages == [[5, 7], []]


def test_rank_arms_draw_from_exactly_the_ranks_they_name(world):
    collection = world.collection(
        [f"q{n}" for n in range(100)], [(q, 200 * q + q, 1) for q in range(100)], num_passages=10**6
    )
    lists = long_lists(world, 100, 200)  # the positive of query q is at its rank q + 1
    arms = {"1-20": [[1, 20]], "181-199": [[181, 199]], "both": [[1, 20], [181, 199]]}
    for ranges in arms.values():
        job = world.merge(collection, {"query": 10}, {"query": lists}, ranks={"query": ranges})
        wanted = {rank for low, high in ranges for rank in range(low, high + 1)}
        left = [[p for p in range(200 * q, 200 * q + 200) if p != 201 * q] for q in range(100)]
        ranks = [[left[q].index(p) + 1 for p in pool] for q, pool in enumerate(job.passages)]
        assert {rank for row in ranks for rank in row} == wanted
        assert all(len(set(row)) == 10 for row in ranks)
    whole = world.merge(collection, {"query": 20}, {"query": lists}, ranks={"query": arms["1-20"]})
    assert whole.passages == [row[:20] for row in left]
    assert whole.merge_facts["short_queries"] == {"query": 0}


def test_several_sources_lie_in_the_order_of_the_pool(world):
    collection = world.collection(["a"], [(0, 1, 1)], num_passages=4)
    lists = {"file": world.retrieval([[3, 1]]), "bm25": world.retrieval([[2, 3]])}
    job = world.merge(collection, {"bm25": 2, "random": 5, "file": 2}, lists, episode=3)
    rows = [[item[:4] for item in pool] for pool in job.pools][0]
    random = [(passage, "random", 3, 0) for passage in (0, 2, 3)]
    assert rows == [(2, "bm25", 3, 1), (3, "bm25", 3, 2), *random, (3, "file", 3, 1)]
    assert np.isnan([item[4] for item in job.pools[0]]).all(), "none of them has the miner's score of the query"


def test_scores_of_a_file_are_kept_unless_a_checkpoint_mined(world):
    """The column has one kind of score: the file's, or the miner's q·d, which here nothing computes."""
    collection = world.collection(["a"], [(0, 1, 1)])
    file = world.stages.make("negatives_file")
    Run(np.array([[5, 6]], np.int32), np.array([[0.5, 0.25]], np.float32), np.array([0])).write(file)
    file.output("sources.json").write_text('["file"]')
    for name, values in {"sources": [[1, 1]], "first_episodes": [[1, 1]], "ranks": [[1, 2]]}.items():
        save_array(file.output(f"{name}.npy"), np.array(values, FIELDS[name]))
    lists = {"file": world.stages.finish(file, {"scored": 1})}
    assert [item[4] for item in world.merge(collection, {"file": 2}, lists).pools[0]] == [0.5, 0.25]
    lists["lookahead"] = world.retrieval([[7, 8]])
    mined = world.merge(collection, {"file": 2, "lookahead": 2}, lists).pools[0]
    assert len(mined) == 4 and np.isnan([item[4] for item in mined]).all()


def test_a_pool_without_sources_is_refused():
    with pytest.raises(ValidationError, match="sources"):
        Pool(sources={}, seed=1, episode=1)


def test_no_stage_imports_the_table_of_sources():
    """A new line there must not change the code of finished stages."""
    scripts = Path(__file__).resolve().parents[2] / "workflow_scripts"
    modules = "merge, score, file, positives, sources.retrieval, sources.momentum, sources.random"
    names = ", ".join(f"teleport.negatives.{name}" for name in modules.split(", "))
    code = f"import sys, {names}; print('teleport.settings.registry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=scripts, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
