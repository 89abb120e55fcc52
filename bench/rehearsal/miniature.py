"""A miniature encoder: one layer, 32 dimensions, the embedded checkpoint's tokenizer; drawn, and not trained.

Its vectors are as spread as a trained encoder's, and a question's words bring it near to the passage that has them:
attention goes by a token's rarity, which is the first dimension of its embedding, and the rest of it is drawn. With
weights that are simply drawn, or attention to what every text has, vectors would be nearly the same, and a search would
measure ties.
"""

import numpy as np
import torch
from transformers import BertConfig, BertModel

from teleport.encoder.checkpoint import copy_tokenizer
from teleport.running.files import write_json

HIDDEN, HEADS, WIDE = 32, 1, 64
RARITY = 6.0  # how much more attention the rarest token gets than the most frequent one: e to this


def write_miniature(folder, source, frequency, vocabulary_size, positions=512):
    """Write the checkpoint in transformers' form.

    source: a folder whose tokenizer is copied; frequency: {token id: how often it comes}, of those that texts are made
    of; all others count as rare
    """
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        intermediate_size=WIDE,
        max_position_embeddings=positions,
    )
    model = BertModel(config, add_pooling_layer=False)
    rarity = torch.ones(vocabulary_size)
    ids = torch.tensor(sorted(frequency, key=frequency.get, reverse=True))
    rarity[ids] = torch.log1p(torch.arange(len(ids)).float()) / np.log1p(len(ids))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.02)  # next to nothing; none is 0, as in no checkpoint that was trained
        words = torch.randn(vocabulary_size, HIDDEN)
        words[:, 0] = (rarity - 0.5) * HIDDEN**0.5
        model.embeddings.word_embeddings.weight.copy_(words)
        layer = model.encoder.layer[0]
        for norm in (model.embeddings.LayerNorm, layer.attention.output.LayerNorm, layer.output.LayerNorm):
            norm.weight.fill_(1.0)
        attention = layer.attention.self
        attention.query.bias[0] = HIDDEN**0.5
        attention.key.weight[0, 0] = RARITY / HIDDEN**0.5
        attention.value.weight.copy_(torch.eye(HIDDEN))
        attention.value.weight[0, 0] = 0.0
        layer.attention.output.dense.weight.copy_(16 * torch.eye(HIDDEN))
    model.save_pretrained(folder, safe_serialization=True)
    copy_tokenizer(source, folder)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
