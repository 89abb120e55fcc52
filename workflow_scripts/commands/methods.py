"""Published methods that `teleport new --method` writes, sized for a person's collection, and what they cost."""

from typing import NamedTuple

from commands.forecast.forecast import Forecast
from commands.forecast.hardware import read_hardware
from teleport.report.rows import mining_stages

MINED, BM25, BATCH = "{counts: {query: 30}}", "{counts: {bm25: 30}}", "{negatives_per_query: 0}"


WARM_UP = f"- {{negatives: {BM25}, training: {{loss: nll, negatives_per_query: 1, batch_queries: {{two}}}}}}"
STAR = (
    WARM_UP,
    f"- negatives: {MINED}",
    "  training: {loss: ranknet, negatives_per_query: 1, batch_queries: {two}, start_from: previous}",
)


class Method(NamedTuple):
    """A method. label: its row; why: what it is, a comment of one line; episodes: lines of YAML with {third} of the
    steps, and {two} for a batch of half as many queries, which with a negative each has as many passages as the whole.
    """

    label: str
    why: str
    episodes: tuple


METHODS = {
    "in-batch": Method(
        "In-batch",
        "The passages of the other queries are the negatives: nothing is mined.",
        (f"- training: {BATCH}",),
    ),
    "dpr-bm25": Method(
        "DPR",
        "One negative of BM25 beside the passages of the batch (Karpukhin et al., 2020).",
        (f"- {{negatives: {BM25}, training: {{negatives_per_query: 1, batch_queries: {{two}}}}}}",),
    ),
    "ance": Method(
        "ANCE",
        "BM25 negatives, then three segments on what the newest checkpoint mines, in pairs (Xiong et al., 2021).",
        (
            WARM_UP,
            "- repeat: 3",
            f"  negatives: {MINED}",
            "  training: {loss: nll, negatives_per_query: 1, batch_queries: {two}, steps: {third},",
            "    start_from: previous}",
        ),
    ),
    "ance-tele": Method(
        "ANCE-Tele",
        "Neighbours of query and positive, and the last pool; each episode from the start (Sun et al., 2022).",
        (
            "- {repeat: 2, training: {negatives_per_query: 1, batch_queries: {two}, stop_after_steps: {third}}}",
            "- training: {negatives_per_query: 1, batch_queries: {two}}",
        ),
    ),
    "star": Method(
        "STAR",
        "BM25 negatives, then one that this checkpoint mines beside the batch, as ranked pairs (Zhan et al., 2021).",
        STAR,
    ),
    "adore": Method(
        "STAR and ADORE",
        "STAR, then the query encoder alone, which searches at every step (Zhan et al., 2021).",
        (
            *STAR,
            "- negatives: {live: {depth: 100}}",
            "  training: {loss: {kind: lambda, metric_cut: 10}, trains: [query], negatives_per_query: 0, "
            "start_from: previous}",
        ),
    ),
}  # fmt: skip


def episodes_text(name, steps, batch):
    """The block `episodes` (YAML, text) of a method, for a training of so many steps with batches of so many queries
    without negatives of their own."""
    method, sizes = METHODS[name], {"{third}": str(max(1, steps // 3)), "{two}": str(max(2, batch // 2))}
    text = f"# {method.why}\nepisodes:\n" + "".join(f"  {line}\n" for line in method.episodes)
    for key, value in sizes.items():
        text = text.replace(key, value)
    return text


def cost_said(plan):
    """A sentence on what the training of a plan's experiments costs, and how much of it is mining; [] where nothing is
    trained or the machine is unmeasured."""
    line, hardware = read_hardware()
    trains = [train for each in plan.trajectories.values() for trajectory in each for train in trajectory.trains]
    if not trains or hardware is None:
        return []
    stages, pools = Forecast(plan, hardware).stages, [train.inputs.get("negatives") for train in trains]
    pools = list({pool.name: pool for pool in pools if pool}.values())
    mining = {stage.name: stage for stage in (*pools, *mining_stages(pools))}
    spent = [sum(stages[name].seconds for name in names) / 60 for names in (mining, {train.name for train in trains})]
    encoded = sum(stage.kind == "encode" and stage.settings.of == "passages" for stage in mining.values())
    collection = f", which encodes the collection {encoded} times" if encoded > 1 else ""
    mined = f"{spent[0]:,.0f} minutes of mining{collection}" if pools else "nothing is mined"
    return [f"Training takes about {spent[1]:,.0f} minutes on {line}, with its ranking of dev; {mined}."]
