"""Where the repository lies, and the real collections beside it, for the tests that use them."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"
