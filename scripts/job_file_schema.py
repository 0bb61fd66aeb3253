"""Writes the JSON schema of job files, made from the API's own: an editor then completes and checks them.

usage: .venv/bin/python -m scripts.job_file_schema          (a test holds the file to be fresh)
"""

import json
from pathlib import Path

from api.schemas import JobSubmit

SCHEMA = Path(__file__).parents[1] / "docs" / "job-file.schema.json"


def schema() -> str:
    """Return the schema as text."""
    described = JobSubmit.model_json_schema() | {"title": "Gavel job file"}
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | described, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema())
