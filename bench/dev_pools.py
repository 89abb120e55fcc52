"""Whether the pool of a dev set orders checkpoints as all passages do.

    python bench/dev_pools.py CONFIG … --rows warm-up same-passages random mined

The trainings of the rows must be finished (bench/arms.py makes those of results/arms/NAME-seeds.yaml). Each row's last
checkpoint ranks the dev queries against pools with the sizes of the first row's dev set: first neighbours under the
first row's checkpoint, first results of BM25, random passages; and against all passages. The scores of every query and
seed are kept in docs/measured/dev_pools.parquet. Without a file it prints their means.
"""

import argparse
import os

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch

from here import make
from results import DATA, write_scores
from teleport.encoder.encode import open_texts, tokens_at_once
from teleport.evaluation.evaluate import read_judgments
from teleport.evaluation.measures import Judgments, score_run
from teleport.plan.plan import Plan
from teleport.reader import read_positives
from teleport.running.artefact import STAGES, Artefact
from teleport.running.job import Job, spec_of
from teleport.seed import derive_seed
from teleport.training.dev import draw_pool
from teleport.training.dev_queries import draw_queries

KEPT = DATA / "dev_pools.parquet"
DEPTH = 100  # of the neighbours of a query


def encoded(stage):
    """The vectors of an encode stage, which need not be finished: float32 numpy [texts, dim]."""
    side, _ = open_texts(Job(spec_of(stage) | {"code": ""}, threads=os.cpu_count()))
    with torch.inference_mode():
        return side.vectors(np.arange(len(side.lengths)), tokens_at_once(side)).float().cpu().numpy()


def bm25_results(plan, split):
    """[ids of the first passages] of each query of a split."""
    stage = plan.bm25(split, DEPTH)
    make([stage])
    return [ids[ids >= 0].tolist() for ids in np.load(Artefact(STAGES / stage.name).path("ids.npy"))]


def pools_of(dev, positives, rows_Q, start, bm25, seed):
    """{name: passages, int64} of all pools. start: (query vectors, passage vectors) of the first row"""
    queries_QD, passages_PD = start
    nearest_QK = np.argsort(-(queries_QD[rows_Q] @ passages_PD.T), axis=1, kind="stable")[:, :DEPTH].tolist()
    lists, number = [positives[row].tolist() for row in rows_Q], len(passages_PD)
    pools = {"all passages": np.arange(number)}
    for name, neighbours in (("start", nearest_QK), ("BM25", [bm25[row] for row in rows_Q]), ("random", [])):
        rng = np.random.default_rng(derive_seed(seed, "dev pool", name))
        random = dev.random if neighbours else dev.passages - len(set(sum(lists, [])))
        pools[name] = draw_pool(lists, neighbours, number, dev.passages, random, rng)
    return pools


def measured(plan, names, seed, bm25):
    """The dev measure of every query (DataFrame as `write_scores` takes it, a part for each pool), by the last
    checkpoints of one seed."""
    trajectories = {name: next(each for each in plan.trajectories[name] if each.seed == seed) for name in names}
    train = trajectories[names[0]].trains[-1]
    dev, job = train.settings.dev, Job(spec_of(train) | {"code": ""})
    positives = read_positives(job.inputs[f"split.{dev.split}"], dev.split)
    judged = read_judgments(job, dev.split)
    rows_Q = draw_queries(positives.lengths, dev.queries, np.random.default_rng(derive_seed(seed, "dev", dev.split)))
    judged = Judgments(*(column[np.isin(judged.queries, rows_Q)] for column in judged))
    found, pools = [], None
    for name, trajectory in trajectories.items():
        vectors = trajectory.episodes[-1].vectors
        queries_QD, passages_PD = encoded(vectors.queries(dev.split)), encoded(vectors.passages)
        pools = pools or pools_of(dev, positives, rows_Q, (queries_QD, passages_PD), bm25, seed)
        for pool, passages_P in pools.items():
            order_QP = np.argsort(-(queries_QD[rows_Q] @ passages_PD[passages_P].T), axis=1, kind="stable")
            queries, values = score_run(passages_P[order_QP], rows_Q, judged, [dev.measure])
            lines = pd.DataFrame({"query": queries.astype(str), "value": values[dev.measure]})
            found.append(lines.assign(part=pool, row=name, seed=seed, measure=dev.measure))
    return pd.concat(found)


def means():
    """The means over queries and seeds of the scores that are kept (DataFrame: rows by pools)."""
    scores = pq.read_table(KEPT).to_pandas()  # every seed has its own dev queries, as many as the others
    return scores.groupby(["row", "part"])["value"].mean().unstack()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="*", help="the files of a configuration whose trainings are finished")
    parser.add_argument("--rows", nargs="+", help="experiments, the start first")
    arguments = parser.parse_args()
    if bool(arguments.config) != bool(arguments.rows):
        parser.error("a configuration and --rows belong together")
    if arguments.config:
        plan, scores = Plan.of_files(arguments.config), []
        split = plan.trajectories[arguments.rows[0]][0].trains[-1].settings.dev.split
        bm25 = bm25_results(plan, split)
        for seed in plan.experiments[arguments.rows[0]].seeds:
            scores.append(measured(plan, arguments.rows, seed, bm25))
            print(f"seed {seed}", flush=True)
        write_scores(KEPT, pd.concat(scores))
    print(means().round(4))


if __name__ == "__main__":
    main()
