"""YAML files that hold one mapping, as configurations and published tables do, and where a key stands in them."""

import math
from itertools import chain
from pathlib import Path

import yaml

from teleport.refusal import Refusal

MOST_NODES = 1_000_000  # aliases followed: ten lines of aliases can stand for more than any memory holds


class Loader(yaml.SafeLoader):
    """Names the place of a value that there is not, such as the date 2026-13-45."""

    def construct_object(self, node, deep=False):
        try:
            return super().construct_object(node, deep)
        except (ValueError, RecursionError) as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None


def read_mapping(path):
    """The content (dict) of a YAML file; whatever else it holds is refused with file and line."""
    content = parsed(path, Loader("").construct_document)
    if not isinstance(content, dict):
        state = "empty" if content is None else f"a {type(content).__name__}"
        raise Refusal(f"{path}: the file is {state}, not a mapping. Write `key: value` lines.")
    return content


def parsed(path, construct=lambda tree: tree):
    """The node tree of a YAML file, or what `construct` makes of it; None of an empty one."""
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
    """How many nodes there are below `node` and at it, aliases followed; `sizes`: of those known, by id. Raises
    MarkedYAMLError for aliases that go in a circle or stand for too much."""
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # while it is counted: what it is a part of
        below = node.value if isinstance(node, yaml.SequenceNode) else []
        below = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else below
        sizes[id(node)] = 1 + sum(count_nodes(each, sizes) for each in below)
    if sizes[id(node)] > MOST_NODES:
        circle, large = "an alias stands for what it is a part of", f"more than {MOST_NODES:,} values, aliases followed"
        problem = circle if sizes[id(node)] == math.inf else large
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    return sizes[id(node)]


class Locations:
    """Finds the file and line of a key; later files win. ValueError for a file without YAML or with a key twice."""

    def __init__(self, files):
        self.trees = [(file, parsed(file)) for file in reversed(list(files))]
        for file, tree in self.trees:
            refuse_repeated_keys(file, tree)

    def of(self, path):
        """`file, line N: a.b.c` for the deepest part of `path` that stands in a file."""
        name = ".".join(str(part) for part in path)
        places = [(*deepest(tree, path), file) for file, tree in self.trees]
        depth, line, file = max(places, key=lambda place: place[0], default=(0, 0, None))
        return f"{file}, line {line}: {name}" if depth else name or "configuration"


def deepest(node, path):
    """(how many keys of `path` exist below a YAML node, line of the last of them)."""
    line = 0
    for depth, part in enumerate(path):
        if isinstance(node, yaml.MappingNode):
            matches = [(key, value) for key, value in node.value if key.value == str(part)]
            if not matches:
                return depth, line
            line, node = matches[-1][0].start_mark.line + 1, matches[-1][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return depth, line
    return len(path), line


def refuse_repeated_keys(file, node, path=()):
    """Raise Refusal, naming both lines, for a repeated key at or below a YAML node: YAML drops the first entry."""
    if isinstance(node, yaml.MappingNode):
        lines = {}
        for key, value in node.value:
            name, line = ".".join([*path, key.value]), key.start_mark.line + 1
            if key.value in lines:
                first = lines[key.value]
                raise Refusal(f"{file}, line {line}: {name} is on line {first}, too. Join the two entries.")
            lines[key.value] = line
            refuse_repeated_keys(file, value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            refuse_repeated_keys(file, value, (*path, str(number)))
