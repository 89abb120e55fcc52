"""A folder that `datasets` saved (save_to_disk): Arrow files, named in state.json; or one folder of that kind per
split, named in dataset_dict.json. `datasets` itself is not needed."""

import json

import pyarrow as pa

from teleport.refusal import Refusal
from teleport.running.files import kind_of

NAME = "a saved dataset"
BY_ORDER = True  # of the columns: may it decide what they are?
STATE, SPLITS = "state.json", "dataset_dict.json"


def is_dataset(folder):
    """Whether a folder is one that `datasets` saved. Exports of other tools have a dataset_info.json, too."""
    saved = any((folder / name).is_file() for name in (STATE, SPLITS))
    return saved or (folder / "dataset_info.json").is_file() and any(folder.glob("*.arrow"))


def folders(folder):
    """{split: folder} of a saved dataset; {"": folder} if it has no splits."""
    if not (folder / SPLITS).is_file():
        return {"": folder}
    names = described(folder / SPLITS, "splits", str)
    if missing := next((name for name in names if not (folder / name).is_dir()), None):
        raise Refusal(f"{folder / missing}: no such folder, and {folder / SPLITS} names it. Copy the whole dataset.")
    return {name: folder / name for name in names}


def described(path, key, kind):
    """The list below `key` in a JSON file of a dataset, of values of one type."""
    if path.exists() and not path.is_file():  # a pipe would never end
        raise Refusal(f"{path} is {kind_of(path.stat().st_mode)}. Copy the whole folder that `save_to_disk` wrote.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))[key]
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise TypeError(f"{key} is not a list of {kind.__name__}")
    except FileNotFoundError:
        raise Refusal(f"{path}: no such file. Copy the whole folder that `save_to_disk` wrote.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refusal(f"{path}: {key!r} cannot be read ({error}). Save the dataset again.") from None
    return values


def rows(folder, wrong):
    """(place, record) of a saved dataset without splits."""
    number = 0
    for file in described(folder / STATE, "_data_files", dict):
        path = folder / str(file.get("filename"))
        if not path.is_file() or path.parent != folder:
            raise Refusal(f"{path}: no such file, and {folder / STATE} names it. Copy the whole dataset.")
        try:
            with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as batches:
                for batch in batches:
                    for record in batch.to_pylist():
                        number += 1
                        yield f"row {number}", record
        except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
            fault = f"not a file of Arrow's, a damaged one, or one with a value that Python cannot hold ({error})"
            raise Refusal(f"{path}: {fault}. Save it again.") from None
