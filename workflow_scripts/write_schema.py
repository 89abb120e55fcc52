"""Write config/schema.json from the settings' classes (`make schema`); editors complete and check keys with it."""

from pathlib import Path

from teleport.config import json_schema
from teleport.stage import write_json

if __name__ == "__main__":
    write_json(Path(__file__).parents[1] / "config" / "schema.json", json_schema())
