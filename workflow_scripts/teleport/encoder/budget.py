"""How many tokens are encoded at once, for stages and for the forecast, which loads no torch."""

# Tokens per batch, padding included if an encoder pads.
# encode, CPU: with 4,096 a layer's activations stay in the cache. CUDA: enough that a batch's arithmetic hides the
# launching of its kernels.
# train, CPU: more gained nothing. CUDA: the 20,000 tokens of the papers' 8 x (1 + 31) passages are one bucket, so
# weights are cast once; with gradient caching that is 12 GB by the forecast.
TOKEN_BUDGET = {"encode": {"cpu": 4096, "cuda": 65536}, "train": {"cpu": 8192, "cuda": 21504}}
# Texts that are tokenised at a time: enough for the threads; 0.5 GB with their objects if all have 10,000 characters.
CHUNK_TEXTS = 2048
SHARE = 0.8  # of a device's room beside the weights; the rest is for work spaces and gaps
LEAST = 1024  # tokens: with less room a stage ends for lack of memory, with the remedy in its message


def tokens_within(budget, room, per_token):
    """How many tokens a device encodes at once: its `budget`, or fewer if its `room` (bytes; None: not limited) does
    not hold so many at `per_token` bytes each."""
    return budget if room is None else min(budget, max(LEAST, int(SHARE * room / per_token)))


def id_bytes(vocab_size):
    """Bytes of a saved token id."""
    return 2 if vocab_size <= 2**16 else 4
