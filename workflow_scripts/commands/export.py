"""What others can use of a stage: negatives to train on, a run with its judgments, a checkpoint with its scores."""

import gzip
import json
import shutil
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from teleport.runtime.artefact import Artefact
from teleport.runtime.files import write_text

EXAMPLE_PASSAGES, EXAMPLE_CHARACTERS = 3, 120


def export(link, output):
    """Write what a stage (its folder, or the link to it) has for others to `output`; returns a sentence on it.

    merge: negatives as Tevatron's JSON lines; evaluate: a folder of the run and its judgments, in TREC's forms; train:
    a folder of the checkpoint, its card with scores and an example. Raises ValueError for a stage of another kind.
    """
    stage = Artefact(link.resolve())
    forms = {"merge": export_negatives, "evaluate": export_run, "train": export_checkpoint}
    if (kind := stage.manifest["kind"]) not in forms:
        raise ValueError(f"{link} is a {kind} stage: give one of {', '.join(forms)}.")
    return forms[kind](link, stage, output)


def collection_of(stage):
    """The collection (`Artefact`) that a stage (`Artefact`) was made with."""
    return Artefact(stage.folder.parents[1] / stage.manifest["inputs"]["collection"])


def passage_texts(collection, ids):
    """{id: title and text in one line} of some passages (list of ids); those of elsewhere are not there."""
    rows = pq.read_table(collection.path("corpus.parquet"), filters=[("doc_id", "in", ids)]).to_pylist()
    return {row["doc_id"]: " ".join(f"{row['title']} {row['text']}".split()) for row in rows}


def export_negatives(link, stage, output):
    from teleport.negatives.export import export_tevatron

    return f"{export_tevatron(stage, collection_of(stage), output)} queries in {output}"


def export_run(link, stage, output):
    """SPLIT.run.gz as the stage has it, and SPLIT.qrels.txt: query, 0, passage, grade."""
    split = stage.manifest["settings"]["split"]
    if stage.manifest["settings"].get("collapse"):
        raise ValueError(f"{link} scores documents, and the collection has judgments of passages. Give another stage.")
    output.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(stage.path(f"{split}.run.gz"), output / f"{split}.run.gz")
    rows = pq.read_table(collection_of(stage).path(f"qrels.{split}.parquet")).to_pylist()
    lines = (f"{row['query_id']} 0 {row['doc_id']} {row['grade']}\n" for row in rows)
    write_text(output / f"{split}.qrels.txt", "".join(lines))
    return f"{output}/{split}.run.gz and {len(rows)} judgments in {output}/{split}.qrels.txt"


def export_checkpoint(link, stage, output):
    """The checkpoint as other libraries load it without a warning, its card with what the experiment's folder tells."""
    from teleport.encoder.checkpoint import sides

    if output.exists():
        raise ValueError(f"{output} is there already. Remove it, or give another folder.")
    shutil.copytree(stage.folder / "checkpoint", output, copy_function=shutil.copyfile)
    said = scores_text(link) + example_text(link)
    for folder in dict.fromkeys(sides(output)):
        add_pooler(folder)
        card = folder / "README.md"
        write_text(card, card.read_text(encoding="utf-8").replace("\n## Settings\n", f"\n{said}## Settings\n", 1))
    return f"{output}: a checkpoint for sentence-transformers and transformers; its card is {output}/README.md"


def add_pooler(folder):
    """A pooler of zeros, which nothing uses: transformers reports one that a BERT lacks, and draws it at random."""
    import torch
    from safetensors.torch import load_file, save_file

    from teleport.encoder.architectures import ARCHITECTURES
    from teleport.runtime.files import share

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if ARCHITECTURES[config["model_type"]].pooler:
        path, hidden = folder / "model.safetensors", config["hidden_size"]
        zeros = {"pooler.dense.weight": torch.zeros(hidden, hidden), "pooler.dense.bias": torch.zeros(hidden)}
        save_file(load_file(path) | zeros, path, metadata={"format": "pt"})
        share(path)


def evaluations(folder):
    """{split: Artefact} of the evaluations that are linked in a folder of an experiment."""
    links = {link.name.removeprefix("evaluate-"): link for link in sorted(folder.glob("evaluate-*"))}
    return {split: Artefact(link.resolve()) for split, link in links.items() if link.exists()}


def scores_text(link):
    """A table of the means of every episode of the experiment that `link` lies in; "" where it is no such link."""
    home = link.parent.parent
    folders = {0: home} | {int(path.name.removeprefix("episode-")): path for path in home.glob("episode-*")}
    lines = []
    for episode, folder in sorted(folders.items()):
        for split, stage in evaluations(folder).items():
            means = {name: stage.manifest["facts"]["means"][name] for name in stage.manifest["settings"]["measures"]}
            if not lines:
                lines = [f"| episode | split | {' | '.join(means)} |", "| --: | :-- " + "| --: " * len(means) + "|"]
            lines.append(f"| {episode} | {split} | {' | '.join(f'{mean:.3f}' for mean in means.values())} |")
    return "## Scores\nEpisode 0 is the pretrained checkpoint.\n\n" + "\n".join(lines) + "\n\n" if lines else ""


def example_text(link):
    """A query of the first evaluated split and the passages that the checkpoint ranks first for it, or ""."""
    for split, stage in evaluations(link.parent).items():
        collection = collection_of(stage)
        with gzip.open(stage.path(f"{split}.run.gz"), "rt", encoding="utf-8") as file:
            run = [line.split() for line in islice(file, EXAMPLE_PASSAGES)]
        query = run[0][0]
        queries = pq.read_table(collection.path(f"queries.{split}.parquet"), filters=[("query_id", "=", query)])
        found = [row[2] for row in run if row[0] == query]
        texts = passage_texts(collection, found)
        lines = [f"{rank}. `{name}` {texts[name][:EXAMPLE_CHARACTERS]}" for rank, name in enumerate(found, 1)]
        asked = f"{queries['text'][0].as_py()} (`{query}`, {split})"
        return "\n".join([f"## An example\nFor the query: {asked}", "", *lines, "", ""])
    return ""


def push(folder, repository, send):
    """Upload a folder to the Hugging Face hub as a model; without `send` only say what would be uploaded."""
    if not (folder / "config.json").is_file() and not (folder / "passage").is_dir():
        raise ValueError(f"{folder} is no checkpoint: give a folder that `manage.py export` wrote.")
    files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    for path in files:
        print(f"{path.stat().st_size / 1e6:10.1f} MB  {path.relative_to(folder)}")
    if not send:
        return f"{len(files)} files would go to huggingface.co/{repository} with --send; nothing was sent"
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repository, exist_ok=True)
    return f"sent: {api.upload_folder(folder_path=folder, repo_id=repository)}"
