"""Writes the JSON schemas of job files and of gavel.yaml, made from the API's own; editors check files by them.

usage: .venv/bin/python -m scripts.job_file_schema          (a test holds the file to be fresh)
"""

import json
from pathlib import Path

from api.schemas import JobSubmit

SCHEMA = Path(__file__).parents[1] / "docs" / "job-file.schema.json"
PROJECT_SCHEMA = SCHEMA.with_name("project-file.schema.json")


def schema() -> str:
    """Return the schema as text."""
    described = JobSubmit.model_json_schema() | {"title": "Gavel job file"}
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | described, indent=2) + "\n"


def project_schema() -> str:
    """Return the schema of a project's file as text."""
    fields = JobSubmit.model_json_schema(ref_template="#/$defs/{model}")
    fields_of_job = {**fields, "title": "Fields of a job"}
    definitions = {**fields_of_job.pop("$defs", {}), "job": fields_of_job}
    job = {"$ref": "#/$defs/job"}
    described = {
        "title": "Gavel project file",
        "type": "object",
        "additionalProperties": False,
        "properties": {"defaults": job, "profiles": {"type": "object", "additionalProperties": job}},
        "$defs": definitions,
    }
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | described, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema())
    PROJECT_SCHEMA.write_text(project_schema())
