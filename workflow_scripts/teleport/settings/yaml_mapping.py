"""YAML files that hold one mapping, as configurations and published tables do, and the lines of keys in them."""

import math
from itertools import chain
from pathlib import Path

import yaml

from teleport.refusal import Refusal

MOST_NODES = 1_000_000  # aliases followed: ten lines of aliases can stand for more than any memory holds


class Loader(yaml.SafeLoader):
    """Reports the location of an impossible value, such as the date 2026-13-45 or `!!bool x`."""

    def construct_object(self, node, deep=False):
        try:
            return super().construct_object(node, deep)
        except (ValueError, RecursionError) as error:
            problem = str(error)
        except (AttributeError, LookupError):  # from PyYAML, for a tag that does not fit the value
            problem = f"{node.value!r} is no {node.tag.rpartition(':')[2]}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def read_mapping(path):
    """The content (dict) of a YAML file. Raises Refusal with file and line for any other content."""
    content = parsed(path, Loader("").construct_document)
    if not isinstance(content, dict):
        state = "empty" if content is None else f"a {type(content).__name__}"
        raise Refusal(f"{path}: the file is {state}, not a mapping. Write `key: value` lines.")
    return content


def parsed(path, construct=lambda tree: tree):
    """The node tree of a YAML file, or the result of `construct` for it; None for an empty one."""
    if not Path(path).is_file():  # a pipe might never end
        state = "is no regular file" if Path(path).exists() else "is not there"
        raise Refusal(f"{path}: the file {state}. Give the path of a YAML file.")
    encoded = Path(path).read_bytes()
    try:
        tree = yaml.compose(encoded.decode("utf-8"), Loader)
        count_nodes(tree, {})
        return tree and construct(tree)
    except UnicodeDecodeError as error:
        line = encoded.count(b"\n", 0, error.start) + 1
        place, problem = f", line {line}", f"byte 0x{encoded[error.start]:02x}"
    except RecursionError:
        place, problem = "", "brackets inside brackets without end"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place, problem = f", line {mark.line + 1}", " ".join((error.problem or error.context).split())
    except yaml.YAMLError as error:
        place, problem = "", " ".join(str(error).split())
    raise Refusal(f"{path}{place}: not YAML in UTF-8 ({problem}). Correct it there.")


def count_nodes(node, sizes):
    """How many nodes there are at and below `node`, following aliases; `sizes`: known counts by id. Raises
    MarkedYAMLError for aliases that are circular or expand to too much."""
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # while it is being counted: an infinite size reveals a circle
        below = node.value if isinstance(node, yaml.SequenceNode) else []
        below = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else below
        sizes[id(node)] = 1 + sum(count_nodes(each, sizes) for each in below)
    if sizes[id(node)] > MOST_NODES:
        circle, large = "an alias stands for what it is a part of", f"more than {MOST_NODES:,} values, aliases followed"
        problem = circle if sizes[id(node)] == math.inf else large
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    return sizes[id(node)]


class Locations:
    """Finds the file and line of a key; later files win. Raises Refusal for a file that is not YAML or repeats a
    key."""

    def __init__(self, files):
        self.lines = {file: lines_below(file, parsed(file)) for file in reversed(list(files))}

    def of(self, path):
        """`file, line N: a.b.c` for the deepest part of `path` that is in a file."""
        path = tuple(map(str, path))
        for depth in range(len(path), 0, -1):
            for file, lines in self.lines.items():
                if path[:depth] in lines:
                    return f"{file}, line {lines[path[:depth]]}: {'.'.join(path)}"
        return ".".join(path) or "configuration"

    def of_first(self, *paths):
        """`of` the first of these paths that a file has in full, or else of the first."""
        for path in (tuple(map(str, path)) for path in paths):
            if any(path in lines for lines in self.lines.values()):
                return self.of(path)
        return self.of(paths[0])


def lines_below(file, node, path=()):
    """{path of keys: line} below a YAML node at `path`. Raises Refusal, naming both lines, for a repeated key, of which
    YAML would drop the first entry."""
    lines, entries = {}, []
    if isinstance(node, yaml.MappingNode):
        entries = [(key.value, key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        entries = [(str(number), value, value) for number, value in enumerate(node.value)]
    for name, start, value in entries:
        below, line = (*path, name), start.start_mark.line + 1
        if below in lines:
            twice = f"{'.'.join(below)} is on line {lines[below]}, too"
            raise Refusal(f"{file}, line {line}: {twice}. Join the two entries.")
        lines |= {below: line} | lines_below(file, value, below)
    return lines
