"""How many tokens are encoded at once, for stages and for the forecast, which loads no torch."""

# Tokens per batch, padding included if an encoder pads.
# encode, CPU: with 4,096 a layer's activations stay in the cache. CUDA: enough that a batch's arithmetic hides the
# launching of its kernels.
# train, CPU: more gained nothing. CUDA: the 20,000 tokens of the papers' 8 x (1 + 31) passages are one bucket, so
# weights are cast once; with gradient caching that is 12 GB by the forecast.
TOKEN_BUDGET = {"encode": {"cpu": 4096, "cuda": 65536}, "train": {"cpu": 8192, "cuda": 21504}}
