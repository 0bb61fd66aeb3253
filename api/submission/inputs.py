"""The inputs of a job: whether its nodes can have them."""

import os

from api.http.errors import invalid
from api.schemas import JobSubmit
from api.services import Services
from gavel.backends.input_sources import source_problem
from gavel.backends.inputs import local_path


def check_data(body: JobSubmit, services: Services) -> None:
    """Raise a 422 problem for an input that is not there, or that no node can fetch."""
    for name, source in body.data.items():
        if problem := _problem(source, services) or (_problem_in_image(source) if body.image else ""):
            raise invalid(f"data.{name}", problem)


def _problem(source: str, services: Services) -> str:
    is_here, path = services.settings.backend == "local", local_path(source)
    if problem := source_problem(source, services.settings.data_hosts.split()):
        return problem
    if path and is_here and not os.path.exists(path):
        return f"there is no {path} on the service's machine, where the job runs; correct the path, or give a URL"
    return ""


def _problem_in_image(source: str) -> str:
    is_refused = ":" in local_path(source)
    return "a path with a colon cannot be in a container; name another" if is_refused else ""
