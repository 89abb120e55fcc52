"""Nested settings and facts as a flat list."""


def flat(value, key=""):
    """Yield (dotted key, value) of nested mappings and of lists of mappings, which count from 1."""
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        value = {str(number): entry for number, entry in enumerate(value, 1)}
    if not isinstance(value, dict):
        yield key, value
        return
    for name, entry in value.items():
        yield from flat(entry, f"{key}.{name}" if key else name)
