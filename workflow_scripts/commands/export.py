"""Exports of a stage for others: negatives to train on, a run with its judgments, a checkpoint with its scores."""

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq

from commands.stages import queries_of, split_of, stage_at
from commands.vectors import INDEX, export_vectors
from teleport.refusal import Refusal
from teleport.report.words import number
from teleport.running.artefact import MANIFEST
from teleport.running.files import files_below, part_of, remove_parts, require_output, write_json, write_text
from teleport.running.hub import uploaded


def export(link, output, examples=False, license=None, language=None, dataset=None, **wanted):
    """Write a stage (its folder, or the link to it) to `output` in a form for others; returns a sentence on it.

    merge, relabel: negatives in a form, by `wanted` (`negatives.export.Wanted`); evaluate: a folder of the run and
    its judgments, in TREC's forms; train: a folder of the checkpoint, its card with scores; encode: vectors, by the
    ending of `output`. examples: whether the card quotes a query and passages of the collection, for every
    reader of the card; license, language, dataset: entries of its head, for the hub. All is written beside `output` and
    renamed at the end.
    """
    stage = stage_at(link)
    exporters = {
        "merge": export_negatives,
        "relabel": export_negatives,
        "evaluate": export_run,
        "train": export_checkpoint,
        "encode": export_vectors,
    }
    if (kind := stage.manifest["kind"]) not in exporters:
        raise Refusal(f"{link} is a stage of kind {kind}: give one of {', '.join(exporters)}.")
    if exporters[kind] is not export_negatives and any(wanted.values()):
        raise Refusal(
            f"{link} is a stage of kind {kind}, but --form, --order, --most and --scores are options of negatives."
        )
    of_card = {"examples": examples, "license": license, "language": language, "dataset": dataset}
    if kind != "train" and (given := [f"--{name}" for name, value in of_card.items() if value]):
        raise Refusal(f"{link} is a stage of kind {kind}, but {given[0]} belongs to a checkpoint's card: leave it out.")
    options = {key: value for key, value in (wanted | of_card).items() if value}
    made_in = output.parent / "export"
    remove_parts(made_in)  # a killed export may have left one beside a whole `output`, which is refused now
    index = kind == "encode" and output.suffix == ".faiss"
    # An index without its ids, of a killed export, is replaced, and so is what `mine` has written.
    replaces = index or wanted.get("origin", False)
    require_output(output, kind in ("evaluate", "train"), begins=INDEX if index else b"", new=not replaces)
    try:
        with part_of(made_in) as folder:
            folder.mkdir()
            return exporters[kind](link, stage, output, folder, **options)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise Refusal(f"{output} cannot be written ({error}). Give another path.") from None


def export_negatives(link, stage, output, folder, **wanted):
    """The pool of a merge or relabel stage as the file `output`, and maybe its `origin_file`; returns a sentence."""
    from teleport.negatives.export import Wanted, export_pool

    corpus, train = stage.input("corpus"), stage.input("split.train")
    written = export_pool(stage, corpus, train, folder, Wanted(**wanted))
    if wanted.get("origin"):
        os.replace(folder / "origin", origin_file(output))
    os.replace(folder / "lines", output)
    return f"{written} in {output}"


def origin_file(output):
    """The file (Path) beside exported negatives that has the origin of each row."""
    return Path(f"{str(output).removesuffix('.jsonl')}.origin.jsonl")


def export_run(link, stage, output, folder):
    """SPLIT.run.gz as the stage has it, and SPLIT.qrels.txt: query, 0, passage, grade. It has the judgments of passages
    that are not in the corpus, too, because they count in the stage's measures."""
    split = split_of(stage)
    if stage.manifest["settings"].get("collapse"):
        raise Refusal(f"{link} scores documents, and the collection has judgments of passages. Give another stage.")
    run, qrels, made = f"{split}.run.gz", f"{split}.qrels.txt", folder / "made"
    made.mkdir()
    shutil.copyfile(stage.path(run, full=True), made / run)
    queries, columns = queries_of(stage), ["query_id", "doc_id", "grade"]
    rows = pq.read_table(queries.path(f"qrels.{split}.parquet"), columns=columns).to_pylist()
    if f"missing.{split}.parquet" in queries.manifest["files"]:
        ids = pq.read_table(queries.path(f"queries.{split}.parquet"))["query_id"].to_pylist()
        missing = pq.read_table(queries.path(f"missing.{split}.parquet")).to_pylist()
        rows += [row | {"query_id": ids[row["query"]]} for row in missing]
    lines = (f"{row['query_id']} 0 {row['doc_id']} {row['grade']}\n" for row in rows)
    write_text(made / qrels, "".join(lines))
    if output.is_dir():  # an empty one, which may be the working folder: it stays
        for name in (run, qrels):
            os.replace(made / name, output / name)
    else:
        os.rename(made, output)
    return f"{output}/{run} and {number(len(rows), 'judgment')} in {output}/{qrels}"


