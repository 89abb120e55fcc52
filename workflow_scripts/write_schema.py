"""Write config/schema.json and config/published/schema.json from the settings' classes (`make schema`).

Editors complete and check keys with them.
"""

from pathlib import Path

from teleport.report.published import PublishedTable
from teleport.runtime.files import write_json
from teleport.settings.read import json_schema

if __name__ == "__main__":
    config = Path(__file__).parents[1] / "config"
    write_json(config / "schema.json", json_schema())
    write_json(config / "published" / "schema.json", PublishedTable.model_json_schema())
