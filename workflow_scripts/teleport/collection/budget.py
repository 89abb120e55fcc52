"""How many passages are read or written at once, for the stage and for the forecast, which loads no pyarrow."""

ROW_GROUP = 65536  # passages in memory while writing: about 25 MB of MS MARCO
