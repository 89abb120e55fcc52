"""The padded input of a transformers model, which tests and benchmarks compare the packed one with."""

import numpy as np
import torch


def padded(token_map, rows, max_tokens, special):
    """The encoder's input for some texts: CLS ids SEP, truncated to max_tokens in all, padded to the longest.

    rows: B text numbers; special: the content of special.json
    returns: torch tensors (input_ids int64 [B, L], attention_mask int64 [B, L])
    """
    texts = [token_map[row][: max_tokens - 2] for row in rows]
    lengths = np.array([len(text) + 2 for text in texts])
    ids_BL = np.full((len(texts), lengths.max()), special["pad"], dtype=np.int64)
    ids_BL[:, 0] = special["before"][0]
    for line, text in zip(ids_BL, texts, strict=True):
        line[1 : len(text) + 1] = text
        line[len(text) + 1] = special["after"][0]
    mask_BL = (np.arange(ids_BL.shape[1]) < lengths[:, None]).astype(np.int64)
    return torch.from_numpy(ids_BL), torch.from_numpy(mask_BL)
