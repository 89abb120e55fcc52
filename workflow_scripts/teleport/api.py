"""Results from Python: open a results folder, read the results of its experiments, and search. Nothing is written.

`open_results` returns the experiments by name. Each has a table of scores, runs, pools of negatives, checkpoints,
vectors with ids, and `search` over the passages of its collection. An example is in docs/own-data.md.
"""

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from teleport.arrays import CHUNK_OFFSETS
from teleport.evaluation import significance
from teleport.evaluation.significance import Comparison, Scores
from teleport.negatives.pool import read_pool
from teleport.reader import read_passages
from teleport.refusal import Refusal
from teleport.report.links import INDEX
from teleport.report.rows import in_folder
from teleport.report.stages import Stages
from teleport.running.artefact import STAGES, Artefact, is_finished, other_than_stages
from teleport.settings.measures import better


class Hit(NamedTuple):
    """One result of a search. rank: from 1 on; score: inner product of passage and query"""

    rank: int
    id: str
    title: str
    text: str
    score: float


class Vectors(NamedTuple):
    """ids: of the texts, in order; array: float32 or float16 [n, D], memory-mapped; offsets: None if row i belongs to
    ids[i]; or int64 [len(ids) + 1], and text i has the rows offsets[i] to offsets[i + 1] (`encoder.chunks`)"""

    ids: list[str]
    array: np.ndarray
    offsets: np.ndarray | None


def open_results(folder: str | Path = "results", *configfiles: str | Path) -> dict[str, "Experiment"]:
    """The experiments below FOLDER/experiments by name, such as "mine/tuned". With configuration files, merged as
    `--configfile` merges them: only the experiments of these. Raises Refusal for a folder without experiments."""
    folder = Path(folder)
    home = folder / "experiments"
    if folder.absolute().name != "results" or not home.is_dir():
        raise Refusal(
            f"{folder} has no experiments. Run the workflow first, or give the folder `results` of one that has run."
        )
    found = {str(path.parent.relative_to(home)): path.parent for path in sorted(home.rglob(INDEX))}
    if configfiles:
        from teleport.settings.read import load_files

        shared, experiments = load_files(configfiles)
        names = [str(Path(in_folder("", shared).removeprefix("results/"), name)) for name in experiments]
        found = {name.lstrip("/"): found[name.lstrip("/")] for name in names if name.lstrip("/") in found}
    return {name: Experiment(name, path, Stages(folder.absolute().parent)) for name, path in found.items()}


