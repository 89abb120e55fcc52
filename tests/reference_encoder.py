"""An encoder as transformers computes it over padded texts, which `peers.padded` makes."""

import copy

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModel

from peers import padded


class Reference(nn.Module):
    """The same encoder with the same parameters, and torch's attention over padded texts."""

    def __init__(self, encoder):
        super().__init__()
        config = copy.deepcopy(encoder.backbone.config)  # which says what attention the encoder itself has
        pooler = getattr(encoder.backbone, "pooler", False)
        pooler = {"add_pooling_layer": pooler is not None} if pooler is not False else {}
        backbone = AutoModel.from_config(config, attn_implementation="sdpa", **pooler)
        backbone.load_state_dict(encoder.backbone.state_dict(keep_vars=True), assign=True)
        self.backbone, self.head = backbone, encoder.head
        self.pooling, self.normalize = encoder.pooling, encoder.normalize
        self.train(encoder.training)

    def forward(self, input_ids, attention_mask):
        """Padded texts: int64 [B, T] -> float32 [B, D]."""
        hidden_BTH = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask_BT1 = attention_mask.unsqueeze(-1).float()
        pooled_BH = {
            "cls": hidden_BTH[:, 0],
            "mean": (hidden_BTH * mask_BT1).sum(1) / mask_BT1.sum(1),
            "last": hidden_BTH[torch.arange(len(input_ids)), attention_mask.sum(1) - 1],
        }[self.pooling]
        vectors_BD = self.head(pooled_BH)
        return functional.normalize(vectors_BD, dim=-1) if self.normalize else vectors_BD


reference_of = Reference


def padded_vectors(side, rows):
    """The vectors of a side's texts, all in one batch, padded to the longest."""
    return Reference(side.encoder)(*padded(side.tokens, rows, side.max_tokens, side.special))
