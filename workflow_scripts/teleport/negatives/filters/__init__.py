"""Which candidates are probably positives without a judgment. A stage `merge` loads these modules by name: the type
`Settings` of its value in `negatives.filters` (null is off) and one of these functions, bool of the shape of the first
argument, True where a candidate is left out:

    drops_ranks(ranks_LK, setting)                        ranks from 1 on in a retrieved list without known positives
    drops_scores(scores_QS, positive_scores_Q1, setting)  scores under the checkpoint that mines; NaN is no candidate
"""


def chosen_filters(job, function):
    """{name: (function, setting)} of the filters of a merge job that have `function`, such as "drops_ranks"."""
    modules = {name: job.load(f"filters.{name}") for name in job.settings.filters}
    functions = {name: getattr(module, function, None) for name, module in modules.items()}
    return {name: (drops, job.settings.filters[name]) for name, drops in functions.items() if drops}