@dataclass(frozen=True)
class Experiment:
    """An experiment below results/experiments. `episode` counts from 0, the checkpoint that the experiment starts from;
    None is the last finished episode. `seed` matters if there are several; None is the first."""

    name: str
    folder: Path
    stages: Stages

    @property
    def index(self) -> pd.DataFrame:
        """Its stages, as they are now: seed, episode, stage (the name of the link), kind, key, folder, and whether it
        is finished."""
        path = self.folder / INDEX
        try:
            with open(path, encoding="utf-8", newline="") as file:
                frame = pd.DataFrame(csv.DictReader(file, delimiter="\t"))
            frame = frame.astype({"seed": int, "episode": int})
            names = [f"{kind}/{key}" for kind, key in zip(frame["kind"], frame["key"], strict=True)]
            wrong = other_than_stages(names)
        except (ValueError, TypeError, KeyError, OverflowError, csv.Error) as error:
            wrong = f"cannot be read ({type(error).__name__}: {error})"
        if wrong or "stage" not in frame:
            remedy = "Delete it, and run the workflow, which writes it again"
            raise Refusal(f"{path} {wrong or 'has no column `stage`'}: torn or edited. {remedy}.")
        return frame.assign(name=names, finished=[is_finished(name, self.stages.root) for name in names])

    def stage(self, *links: str, episode: int | None = None, seed: int | None = None) -> Artefact:
        """The finished stage, with manifest and files, that has one of the names `links`, such as "merge". Raises
        Refusal if none is finished."""
        rows = rows_of(self.index, links, episode, seed)
        done = rows[rows["finished"]]
        if done.empty:
            where = "" if episode is None else f" of episode {episode}"
            why = "not finished: run the workflow" if len(rows) else f"not there; {self.folder / INDEX} lists what is"
            raise Refusal(f"{self.name}: the stage {' or '.join(links)}{where} is {why}.")
        done = done[done["seed"] == (done["seed"].iloc[0] if seed is None else seed)]
        return self.artefact(done.sort_values("episode", kind="stable")["name"].iloc[-1])

    def artefact(self, name: str) -> Artefact:
        """A stage by its name ("kind/key"), as it is now."""
        return Artefact(self.stages.root / STAGES / name)

    def scores(self, split: str, episode: int | None = None, seed: int | None = None) -> pd.DataFrame:
        """The score of every query (rows, by id) in every measure (columns)."""
        frame = pq.read_table(self.stage(f"evaluate-{split}", episode=episode, seed=seed).path("per_query.parquet"))
        return frame.to_pandas().pivot(index="query_id", columns="measure", values="value")

    def run(self, split: str, episode: int | None = None, seed: int | None = None) -> pd.DataFrame:
        """Return the run: query_id, doc_id, rank and score of every retrieved passage."""
        stage = self.stage(f"evaluate-{split}", episode=episode, seed=seed)
        path = stage.path(f"{stage.manifest['settings']['split']}.run.gz")  # its own name, without -of-COLLECTION
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [(query, doc, int(rank), float(score)) for query, _, doc, rank, score, _ in map(str.split, file)]
        return pd.DataFrame(rows, columns=["query_id", "doc_id", "rank", "score"])

    def pool(self, episode: int | None = None, seed: int | None = None) -> pd.DataFrame:
        """The negatives of an episode: query_id, doc_id, sources (list of names), first_episode, rank, score (q·d under
        the checkpoint that mined; NaN where nothing needs it)."""
        stage = self.stage("merge", episode=episode, seed=seed)
        pool = read_pool(stage.path)
        ids = [pq.read_table(texts_read(stage, of), columns=[key])[key].combine_chunks()
               for of, key in (("queries.train", "query_id"), ("passages", "doc_id"))]  # fmt: skip
        rows = np.repeat(np.arange(len(pool.offsets) - 1), np.diff(pool.offsets))
        sources = [[name for name, bit in pool.bits.items() if bits & bit] for bits in np.asarray(pool.items.sources)]
        columns = {"query_id": ids[0].take(rows), "doc_id": ids[1].take(np.asarray(pool.items.passages))}
        columns |= {"sources": sources, "first_episode": pool.items.first_episodes, "rank": pool.items.ranks}
        return pd.DataFrame(columns | {"score": np.asarray(pool.items.scores)})

    def checkpoint(self, episode: int | None = None, seed: int | None = None) -> Path:
        """The folder of a checkpoint. It has no pooler, which transformers warns of; `teleport export` adds one."""
        stage = self.stage("pretrained", "train", episode=episode, seed=seed)
        if stage.manifest["kind"] == "pretrained":  # episode 0, which may be a checkpoint of another experiment
            stage = start_of(self, seed) or stage
        return stage.path("checkpoint")

    def vectors(self, of: str = "passages", episode: int | None = None, seed: int | None = None) -> Vectors:
        """The `Vectors` of "passages", or of the queries of a split. Raises Refusal if they were deleted."""
        name, key = ("passages", "doc_id") if of == "passages" else (f"queries.{of}", "query_id")
        stage = self.stage(f"encode-{name}", episode=episode, seed=seed)
        name = stage.manifest["settings"]["of"]  # its own name, without -of-COLLECTION
        ids = pq.read_table(texts_read(stage.input(f"tokens.{name}"), name), columns=[key])[key].to_pylist()
        chunked = of == "passages" and CHUNK_OFFSETS in stage.manifest["files"]
        offsets = np.load(stage.path(CHUNK_OFFSETS)) if chunked else None
        return Vectors(ids, np.load(stage.path(f"{name}.npy"), mmap_mode="r"), offsets)

    def encode(self, queries: list[str], episode: int | None = None, seed: int | None = None) -> np.ndarray:
        """The vectors of new queries, float32 [Q, D], with prefix, case and length as in the experiment."""
        from teleport.encoder.new_queries import encode_queries

        queries = texts_of(queries)
        stage = self.stage(*self.query_links, episode=episode, seed=seed)
        tokens = stage.input(f"tokens.{stage.manifest['settings']['of']}")
        return encode_queries(queries, stage, stage.input("checkpoint"), tokens, tokens.input("pretrained"))

    @property
    def query_links(self) -> list[str]:
        """The names of the stages that encode the queries of a split with the checkpoint of an episode: not those of a
        teacher, or of another miner."""
        links = set(self.index["stage"])
        splits = {link.removeprefix("split-") for link in links if link.startswith("split-")}
        return sorted(links & {f"encode-queries.{split}" for split in splits})

    def search(self, queries: list[str], depth: int = 10, episode: int | None = None,
               seed: int | None = None) -> list[list[Hit]]:  # fmt: skip
        """The passages with the largest inner products for each query, by exact search over the vectors in the results
        folder. A passage in several chunks scores by its best one."""
        if depth < 1:
            raise Refusal(f"depth is {depth}: give a whole number of passages, from 1 on.")
        import torch

        from teleport.maxp import by_passage
        from teleport.search.exact import Exact

        passages, asked = (
            rows_of(self.index, links, episode, seed).query("finished")[["seed", "episode"]]
            for links in (["encode-passages"], self.query_links)
        )
        both = passages.merge(asked)  # one checkpoint encodes both
        if both.empty and len(passages) and len(asked):
            raise Refusal("no checkpoint has encoded both the queries and the passages yet: run the workflow.")
        if len(both):
            seed = int(both["seed"].iloc[0])
            episode = int(both["episode"][both["seed"] == seed].max())
        encoded_QD = self.encode(queries, episode, seed)
        ids, array, offsets = self.vectors(episode=episode, seed=seed)
        index = by_passage(Exact(array, threads=torch.get_num_threads()), offsets)
        rows_QK, scores_QK = index.search(encoded_QD, min(depth, len(ids)))
        encode = self.stage("encode-passages", episode=episode, seed=seed)
        corpus = texts_read(encode.input("tokens.passages"), "passages")
        rows = np.unique(rows_QK).astype(np.int64)
        texts = dict(zip(rows.tolist(), read_passages(corpus, rows, ["title", "text"]), strict=True))
        return [
            [
                Hit(rank, ids[row], *texts[row], float(score))
                for rank, (row, score) in enumerate(zip(*line, strict=True), 1)
            ]
            for line in zip(rows_QK.tolist(), scores_QK.tolist(), strict=True)
        ]


