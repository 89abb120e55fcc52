"""Checks that an exported checkpoint gives the vectors of its stage, in the libraries that others load it with."""

from importlib.util import find_spec

import numpy as np
import torch
from safetensors import safe_open

from teleport.encoder.checkpoint import PASSAGE, QUERY, read_modules, sides
from teleport.encoder.load import WEIGHTS, load_encoder
from teleport.encoder.new_queries import encode_texts
from teleport.encoder.own_settings import own_settings
from teleport.encoder.tokens import load_tokenizer, lower_case_first, read_texts, separator_of
from teleport.refusal import Refusal
from teleport.settings.encoder import with_title

FEW, TOLERANCE = 8, 1e-5  # texts of each side; between components of two vectors of a text


def require_trained(stage):
    """Raise Refusal if a side that a `train` stage (`Artefact`) trains still has its first weights. Returns a remark if
    dev chose the first weights, else ""."""
    if stage.facts.get("selected_step") == stage.facts["first_step"]:
        return "; its weights are those that training started from, as no step was better on dev"
    trains = stage.manifest["settings"]["training"].get("trains", (QUERY, PASSAGE))
    trained, start = (sides(each.path("checkpoint")) for each in (stage, stage.input("checkpoint")))
    for side, ours, theirs in zip((QUERY, PASSAGE), trained, start, strict=True):
        if side in trains and same_weights(ours, theirs):
            raise Refusal(
                f"{ours} has the weights that training started from: nothing was learnt. Raise training.learning_rate "
                "or training.steps, or take the checkpoint that it started from."
            )
    return ""


def same_weights(folder, other):
    """Whether two model folders have the same backbone."""
    with safe_open(folder / WEIGHTS, "pt") as one, safe_open(other / WEIGHTS, "pt") as two:
        return all(torch.equal(one.get_tensor(name), two.get_tensor(name)) for name in one.keys())  # noqa: SIM118


@torch.inference_mode()
def require_vectors(checkpoint, stage):
    """Raise Refusal unless transformers, and sentence-transformers if installed, encode a few texts of the collection
    with an exported folder to the vectors of a `train` stage (`Artefact`). Returns a sentence."""
    libraries, count, largest = {"transformers": by_transformers}, 0, 0.0
    if find_spec("sentence_transformers"):
        libraries["sentence-transformers"] = by_sentence_transformers
    folders = sides(stage.path("checkpoint")), sides(checkpoint)
    for side, source, exported in zip((QUERY, PASSAGE), *folders, strict=True):
        texts, prefix, length, read = few_texts(stage, side)
        ours = encode_texts(load_encoder(source), [prefix + text for text in texts], *read, length) if texts else None
        for name, vectors_of in libraries.items() if texts else ():
            theirs = vectors_of(exported, side, texts, prefix, length)
            apart = np.abs(ours - theirs).max() if ours.shape == theirs.shape else np.inf
            if not apart <= TOLERANCE:
                raise Refusal(
                    f"{stage.folder}: by {name} the vectors of a {side} differ from the stage's by {apart:.2g}, more "
                    f"than {TOLERANCE:g}, so nothing is exported. Compare its version with requirements.lock."
                )
            largest = max(largest, float(apart))
        count += len(texts)
    return f"Checked: {' and '.join(libraries)} give {count} texts the vectors of the stage, to {largest:.1g}"


def few_texts(stage, side):
    """(texts of queries or passages without prefix, the prefix, most tokens of a text, `load_tokenizer`'s), as a train
    stage (`Artefact`) reads them: from the shortest to the longest of the first ones, none that has several chunks."""
    settings, passages = stage.manifest["settings"], side == PASSAGE
    of, name = ("passages", "corpus") if passages else ("queries.train", "split.train")
    how = stage.input(f"tokens.{of}").manifest["settings"]
    pretrained = sides(stage.input("pretrained").path("checkpoint"))[1]
    tokenizer, special = load_tokenizer(pretrained, how["lower_case"])
    length = settings["max_passage_tokens" if passages else "max_query_tokens"]
    separator = separator_of(how["title"], tokenizer, special) if passages else None
    path = stage.input(name).path("corpus.parquet" if passages else f"{of}.parquet")
    blocks = read_texts(path, separator, "", how.get("max_characters"))
    texts = sorted((text.strip() for text in next(blocks, ()) if text.strip()), key=len)
    if passages and settings.get("chunks", 1) > 1:  # no library makes its vectors
        texts = [text for text in texts if len(tokenizer.encode(with_title(how["prefix"]) + text).ids) <= length]
    places = np.unique(np.linspace(0, max(0, len(texts) - 1), FEW).astype(int)) if texts else ()
    return [texts[place] for place in places], with_title(how["prefix"]), length, (tokenizer, special)


def by_transformers(folder, side, texts, prefix, length):
    """Float32 [texts, D]: the token vectors of transformers, text by text, pooled by the folder's modules."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if "lower_case" in own_settings(folder):  # the model card says it
        lower_case_first(tokenizer.backend_tokenizer)
    model = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    modules, head, vectors = read_modules(folder), load_encoder(folder).head, []
    for text in texts:
        batch = tokenizer([prefix + text], truncation=True, max_length=length, return_tensors="pt")
        batch.pop("token_type_ids", None)
        hidden_TH = model(**batch).last_hidden_state[0]
        pooled = {"cls": hidden_TH[:1], "last": hidden_TH[-1:], "mean": hidden_TH.mean(0, keepdim=True)}
        vector = head(pooled[modules.pooling])
        vectors.append(torch.nn.functional.normalize(vector) if modules.normalize else vector)
    return torch.cat(vectors).numpy()


def by_sentence_transformers(folder, side, texts, prefix, length):
    """Float32 [texts, D] by the library's function for the side, which puts the folder's own prompt before each
    text."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    model.max_seq_length = length
    return (model.encode_query if side == QUERY else model.encode_document)(texts, show_progress_bar=False)
