"""The table of an experiment's pools on its page."""

from teleport.report.page.overview import pools_table

FACTS = {"drawn": {"query": 900}, "short_queries": {"query": 2}, "empty_queries": 1, "overlap": 0.25}
RELABELLED = {"relabelled": {"positive": 12, "dropped": 3, "query dropped": 0}, "dropped_queries": 0, "pairs": 850}


def pools(**relabelled):
    return {"pools": {number: {"stage": "merge/a", "facts": FACTS} | relabelled.get(f"of_{number}", {})
                      for number in (1, 2)}}  # fmt: skip


def test_what_filters_dropped_is_shown_by_source_and_filter():
    dropped = {"query": {"relative_margin": 1234, "above_positive": 0}, "lookahead": {"relative_margin": 5}}
    filters = {"dropped": dropped, "dropped_per_query": {"p50": 1.0}, "left_short": {"query": 3, "lookahead": 0}}
    cells = pools_table(pools(of_2={"facts": FACTS | {"filters": filters}})).frame["Dropped by filters"].tolist()
    shown = "1,234 of query by relative margin; 0 of query by above positive; 5 of lookahead by relative margin"
    assert cells == ["–", shown]


def test_what_was_relabelled_is_a_column_where_a_pool_was_judged():
    frame = pools_table(pools(of_2={"relabelled": RELABELLED})).frame
    assert frame["Relabelled"].tolist() == ["–", "of 850 negatives 12 became positives, 3 were left out"]
    assert list(frame.columns)[-1] == "Stage" and frame["Drawn"].tolist() == ["query 900"] * 2
    assert "Relabelled" not in pools_table(pools()).frame.columns
