"""The model card of a trained checkpoint, from what its stage knows: how it was made and how to use it, no scores."""

import json

from teleport.encoder.checkpoint import PASSAGE, QUERY

SENTENCE_TRANSFORMERS = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH OF THIS FOLDER")
model.max_seq_length = {max_tokens}
vectors = model.encode({texts})
"""

TRANSFORMERS = """\
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("PATH OF THIS FOLDER")
model = AutoModel.from_pretrained("PATH OF THIS FOLDER").eval()
batch = tokenizer({texts}, padding=True, truncation=True, max_length={max_tokens}, return_tensors="pt")
batch.pop("token_type_ids", None)
with torch.no_grad():
    tokens = model(**batch).last_hidden_state
{pooling}
"""

POOLING = {
    "cls": "vectors = tokens[:, 0]",
    "mean": 'mask = batch["attention_mask"].unsqueeze(-1)\nvectors = (tokens * mask).sum(1) / mask.sum(1)',
}

HEAD = "`transformers` alone gives token vectors; the head is in the folders of the other modules."

SOURCE = ("hub", "revision", "folder", "package", "version")

TITLE = {
    "sep": "title and text with the separator token between them, `title [SEP] text`",
    "space": "title and text joined by a space",
    "none": "text without title",
}

CASE = {
    True: "The tokenizer lower-cases texts; that of the pretrained checkpoint was changed where it does not.",
    False: "The tokenizer keeps the case of letters; that of the pretrained checkpoint was changed where it does not.",
}


ENCODES = {QUERY: "queries", PASSAGE: "passages"}


def write_model_cards(job, folder):
    """Write README.md into every model folder of the checkpoint `folder` made by the train job `job`."""
    if not (folder / QUERY).is_dir():  # one encoder for both
        (folder / "README.md").write_text(model_card(job, "queries and passages"), encoding="utf-8")
        return
    for side, texts in ENCODES.items():
        (folder / side / "README.md").write_text(model_card(job, texts), encoding="utf-8")


def model_card(job, encodes):
    """The card (Markdown) of the encoder of `encodes`: "queries", "passages", or "queries and passages".

    Nothing in it depends on time or machine, so that equal runs write equal files.
    """
    settings = job.settings
    return "\n".join(
        [
            front_matter(base_checkpoint(job)),
            f"# Dense retriever, episode {settings.episode}",
            "",
            f"Encodes {encodes} as vectors that are compared by inner product. Made by a workflow for dense retrievers "
            "with mined negatives (ANCE-Tele, https://arxiv.org/abs/2210.17167, and related methods); its stage is `"
            + f"{job.kind}/{job.key}`.",
            "",
            *how_made(job, encodes),
            "",
            *usage(job, encodes),
            "",
            "## Settings",
            "```json",
            json.dumps(job.raw_settings, indent=1, sort_keys=True),
            "```",
            "",
        ]
    )


def front_matter(base):
    """The YAML header that the Hugging Face hub reads."""
    lines = ["---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity"]
    if base.get("hub"):
        lines.append(f"base_model: {base['hub']}")
    return "\n".join([*lines, "tags: [dense-retrieval, sentence-transformers]", "---", ""])


def base_checkpoint(job):
    """Settings of the pretrained checkpoint: hub and revision, folder, or package."""
    return job.inputs["pretrained"].manifest["settings"]["checkpoint"]


def place(source):
    """Where a checkpoint came from, in words."""
    return ", ".join(f"{name} `{source[name]}`" for name in SOURCE if source.get(name))


def stage(job, role):
    """`kind/key` of the stage that fills a role."""
    manifest = job.inputs[role].manifest
    return f"{manifest['kind']}/{manifest['key']}"


def how_made(job, encodes):
    """Lines on the checkpoint, collection and negatives that went in, and on what was trained."""
    collection = job.inputs["collection"].manifest
    facts = job.facts("pretrained")
    base = f"- Pretrained checkpoint: {place(base_checkpoint(job))}; weights SHA-256 `{facts['weights_sha256']}`"
    if own := job.inputs["pretrained"].manifest["settings"].get("query_checkpoint"):
        base += f"; of queries: {place(own)}; weights SHA-256 `{facts['query_weights_sha256']}`"
    mined = "negatives" in job.inputs
    negatives = f"stage `{stage(job, 'negatives')}`" if mined else "other passages of the batch alone"
    return [
        "## How it was made",
        base,
        f"- Training started from: stage `{stage(job, 'checkpoint')}`",
        *what_was_trained(job, encodes),
        f"- Collection: {collection['settings']['source']['source']}, {collection['facts']['num_passages']} passages, "
        f"corpus digest `{collection['facts']['corpus_digest']}`",
        f"- Negatives: {negatives}",
        f"- Root seed: {job.settings.seed}",
    ]


def what_was_trained(job, encodes):
    """Lines on the trained encoders, their loss, and the episodes that were one training with this one."""
    settings = job.settings
    trained = [ENCODES[side] for side in settings.training.trains]
    line = f"- Trained: the encoder of {' and '.join(trained)}, with the loss `{settings.training.loss}`"
    if encodes in ENCODES.values() and encodes not in trained:
        line += f"; this encoder of {encodes} is the one that training started from"
    if "continued" not in job.inputs:
        return [line]
    steps = job.facts("continued")["end_step"]
    return [
        line,
        f"- One training since Episode {settings.run_episode}: went on with the optimiser and the schedule of stage "
        f"`{stage(job, 'continued')}` after {steps} steps",
    ]


def usage(job, encodes):
    """Lines on texts, lengths and pooling, with code for sentence-transformers and transformers."""
    settings = job.settings
    queries_only = encodes == "queries"
    texts = '["a query"]' if queries_only else '["a passage"]'
    max_tokens = settings.max_query_tokens if queries_only else settings.max_passage_tokens
    lengths = {
        "queries": f"queries {settings.max_query_tokens} tokens",
        "passages": f"passages {settings.max_passage_tokens} tokens",
    }
    text = job.inputs["tokens"].manifest["settings"]
    kept = " and ".join(limit for side, limit in lengths.items() if side in encodes)
    head = f", projection to {settings.projection} dimensions and LayerNorm" if settings.projection else ""
    pooling = POOLING[settings.pooling]
    if settings.normalize:
        pooling += "\nvectors = torch.nn.functional.normalize(vectors)"
    code = {"max_tokens": max_tokens, "texts": texts}
    lines = [
        "## How to use it",
        f"Pooling: {settings.pooling}{head}{', length 1' if settings.normalize else ''}. "
        f"Texts are cut to {kept}, special tokens included; set the length of the side that you encode.",
        *([] if queries_only else [f"A passage is {TITLE[text['title']]}."]),
        *([] if text["lower_case"] is None else [CASE[text["lower_case"]]]),
        "",
        f"```python\n{SENTENCE_TRANSFORMERS.format(**code)}```",
    ]
    if settings.projection:
        return [*lines, "", HEAD]
    return [*lines, "", f"```python\n{TRANSFORMERS.format(**code, pooling=pooling)}```"]
