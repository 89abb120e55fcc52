"""The model card of a trained checkpoint, from what its stage knows: how it was made and how to use it, no scores."""

import json

from jinja2 import Environment, StrictUndefined

from teleport.encoder.checkpoint import PASSAGE, QUERY
from teleport.settings.encoder import TokensSettings

ENCODES = {QUERY: "queries", PASSAGE: "passages"}
ENCODE = {"queries": "encode_query", "passages": "encode_document"}  # with the prompt of the side
SOURCE = ("hub", "revision", "folder", "package", "version")
TITLE = {
    "sep": "title and text with the separator token between them, `title [SEP] text`",
    "space": "title and text joined by a space",
    "none": "text without title",
}
CARD = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
{% if base.hub %}
base_model: {{ base.hub }}
{% endif %}
tags: [dense-retrieval, sentence-transformers]
---

# Dense retriever, episode {{ settings.episode }}

Encodes {{ encodes }} as vectors that are compared by inner product. Made by a workflow for dense retrievers \
with mined negatives (ANCE-Tele, https://arxiv.org/abs/2210.17167, and related methods); its stage is `{{ stage }}`.

## How it was made
- Pretrained checkpoint: {{ place(base) }}; weights SHA-256 `{{ facts.weights_sha256 }}`\
{% if own %}; of queries: {{ place(own) }}; weights SHA-256 `{{ facts.query_weights_sha256 }}`{% endif +%}
- Training started from: stage `{{ inputs.checkpoint }}`
- Trained: the encoder of {{ trained | join(" and ") }}, with the loss `{{ training.loss.kind }}`\
{% if frozen %}; this encoder of {{ encodes }} is the one that training started from{% endif +%}
{% if inputs.continued %}
- One training since Episode {{ settings.run_episode }}: went on with the optimiser and the schedule of stage \
`{{ inputs.continued }}` after {{ steps }} steps
{% endif %}
- Collection: {{ collection.settings.source.source }}, {{ collection.facts.num_passages }} passages, \
corpus digest `{{ collection.facts.corpus_digest }}`
- Negatives: {% if inputs.negatives %}stage `{{ inputs.negatives }}`{% elif settings.live %}\
the nearest {{ settings.live.depth }} passages of a query, searched for at every step{% else %}\
other passages of the batch alone{% endif +%}
- Root seed: {{ settings.seed }}
{% if selected %}
- Weights: {{ selected }}
{% endif %}

## How to use it
Pooling: {{ settings.pooling }}\
{% if settings.projection %}, projection to {{ settings.projection }} dimensions and LayerNorm{% endif %}\
{% if settings.normalize %}, length 1{% endif %}. \
Texts are cut to {{ lengths }}, special tokens included; set the length of the side that you encode.
{% if encodes != "queries" %}
A passage is {{ title }}.
{% endif %}
{% for side, prefix in prefixes.items() if prefix %}
Before {{ side }} comes `{{ prefix }}`, counted within these lengths.
{% endfor %}
{% if text.lower_case is not none %}
The tokenizer {{ "lower-cases texts" if text.lower_case else "keeps the case of letters" }}; that of the pretrained \
checkpoint was changed where it does not.
{% endif %}

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH OF THIS FOLDER")
model.max_seq_length = {{ max_tokens }}
vectors = model.{{ method }}([{{ example | tojson }}])
```

{% if settings.projection %}
`transformers` alone gives token vectors; the head is in the folders of the other modules.
{% else %}
```python
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("PATH OF THIS FOLDER")
model = AutoModel.from_pretrained("PATH OF THIS FOLDER").eval()
texts = [{{ (prefix + example) | tojson }}]
batch = tokenizer(texts, padding=True, truncation=True, max_length={{ max_tokens }}, return_tensors="pt")
batch.pop("token_type_ids", None)
with torch.no_grad():
    tokens = model(**batch).last_hidden_state
{% if settings.pooling == "cls" %}
vectors = tokens[:, 0]
{% else %}
mask = batch["attention_mask"].unsqueeze(-1)
vectors = (tokens * mask).sum(1) / mask.sum(1)
{% endif %}
{% if settings.normalize %}
vectors = torch.nn.functional.normalize(vectors)
{% endif %}
```
{% endif %}
{% if settings.chunks > 1 and encodes != "queries" %}

A passage has several vectors, one for each chunk of {{ settings.max_passage_tokens }} tokens, at most \
{{ settings.chunks }}; its score is the highest inner product of the query's vector with one of them (MaxP). Only the \
first chunk begins with the tokenizer's special token:
```python
import torch
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH OF THIS FOLDER")
most, length = {{ settings.chunks }}, {{ settings.max_passage_tokens }}
ids = model.tokenizer("a passage", truncation=True, max_length=most * length, return_tensors="pt")["input_ids"]
parts = ids.to(model.device).split(length, dim=1)
chunks = [{"input_ids": part, "attention_mask": torch.ones_like(part)} for part in parts]
with torch.no_grad():
    vectors = torch.cat([model(chunk)["sentence_embedding"] for chunk in chunks])
```
{% endif %}

## Settings
```json
{{ raw_settings }}
```
"""


def write_model_cards(job, folder, selected=None):
    """Write README.md into every model folder of the checkpoint `folder` of a train job. selected: see `model_card`."""
    sides = ENCODES if (folder / QUERY).is_dir() else {"": "queries and passages"}  # one encoder for both
    for side, texts in sides.items():
        (folder / side / "README.md").write_text(model_card(job, texts, selected), encoding="utf-8")


def model_card(job, encodes, selected=None):
    """The card (Markdown) of the encoder of `encodes`: "queries", "passages", or "queries and passages".

    selected: which weights of the training these are, where they are not simply the last ones (text). Nothing in it
    depends on time or machine, so that equal runs write equal files.
    """
    manifests, settings = {role: artefact.manifest for role, artefact in job.inputs.items()}, job.settings
    pretrained, trained = manifests["pretrained"]["settings"], [ENCODES[side] for side in settings.training.trains]
    limits = {"queries": settings.max_query_tokens, "passages": settings.max_passage_tokens}
    text = TokensSettings(**manifests["tokens"]["settings"])
    prefixes = {"queries": text.query_prefix, "passages": text.passage_prefix}
    example_side = "queries" if encodes == "queries" else "passages"
    environment = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    return environment.from_string(CARD).render(
        encodes=encodes,
        selected=selected,
        settings=settings,
        training=settings.training,
        stage=f"{job.kind}/{job.key}",
        inputs={"negatives": "", "continued": ""} | {r: f"{m['kind']}/{m['key']}" for r, m in manifests.items()},
        collection=manifests["collection"],
        base=pretrained["checkpoint"],
        own=pretrained.get("query_checkpoint"),
        facts=job.facts("pretrained"),
        place=lambda source: ", ".join(f"{name} `{source[name]}`" for name in SOURCE if source.get(name)),
        trained=trained,
        frozen=encodes in limits and encodes not in trained,
        steps=job.facts("continued")["end_step"] if "continued" in manifests else 0,
        lengths=" and ".join(f"{side} {limit} tokens" for side, limit in limits.items() if side in encodes),
        title=TITLE[text.title],
        text=text,
        prefixes={side: prefix for side, prefix in prefixes.items() if side in encodes},
        prefix=prefixes[example_side],
        method=ENCODE[example_side] if any(prefixes.values()) else "encode",
        example="a query" if example_side == "queries" else "a passage",
        max_tokens=limits[example_side],
        raw_settings=json.dumps(job.raw_settings, indent=1, sort_keys=True),
    )
