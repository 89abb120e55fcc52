"""The dual encoder: a BERT or RoBERTa backbone, pooling, and maybe a projection head and normalisation."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from teleport.encoder.backbone import load_backbone
from teleport.encoder.checkpoint import PASSAGE, QUERY, copy_tokenizer, read_modules, sides, write_modules

HEAD_STD = 0.02  # of the head's initial weights: ANCE's released code, the value that BERT itself was initialised with


class Encoder(nn.Module):
    """Texts as token ids -> vectors.

    backbone:   a `Backbone`, or transformers' BertModel, RobertaModel or XLMRobertaModel without its pooler
    pooling:    "cls" (first token) or "mean" (all tokens that are not padding)
    projection: width of the head (linear, then LayerNorm: ANCE, released code), or None
    normalize:  whether vectors get length 1
    """

    def __init__(self, backbone, pooling, projection=None, normalize=False):
        super().__init__()
        hidden = backbone.config.hidden_size
        self.backbone, self.pooling, self.projection, self.normalize = backbone, pooling, projection, normalize
        # skip_init: torch's own initialisation would draw from the global random state. See init_head, load_encoder.
        linear = nn.utils.skip_init(nn.Linear, hidden, projection) if projection else None
        self.head = nn.Sequential(linear, nn.LayerNorm(projection)) if projection else nn.Identity()

    @property
    def dim(self):
        """Width of the vectors."""
        return self.projection or self.backbone.config.hidden_size

    @property
    def max_tokens(self):
        """The longest input, special tokens included. RoBERTa's positions start behind its padding id."""
        config = self.backbone.config
        first = 0 if config.model_type == "bert" else config.pad_token_id + 1
        return config.max_position_embeddings - first

    def init_head(self, generator):
        """Draw the head's weights from N(0, 0.02) with a torch.Generator; its bias is 0."""
        nn.init.normal_(self.head[0].weight, std=HEAD_STD, generator=generator)
        nn.init.zeros_(self.head[0].bias)

    def forward(self, input_ids, attention_mask):
        """input_ids, attention_mask: int64 [B, L] -> float32 [B, dim], also under autocast.

        With a backbone of transformers: the reference of `encoder.packed`, which is what stages compute with.
        """
        hidden_BLH = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.pooling == "cls":
            vectors_BH = hidden_BLH[:, 0].float()
        else:
            mask_BL1 = attention_mask.unsqueeze(-1).float()
            vectors_BH = (hidden_BLH.float() * mask_BL1).sum(1) / mask_BL1.sum(1)
        with torch.autocast(vectors_BH.device.type, enabled=False):
            return self.project(vectors_BH)

    def project(self, pooled_BH):
        """Head and normalisation: float32 [B, H] -> float32 [B, dim]."""
        vectors_BD = self.head(pooled_BH)
        return nn.functional.normalize(vectors_BD, dim=-1) if self.normalize else vectors_BD


def load_encoder(folder, load_backbone=load_backbone):
    """One Encoder from one folder that `save_encoder` wrote, in evaluation mode.

    load_backbone: that of `encoder.backbone`, or of `encoder.reference` for the model that transformers computes.
    """
    modules = read_modules(folder)
    encoder = Encoder(load_backbone(folder), modules.pooling, modules.projection, modules.normalize)
    if modules.projection:
        encoder.head[0].load_state_dict(without_prefix(modules.paths["Dense"], "linear."))
        encoder.head[1].load_state_dict(without_prefix(modules.paths["LayerNorm"], "norm."))
    return encoder.eval()


def without_prefix(folder, prefix):
    """The tensors of a module's model.safetensors, their names without `prefix`."""
    return {name.removeprefix(prefix): tensor for name, tensor in load_file(folder / "model.safetensors").items()}


def load_encoders(checkpoint, load_backbone=load_backbone):
    """(query encoder, passage encoder) of a checkpoint folder in evaluation mode; the same object when tied.

    Raises ValueError when the folder is not of that form.
    """
    query, passage = sides(checkpoint)
    passage_encoder = load_encoder(passage, load_backbone)
    return (passage_encoder if query == passage else load_encoder(query, load_backbone)), passage_encoder


def save_encoder(encoder, folder, tokenizer_source, max_tokens=None):
    """Write one encoder as a folder of transformers and sentence-transformers, weights in safetensors.

    tokenizer_source: a transformers folder or a checkpoint folder, whose tokenizer files are copied.
    max_tokens: where sentence-transformers truncates; None: where the backbone's positions end.
    """
    folder = Path(folder)
    encoder.backbone.save_pretrained(folder)
    copy_tokenizer(tokenizer_source, folder)
    hidden = encoder.backbone.config.hidden_size
    write_modules(
        folder, encoder.pooling, hidden, encoder.projection, encoder.normalize, max_tokens or encoder.max_tokens
    )
    if encoder.projection:
        paths = read_modules(folder).paths
        linear, norm = encoder.head
        save_file({f"linear.{n}": t for n, t in linear.state_dict().items()}, paths["Dense"] / "model.safetensors")
        save_file({f"norm.{n}": t for n, t in norm.state_dict().items()}, paths["LayerNorm"] / "model.safetensors")


def save_encoders(
    query_encoder, passage_encoder, folder, tokenizer_source, max_query_tokens=None, max_passage_tokens=None
):
    """Write a checkpoint folder: one folder when both are the same object (tied), else `query/` and `passage/`.

    tokenizer_source: a transformers folder or a checkpoint folder, whose tokenizer files are copied.
    max_query_tokens, max_passage_tokens: where sentence-transformers truncates (a tied checkpoint: as passages).
    """
    if query_encoder is passage_encoder:
        save_encoder(passage_encoder, folder, tokenizer_source, max_passage_tokens)
        return
    save_encoder(query_encoder, Path(folder) / QUERY, tokenizer_source, max_query_tokens)
    save_encoder(passage_encoder, Path(folder) / PASSAGE, tokenizer_source, max_passage_tokens)