def texts_of(queries):
    """The queries (list). Raises Refusal for one text in the place of a list, whose characters would each be a query,
    and for a query that is no text, whose repr would be searched."""
    if isinstance(queries, str):
        raise Refusal(f"queries is the text {queries[:40]!r}: give a list of texts, such as [{queries[:40]!r}].")
    queries = list(queries)
    if other := [query for query in queries if not isinstance(query, str)]:
        raise Refusal(f"queries has {other[0]!r:.40}, which is no text: give a list of texts.")
    return queries


def rows_of(index, links, episode, seed):
    """The lines of an `Experiment.index` of stages with one of the names `links`, of an episode and a seed; None: of
    all."""
    rows = index[index["stage"].isin(links)]
    for key, value in (("episode", episode), ("seed", seed)):
        rows = rows if value is None else rows[rows[key] == value]
    return rows


def start_of(experiment, seed):
    """The checkpoint (Artefact) that episode 0 was encoded with; None if nothing is encoded yet. If queries and
    passages have one each, as one side was frozen, it is the later one."""
    rows = rows_of(experiment.index, ["encode-passages", *experiment.query_links], 0, seed)
    done = rows[rows["finished"]]
    encoded = [experiment.artefact(name) for name in done[done["seed"].isin(done["seed"].iloc[:1])]["name"]]
    read = [stage.input("checkpoint") for stage in encoded]
    return max(read, key=trainings, default=None)


