"""Where a key stands in the YAML files of a configuration."""

import yaml

from teleport.settings.yaml_mapping import read_nodes


class Locations:
    """Finds the file and line of a key; later files win. ValueError for a file without YAML or with a key twice."""

    def __init__(self, files):
        self.trees = [(file, read_nodes(file)) for file in reversed(list(files))]
        for file, tree in self.trees:
            refuse_repeated_keys(file, tree)

    def of(self, path):
        """`file, line N: a.b.c` for the deepest part of `path` that stands in a file."""
        name = ".".join(str(part) for part in path)
        found = [(*deepest(tree, path), file) for file, tree in self.trees]
        depth, line, file = max(found, key=lambda place: place[0], default=(0, 0, None))
        return f"{file}, line {line}: {name}" if depth else name or "configuration"


def deepest(node, path):
    """(how many keys of `path` exist below a YAML node, line of the last of them)."""
    line = 0
    for depth, part in enumerate(path):
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == str(part)]
            if not found:
                return depth, line
            line, node = found[-1][0].start_mark.line + 1, found[-1][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return depth, line
    return len(path), line


def refuse_repeated_keys(file, node, path=()):
    """Raise ValueError, naming both lines, for a repeated key at or below a YAML node: YAML drops the first entry."""
    if isinstance(node, yaml.MappingNode):
        lines = {}
        for key, value in node.value:
            name, line = ".".join([*path, key.value]), key.start_mark.line + 1
            if key.value in lines:
                first = lines[key.value]
                raise ValueError(f"{file}, line {line}: {name} is on line {first}, too. Join the two entries.")
            lines[key.value] = line
            refuse_repeated_keys(file, value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            refuse_repeated_keys(file, value, (*path, str(number)))
