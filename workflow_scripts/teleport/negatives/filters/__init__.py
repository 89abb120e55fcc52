"""The filters that find candidates which are probably positives without a judgment. A stage `merge` loads these modules
by name: the type `Settings` of its value in `negatives.filters` (null is off) and one of these functions, bool of the
shape of the first argument, True where a candidate is left out:

    drops_ranks(ranks_QS, setting)                        ranks in a retrieved list, as negatives.ranks_after counts
    drops_scores(scores_QS, positive_scores_Q1, setting)  scores by whom negatives.filters.scores names; NaN where there
                                                          is no candidate, and for a query without a positive
"""


def chosen_filters(job, function):
    """{name: (function, setting)} of the filters of a merge job that have `function`, such as "drops_ranks"."""
    modules = {name: job.load(f"filters.{name}") for name in job.settings.filters}
    functions = {name: getattr(module, function, None) for name, module in modules.items()}
    return {name: (drops, job.settings.filters[name]) for name, drops in functions.items() if drops}