def trainings(checkpoint):
    """How many trainings lead to a checkpoint (Artefact)."""
    start = checkpoint.input("checkpoint")
    return 1 + trainings(start) if start else 0


def texts_read(stage, of):
    """The Parquet file of "passages" or "queries.SPLIT" that a stage has read."""
    if of == "passages":
        return stage.input("corpus").path("corpus.parquet")
    return stage.input(f"split.{of.removeprefix('queries.')}").path(f"{of}.parquet")


def compare(one: Experiment, other: Experiment, split: str, measure: str | None = None,
            episodes: tuple[int | None, int | None] = (None, None)) -> Comparison:  # fmt: skip
    """How much `other` scores above `one`, with p, and how many queries it wins and loses. All seeds are used. measure:
    by default the first of the evaluation"""
    systems = [evaluations(*each, split) for each in zip((one, other), episodes, strict=True)]
    require_same_rules(one.name, other.name, [*systems[0], *systems[1]])
    measure = measure or systems[0][0].manifest["settings"]["measures"][0]
    (ids, theirs), (same, ours) = (scores_of(stages, measure) for stages in systems)
    if not ids.equals(same):
        raise Refusal(f"{one.name} and {other.name} have other queries in {split}. Compare those of one collection.")
    return significance.compare(ours, theirs, way=better(measure) or 1)


def documents_of(stage):
    """Return the text that separates a document from its passage in the ids of an evaluation; None if it scores
    passages."""
    settings = stage.manifest["settings"]
    return settings.get("collapse") and settings["separator"]


def require_same_rules(one, other, stages):
    """Raise Refusal if the evaluations (`Artefact`s) of two systems, by their names, rank other things."""
    if len({documents_of(stage) for stage in stages}) > 1:
        raise Refusal(
            f"{one} and {other} cannot be compared: one scores documents and the other passages, or their documents "
            "have other separators. Give two stages that score passages, or documents by the same evaluation.separator."
        )
    if len({bool(stage.manifest["settings"].get("ignore_own_text")) for stage in stages}) > 1:
        raise Refusal(
            f"{one} and {other} cannot be compared: only one ranks passages that have the query's own text. Evaluate "
            "both with the same evaluation.ignore_own_text."
        )


def evaluations(experiment, episode, split):
    """The evaluations (list of `Artefact`) of an episode of an experiment, each once: one per seed."""
    link = f"evaluate-{split}"
    last = experiment.stage(link, episode=episode)
    rows = experiment.index[(experiment.index["stage"] == link) & experiment.index["finished"]]
    (episode,) = set(rows[rows["name"] == last.name]["episode"])
    return [experiment.stages.artefact(name) for name in rows[rows["episode"] == episode]["name"].unique()]


def scores_in(stage, measure):
    """The scores of an evaluation in one measure, by query id (Series). Raises Refusal for a measure that it does not
    have."""
    if measure not in stage.facts["means"]:
        raise Refusal(f"there is no measure {measure!r} there, but {', '.join(stage.facts['means'])}.")
    frame = pq.read_table(stage.path("per_query.parquet"), filters=[("measure", "=", measure)]).to_pandas()
    return frame.set_index("query_id")["value"]


def scores_of(stages, measure):
    """(ids of the queries (Index), their `Scores`) of a system in one measure. stages: its evaluations (`Artefact`),
    one per seed"""
    frame = pd.concat([scores_in(stage, measure) for stage in stages], axis=1).sort_index()
    seeds = (Stages(stage.root).trained_seed(stage.name) for stage in stages)
    return frame.index, Scores(frame.to_numpy(), tuple(seed for seed in seeds if seed is not None))
