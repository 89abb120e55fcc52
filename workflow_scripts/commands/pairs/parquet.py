"""Parquet, read by pyarrow a batch at a time."""

import pyarrow as pa
import pyarrow.parquet as pq

from teleport.refusal import Refusal

NAME = "Parquet"
BY_ORDER = True  # of the columns: may it decide what they are?
SUFFIXES = (".parquet",)
BATCH = 4096


def rows(path, wrong):
    """(place, record) of a file."""
    try:
        # With pre_buffer, all that was read would stay in memory until the end of the file.
        file, number = pq.ParquetFile(path, pre_buffer=False), 0
        for batch in file.iter_batches(BATCH):
            for record in batch.to_pylist():
                number += 1
                yield f"row {number}", record
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        fault = f"not a Parquet file, a damaged one, or one with a value that Python cannot hold ({error})"
        raise Refusal(f"{path}: {fault}. Write it again.") from None
