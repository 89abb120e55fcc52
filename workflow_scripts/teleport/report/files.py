"""Small text files that a reader sees whole or not at all."""

import os
from pathlib import Path


def write_text(path, text):
    """Write UTF-8 `text` under a temporary name, then rename; folders are made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
