"""Write config/schema.json and config/published/schema.json from the settings' classes (`make schema`).

Editors complete and check keys with them.
"""

from pathlib import Path

from teleport.config import json_schema
from teleport.report.published import PublishedTable
from teleport.stage import write_json

if __name__ == "__main__":
    config = Path(__file__).parents[1] / "config"
    write_json(config / "schema.json", json_schema())
    write_json(config / "published" / "schema.json", PublishedTable.model_json_schema())
