"""YAML files that hold one mapping, as configurations and published tables do."""

import yaml


def read_mapping(path):
    """The content (dict) of a YAML file. Raises ValueError, with file and line, when it is no mapping in YAML."""
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: bytes that are not UTF-8, dates that there are not
        message = " ".join(str(error).split())
        raise ValueError(f"{path}: not YAML in UTF-8 ({message}). Correct it there.") from None
    if not isinstance(content, dict):
        state = "empty" if content is None else f"a {type(content).__name__}"
        raise ValueError(f"{path}: the file is {state}, not a mapping. Write `key: value` lines.")
    return content
