"""The filters of candidates that are probably positives without a judgment. A stage `merge` loads these modules by
name. Each has the type `Settings` of its value in `negatives.filters` (null is off) and one of these functions, which
returns bool of the shape of the first argument, True for a candidate to leave out:

    drops_ranks(ranks_QS, setting)                        ranks in a retrieved list, counted by negatives.ranks_after
    drops_scores(scores_QS, positive_scores_Q1, setting)  scores by the scorer in negatives.filters.scores; NaN without
                                                          a candidate, and for a query without a positive
    drops_anchors(scores_QS, anchor_scores_QS, setting)   these scores, and those of the candidates with the query's
                                                          first positive in place of the query; NaN as above
"""


def chosen_filters(job, function):
    """{name: (function, setting)} of the filters of a merge job that have `function`, such as "drops_ranks"."""
    modules = {name: job.load(f"filters.{name}") for name in job.settings.filters}
    functions = {name: getattr(module, function, None) for name, module in modules.items()}
    return {name: (drops, job.settings.filters[name]) for name, drops in functions.items() if drops}