def export_checkpoint(link, stage, output, folder, examples=False, **head):
    """Export the checkpoint so that other libraries load it without a warning, with a card from the experiment's
    folder. Raises Refusal if training changed nothing, or if a library gives other vectors than the stage. head: those
    entries of the card's head that `card.with_head` takes."""
    from commands.card import example_text, scores_text, with_head
    from commands.export_check import require_trained, require_vectors
    from teleport.encoder.checkpoint import sides

    remark = require_trained(stage)
    episode = Path(os.path.abspath(link)).parent  # in its experiment; a short path leaves out names of folders
    results = scores_text(episode) + (example_text(episode) if examples else "")
    checkpoint = folder / output.name
    source = stage.path("checkpoint", full=True)
    for path in files_below(source):  # shutil.copytree hides why it failed
        copy = checkpoint / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for side in dict.fromkeys(sides(checkpoint)):
        add_pooler(side)
        name_cosine(side)
        card = side / "README.md"
        text = card.read_text(encoding="utf-8")
        text = text.replace("\n## Settings\n", f"\n{results}## Settings\n", 1)
        write_text(card, with_head(text, stage.input("pretrained"), episode, **head))
    checked = require_vectors(checkpoint, stage)
    os.rename(checkpoint, output)
    evaluated = sorted([*episode.parent.glob("evaluate-*"), *episode.parent.glob("episode-*/evaluate-*")])
    left = ", ".join(str(each.relative_to(episode.parent)) for each in evaluated if not (each / MANIFEST).is_file())
    without = f", without scores of {left}, which are not finished: run the workflow, and export again" if left else ""
    if not results and not left:
        without = ", without scores: only a link below results/experiments leads to them"
    forms = f"a checkpoint for sentence-transformers and transformers; its card is {output}/README.md"
    return f"{output}: {forms}. {checked}{remark}{without}"


WITH_POOLER = {"bert", "roberta", "xlm-roberta", "mpnet"}  # transformers' classes that have one


def add_pooler(folder):
    """Add a pooler of zeros, which nothing uses. Without one, transformers reports that a BERT has none and draws it at
    random."""
    import torch
    from safetensors.torch import load_file, save_file

    from teleport.running.files import share

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] in WITH_POOLER:
        path, hidden = folder / "model.safetensors", config["hidden_size"]
        zeros = {"pooler.dense.weight": torch.zeros(hidden, hidden), "pooler.dense.bias": torch.zeros(hidden)}
        save_file(load_file(path) | zeros, path, metadata={"format": "pt"})
        share(path)


def name_cosine(folder):
    """Name cosine as the similarity of vectors that have length 1, as most checkpoints for them do. Its figures are
    those of the inner product, which a stage's checkpoint names."""
    from teleport.encoder.checkpoint import read_modules

    path = folder / "config_sentence_transformers.json"
    if read_modules(folder).normalize:
        write_json(path, json.loads(path.read_text(encoding="utf-8")) | {"similarity_fn_name": "cosine"})


def push(folder, repository, send, public=False):
    """Upload a checkpoint to the Hugging Face hub, to a new repository as a private one unless `public`; without `send`
    list its files."""
    if not (folder / "config.json").is_file() and not (folder / "passage").is_dir():
        raise Refusal(f"{folder} is not a checkpoint: give a folder that `teleport export` wrote.")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if link := next((path for path in folder.rglob("*") if path.is_symlink()), None):
        raise Refusal(f"{link} is a link, and its target would be published. Remove it, or put the file there.")
    for path in files:
        print(f"{path.stat().st_size / 1e6:10.1f} MB  {path.relative_to(folder)}")
    if not send:
        return f"{number(len(files), 'file')} would go to huggingface.co/{repository} with --send; nothing was sent"
    return f"sent: {uploaded(repository, folder, public)}"
