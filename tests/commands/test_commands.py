"""The commands are beside the library, which does without them."""

import re

from teleport.runtime.code import LIBRARY


def test_no_module_of_the_library_imports_a_command():
    importing = re.compile(r"^\s*(from|import) commands\b", re.MULTILINE)
    files = list(LIBRARY.rglob("*.py"))
    assert files and not [path for path in files if importing.search(path.read_text(encoding="utf-8"))]
