"""The model card of a trained checkpoint, from the manifests of its stage: how it was made and how to use it, no
scores."""

import json
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from teleport.encoder.checkpoint import PASSAGE, QUERY, read_modules
from teleport.settings.encoder import TokensSettings, with_title
from teleport.settings.training import ALSO

ENCODES = {QUERY: "queries", PASSAGE: "passages"}
ENCODE = {"queries": "encode_query", "passages": "encode_document"}  # with the prompt of the side
SOURCE = ("hub", "revision", "package", "packages", "version")  # no folder: a path decides nothing
CARD = Path(__file__).with_name("model_card.md.jinja")


def write_model_cards(job, folder, made):
    """Write README.md into every model folder of the checkpoint `folder` of a train job. made: see `model_card`."""
    sides = ENCODES if (folder / QUERY).is_dir() else {"": "queries and passages"}  # one encoder for both
    for side, texts in sides.items():
        widths = [config["out_features"] for _, config in read_modules(folder / side).dense]
        (folder / side / "README.md").write_text(model_card(job, texts, made, widths), encoding="utf-8")


def model_card(job, encodes, made=None, widths=()):
    """The card (Markdown) of the encoder of `encodes`: "queries", "passages", or "queries and passages"; nothing in it
    depends on time or machine. made: the facts of the training, read if it selects its weights by a dev set; widths: of
    the checkpoint's linear layers"""
    manifests, settings = {role: artefact.manifest for role, artefact in job.inputs.items()}, job.settings
    pretrained, trained = manifests["pretrained"]["settings"], [ENCODES[side] for side in settings.training.trains]
    limits = {"queries": settings.max_query_tokens, "passages": settings.max_passage_tokens}
    texts = {"queries": "tokens.queries.train", "passages": "tokens.passages"}
    texts = {side: TokensSettings(**manifests[role]["settings"]) for side, role in texts.items()}
    prefixes = {side: text.prefix for side, text in texts.items()}
    example_side = "queries" if encodes == "queries" else "passages"
    environment = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    return environment.from_string(CARD.read_text(encoding="utf-8")).render(
        encodes=encodes,
        made=made,
        widths=list(widths),
        settings=settings,
        training=settings.training,
        stage=f"{job.kind}/{job.key}",
        inputs={"negatives": "", "continued": ""} | {r: f"{m['kind']}/{m['key']}" for r, m in manifests.items()},
        collection=manifests["corpus"],
        also=[manifests[f"{ALSO.format(number)}corpus"] for number in range(1, len(settings.also) + 1)],
        base=pretrained["checkpoint"],
        own=pretrained.get("query_checkpoint"),
        facts=job.facts("pretrained"),
        place=lambda source: ", ".join(f"{n} `{source[n]}`" for n in SOURCE if source.get(n)) or "a folder",
        trained=trained,
        frozen=encodes in limits and encodes not in trained,
        steps=job.facts("continued")["end_step"] if "continued" in manifests else 0,
        lengths=" and ".join(f"{side} {limit} tokens" for side, limit in limits.items() if side in encodes),
        text=texts["passages"],
        prefixes={side: prefix for side, prefix in prefixes.items() if side in encodes},
        prefix=with_title(prefixes[example_side]),
        method=ENCODE[example_side] if any(prefixes.values()) else "encode",
        example="a query" if example_side == "queries" else "a passage",
        max_tokens=limits[example_side],
        raw_settings=json.dumps(job.raw_settings, indent=1, sort_keys=True),
    )
