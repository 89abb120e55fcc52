"""Queries without a page of their own: each opens, with what there is room for."""

import numpy as np

from teleport.report.page.queries import TOP
from teleport.report.page.query_pages import ID_CHARACTERS, MOST_CHARACTERS, light, mined_lists
from teleport.report.page.site import script_json


class Reader:
    """A collection in which passage 7 is called 0000007."""

    def doc_ids(self, rows):
        return {row: f"{row:07}" for row in rows}


def test_every_query_without_a_page_has_its_passages_and_positives():
    positives = [np.array([3]), np.array([4, 5]), np.array([], int)]
    lists = {"A": {0: [3, 1], 1: [9], 2: []}, "B": {0: [1], 1: ["elsewhere", 4], 2: [2]}}
    said = light(Reader(), [0, 1, 2], [0], positives, lists)
    assert said == {
        "columns": ["Positives", "A", "B"],
        "most": TOP,
        "queries": {1: ["0000004 0000005", "0000009", "elsewhere 0000004"], 2: ["", "", "0000002"]},
        "sources": {},
    }


def test_at_the_counts_of_marco_what_opens_a_split_stays_within_its_budget():
    """10,000 training queries in six systems of four episodes, 6,980 dev queries in eight rows, with ids of MARCO."""
    rng = np.random.default_rng(0)
    for queries, columns in ((10_000, 24), (6_980, 8)):
        found = rng.integers(0, 8_800_000, (columns, queries, TOP)).tolist()
        lists = {f"System {n}": dict(enumerate(of)) for n, of in enumerate(found)}
        sources = {column: dict.fromkeys(range(queries), "0" * TOP) for column in lists}
        said = light(Reader(), list(range(queries)), [], [np.array([row]) for row in range(queries)], lists, sources)
        assert {len(text) for _, *texts in said["sources"].values() for text in texts} == {said["most"]}
        overhead = (3 + 3 + said["most"]) * queries * columns + ID_CHARACTERS * 4 * queries
        budget = max(MOST_CHARACTERS, ID_CHARACTERS * queries * columns)  # each list has at least one passage
        assert len(script_json(said)) < budget + overhead and said["most"] >= 1
        assert all(len(of) == 1 + columns and all(of) for of in said["queries"].values())


def test_negatives_of_a_pool_come_by_rank_and_once_each_with_its_source():
    class Pools:
        def finished(self, name):
            return name is not None

        def pool(self, name):
            class Items:
                passages = np.array([8, 6, 8, 5, 1], np.int32)
                ranks = np.array([3, 0, 3, 1, 2], np.int32)
                sources = np.array([2, 8, 2, 6, 4], np.uint8)  # the fourth was found twice

            class Pool:
                offsets, items = np.array([0, 4, 5]), Items
                bits = {"query": 2, "lookahead": 4, "momentum": 8}

            return Pool

    seeds = {"Tele": {"episodes": [{"pool": "merge/a"}, {"pool": None}]}}
    lists, sources = mined_lists(Pools(), seeds, [0, 1], ["lookahead", "momentum", "query"])
    assert lists == {"Tele, episode 1": {0: [5, 8, 6], 1: [1]}}
    assert sources == {"Tele, episode 1": {0: "021", 1: "0"}}
