"""The stages that tokenise and encode "passages" or "queries.SPLIT", with the encoder of an experiment or a teacher."""

from teleport.plan.stage import Stage
from teleport.settings.encoder import EncodeSettings, TokensSettings

# How queries are encoded: cut to the length of queries, with one vector each, stored in float32.
QUERIES_SIDE = {"max_passage_tokens": None, "chunks": 1, "vectors": "fp32"}


def tokens_stage(plan, encoder, texts, tokenizer):
    """The tokens stage of texts. tokenizer: the pretrained stage that has it"""
    settings = {"of": texts, "lower_case": encoder.lower_case}
    if texts == "passages":
        inputs, settings["prefix"] = {"corpus": plan.corpus}, encoder.passage_prefix
        settings |= {"title": encoder.title, "max_characters": encoder.max_characters}
    else:
        split, settings["prefix"] = texts.removeprefix("queries."), encoder.query_prefix
        inputs = {f"split.{split}": plan.split(split)}
    return Stage("tokens", TokensSettings(**settings), inputs | {"pretrained": tokenizer})


def encode_stage(encoder, texts, precision, tokens, checkpoint):
    """The encode stage of texts, from their tokens stage and the stage of a checkpoint."""
    others = QUERIES_SIDE if texts != "passages" else {"max_query_tokens": None}
    settings = EncodeSettings.taken_from(encoder, of=texts, precision=precision, **others)
    return Stage("encode", settings, {f"tokens.{texts}": tokens, "checkpoint": checkpoint})
