"""The dual encoder: a backbone, pooling, and maybe a projection head and normalisation."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from teleport.encoder.architectures import positions_before_text
from teleport.encoder.backbone import load_backbone
from teleport.encoder.checkpoint import PASSAGE, QUERY, copy_tokenizer, read_modules, sides, write_modules

HEAD_STD = 0.02  # of the head's initial weights: ANCE's released code, the value that BERT itself was initialised with
HEAD = ("Dense", "linear."), ("LayerNorm", "norm.")  # each part's folder (`read_modules`) and prefix of its weights


class Encoder(nn.Module):
    """Texts as token ids -> vectors.

    backbone:   a `Backbone`, or transformers' model of one of ARCHITECTURES without its pooler
    pooling:    "cls" (first token) or "mean" (all tokens that are not padding)
    projection: width of the head (linear, then LayerNorm: ANCE, released code), or None
    normalize:  whether vectors get length 1
    """

    def __init__(self, backbone, pooling, projection=None, normalize=False):
        super().__init__()
        self.backbone, self.pooling, self.projection, self.normalize = backbone, pooling, projection, normalize
        self.head = nn.Identity()
        if projection:  # skip_init: torch's own initialisation would draw from the global random state
            linear = nn.utils.skip_init(nn.Linear, backbone.config.hidden_size, projection)
            self.head = nn.Sequential(linear, nn.LayerNorm(projection))

    @property
    def dim(self):
        """Width of the vectors."""
        return self.projection or self.backbone.config.hidden_size

    @property
    def max_tokens(self):
        """The longest input, special tokens included."""
        config = self.backbone.config
        return config.max_position_embeddings - positions_before_text(config)

    def init_head(self, generator):
        """Draw the head's weights from N(0, 0.02) with a torch.Generator; its bias is 0."""
        nn.init.normal_(self.head[0].weight, std=HEAD_STD, generator=generator)
        nn.init.zeros_(self.head[0].bias)

    def set_head(self, parts):
        """Give the head the weights {name: tensor} of its linear layer and of its LayerNorm, named as in HEAD."""
        for module, (_, prefix), tensors in zip(self.head, HEAD, parts, strict=True):
            module.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in tensors.items()})

    def forward(self, input_ids, attention_mask):
        """input_ids, attention_mask: int64 [B, L] -> float32 [B, dim], also under autocast.

        Needs a backbone of transformers: the reference of `encoder.packed`, which is what stages compute with.
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
        encoder.set_head(load_file(modules.paths[name] / "model.safetensors") for name, _ in HEAD)
    return encoder.eval()


def load_encoders(checkpoint, load_backbone=load_backbone):
    """(query encoder, passage encoder) of a checkpoint folder in evaluation mode; the same object when tied.

    Raises ValueError when the folder is not of that form.
    """
    query, passage = sides(checkpoint)
    encoders = {folder: load_encoder(folder, load_backbone) for folder in dict.fromkeys([passage, query])}
    return encoders[query], encoders[passage]


def save_encoder(encoder, folder, tokenizer_source, max_tokens=None):
    """Write one encoder as a folder of transformers and sentence-transformers, weights in safetensors.

    The arguments are those of `save_encoders`; max_tokens None: where the backbone's positions end.
    """
    encoder.backbone.save_pretrained(folder)
    copy_tokenizer(tokenizer_source, folder)
    write_modules(folder, encoder, max_tokens or encoder.max_tokens)
    if encoder.projection:
        paths = read_modules(folder).paths
        for module, (name, prefix) in zip(encoder.head, HEAD, strict=True):
            tensors = {prefix + key: tensor for key, tensor in module.state_dict().items()}
            save_file(tensors, paths[name] / "model.safetensors")


def save_encoders(
    query_encoder, passage_encoder, folder, tokenizer_source, max_query_tokens=None, max_passage_tokens=None
):
    """Write a checkpoint folder: one folder when both are the same object (tied), else `query/` and `passage/`.

    tokenizer_source: a transformers folder or a checkpoint folder, whose tokenizer files are copied.
    max_query_tokens, max_passage_tokens: where sentence-transformers truncates (a tied checkpoint: as passages).
    """
    tied = query_encoder is passage_encoder
    if not tied:
        save_encoder(query_encoder, Path(folder) / QUERY, tokenizer_source, max_query_tokens)
    save_encoder(passage_encoder, folder if tied else Path(folder) / PASSAGE, tokenizer_source, max_passage_tokens)
