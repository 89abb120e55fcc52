"""The table of an experiment's pools on its page."""

from teleport.report.page.overview import pools_table

FACTS = {"drawn": {"query": 900}, "short_queries": {"query": 2}, "empty_queries": 1, "overlap": 0.25}
RELABELLED = {"relabelled": {"positive": 12, "dropped": 3, "query dropped": 0}, "dropped_queries": 0, "pairs": 850}


def pools(**relabelled):
    return {"pools": {number: {"stage": "merge/a", "facts": FACTS} | relabelled.get(f"of_{number}", {})
                      for number in (1, 2)}}  # fmt: skip


def test_what_was_relabelled_is_a_column_where_a_pool_was_judged():
    frame = pools_table(pools(of_2={"relabelled": RELABELLED})).frame
    assert frame["Relabelled"].tolist() == ["–", "of 850 negatives 12 became positives, 3 were left out"]
    assert list(frame.columns)[-1] == "Stage" and frame["Drawn"].tolist() == ["query 900"] * 2
    assert "Relabelled" not in pools_table(pools()).frame.columns


def test_short_queries_and_dropped_candidates_are_told_by_source():
    """The sources may be short of the same queries, so their numbers have no sum."""
    dropped = {"query": {"above_positive": 1200}, "lookahead": {"relative_margin": 7}}
    facts = FACTS | {"short_queries": {"query": 80, "lookahead": 90, "momentum": 0}}
    facts |= {"filters": {"dropped": dropped, "dropped_per_query": {"min": 0.0}, "left_short": {"query": 3}}}
    frame = pools_table({"pools": {1: {"stage": "merge/a", "facts": facts}, 2: pools()["pools"][2]}}).frame
    assert frame["Queries short"].tolist() == ["query 80, lookahead 90", "query 2"]
    assert frame["Dropped by filters"].tolist() == ["query: above positive 1,200; lookahead: relative margin 7", "–"]
