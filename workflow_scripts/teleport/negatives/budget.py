"""How large a negative of a pool is, for stages and for the forecast, which loads no numpy."""

# numpy's names of types; `pool.Items` says what the fields are.
FIELDS = {"passages": "i4", "sources": "u2", "first_episodes": "u1", "ranks": "i4", "scores": "f4"}
POOL_BYTES = sum(int(kind[1:]) for kind in FIELDS.values())
