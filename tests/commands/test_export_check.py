"""What `export` compares before it writes: weights with those of the start, vectors with those of the stage."""

import re
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

import collection_world
from commands import export_check
from commands.export import export
from encoder_world import make_pretrained, make_tokens, saved_with_layers, source_folder
from teleport.refusal import Refusal
from teleport.running.artefact import Artefact, file_entry
from teleport.settings.registry import train_loads
from teleport.settings.training import TrainSettings
from teleport.training import train
from training_world import on_cpu, settings  # noqa: F401

ALONE = {"negatives_per_query": 0, "steps": 2, "learning_rate": 1e-2}


def trained(
    stages,
    training=(),
    family="bert",
    pooling="mean",
    title="space",
    tied=True,
    chunks=1,
    length=12,
    layers=False,
    normalize=False,
    **of,
):
    """A `train` stage of two steps from a miniature, on texts of 4 to 20 words, some of which are cut; of: prefixes"""
    words = collection_world.random_passages(np.random.default_rng(3), 12, 4, 20)
    passages = [(f"d{i}", f"title {i}" if i % 2 else "", " ".join(each)) for i, each in enumerate(words)]
    queries = [(f"q{i}", " ".join(each[:5])) for i, each in enumerate(words[:6])]
    judged = {"train": [(i, i, 1) for i in range(6)]}
    told = {"settings": {"source": {"source": "tsv"}}, "corpus_digest": "c0"}
    collection = collection_world.make_collection(stages, passages, {"train": queries}, judged, **told)
    form = {"pooling": pooling, "tied": tied, "normalize": normalize}
    folder = (
        saved_with_layers(stages.root, normalize=False) if layers else source_folder(stages.root / "source", family)
    )
    start = make_pretrained(stages, folder, **form)
    tokens = make_tokens(stages, collection, start, title, **of)
    own = settings(ALONE | dict(training), **form, max_query_tokens=6, max_passage_tokens=length, chunks=chunks)
    inputs = {"collection": collection, "tokens": tokens, "checkpoint": start, "pretrained": start}
    job = stages.make("train", own, inputs, loads=train_loads(TrainSettings.model_validate(own)))
    return stages.finish(job, train.run(job))


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    "options",
    [
        {"query_prefix": "the ", "passage_prefix": "was "},
        {"family": "roberta", "pooling": "cls", "title": "sep", "tied": False, "query_prefix": "the "},
        {"family": "qwen3", "pooling": "last", "chunks": 2, "length": 60},
    ],
)
def test_both_libraries_give_the_vectors_of_the_stage(stages, tmp_path, options):
    said = export(trained(stages, **options).folder, tmp_path / "model")
    found = re.search(r"transformers and sentence-transformers give (\d+) texts the vectors of the stage", said)
    assert int(found[1]) > 6, "passages are compared too"
    written = "".join(path.read_text() for path in (tmp_path / "model").rglob("*.md"))
    assert "How it was made" in written and "word" not in written, "the card quotes a text of the collection"


@pytest.mark.parametrize(("normalize", "named"), [(True, "cosine"), (False, "dot")])
def test_an_export_names_the_similarity_of_its_vectors_and_has_what_transformers_asks_for(
    stages, tmp_path, normalize, named
):
    """The checkpoint of a stage has neither: its bits stay."""
    job = trained(stages, normalize=normalize)
    export(job.folder, tmp_path / "model")
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu", local_files_only=True)
    assert loaded.similarity_fn_name == named
    pooler = {"pooler.dense.weight", "pooler.dense.bias"}
    assert pooler <= set(load_file(tmp_path / "model/model.safetensors"))
    assert not pooler & set(load_file(job.folder / "checkpoint/model.safetensors"))


def test_linear_layers_are_trained_and_exported(stages, tmp_path):
    job = trained(stages, layers=True)
    assert "give" in export(job.folder, tmp_path / "model")
    for name, shape in (("2_Dense", (48, 32)), ("3_Dense", (32, 48))):
        before, after = (
            load_file(folder / name / "model.safetensors")["linear.weight"]
            for folder in (job.inputs["checkpoint"].folder / "checkpoint", tmp_path / "model")
        )
        assert after.shape == shape and (before - after).abs().max() > 1e-3
    card = (tmp_path / "model/README.md").read_text()
    assert "linear layers to 48 and 32 dimensions" in card and "`transformers` alone gives token vectors" in card


def test_another_vector_is_refused_and_nothing_is_written(stages, tmp_path, monkeypatch):
    job, its = trained(stages), export_check.by_sentence_transformers
    monkeypatch.setattr(export_check, "by_sentence_transformers", lambda *given: its(*given) + np.float32(5e-5))
    with pytest.raises(Refusal, match=f"{job.key}.*sentence-transformers.*query") as caught:
        export(job.folder, tmp_path / "out/model")
    assert "5e-05" in str(caught.value) and list((tmp_path / "out").iterdir()) == []
    monkeypatch.setattr(export_check, "by_sentence_transformers", its)
    monkeypatch.setattr(export_check, "by_transformers", lambda *given: np.full((6, 32), np.nan))
    with pytest.raises(Refusal, match="by transformers"):
        export(job.folder, tmp_path / "out/model")


def test_a_changed_weight_in_the_export_shows(stages, tmp_path, monkeypatch):
    """The comparison reads the folder that is exported, not the stage."""
    job = trained(stages)

    def damaged(folder):
        path = folder / "model.safetensors"
        weights = load_file(path)
        weights["encoder.layer.0.output.dense.weight"] *= 1.1
        save_file(weights, path, metadata={"format": "pt"})

    monkeypatch.setattr("commands.export.add_pooler", damaged)
    with pytest.raises(Refusal, match="differ"):
        export(job.folder, tmp_path / "model")


def test_without_sentence_transformers_the_other_library_checks(stages, tmp_path, monkeypatch):
    monkeypatch.setattr(export_check, "find_spec", lambda name: None)
    assert "transformers give" in (said := export(trained(stages).folder, tmp_path / "model"))
    assert "and sentence-transformers give" not in said


def test_a_training_that_has_changed_nothing_is_refused(stages, tmp_path):
    job = trained(stages, {"learning_rate": 1e-30})
    with pytest.raises(Refusal, match=r"training.learning_rate") as caught:
        export(job.folder, tmp_path / "model")
    assert job.key in str(caught.value) and not (tmp_path / "model").exists()


def test_a_frozen_side_may_have_the_weights_of_the_start(stages):
    job = trained(stages, tied=False)
    start = job.inputs["checkpoint"].folder / "checkpoint"
    for side in ("query", "passage"):
        assert not export_check.same_weights(job.folder / "checkpoint" / side, start / side)
    stage = Artefact(job.folder)
    shutil.copyfile(start / "query/model.safetensors", job.folder / "checkpoint/query/model.safetensors")
    stage.manifest["files"]["checkpoint/query/model.safetensors"] = file_entry(start / "query/model.safetensors")
    with pytest.raises(Refusal, match="checkpoint/query.*weights"):
        export_check.require_trained(stage)
    stage.manifest["settings"]["training"]["trains"] = ["passage"]
    assert export_check.require_trained(stage) == ""


def test_a_start_that_dev_has_chosen_is_exported_and_said(stages):
    stage = Artefact(trained(stages, {"learning_rate": 1e-30}).folder)
    stage.manifest["facts"]["selected_step"] = stage.facts["first_step"]
    assert "no step was better on dev" in export_check.require_trained(stage)
