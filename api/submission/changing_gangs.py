"""What does not go with a gang that is stopped, and started in another way, while its job goes on."""

from api.http.errors import invalid
from api.schemas import JobSubmit


def check_may_change(body: JobSubmit, field: str, *, what: str, each: str) -> None:
    """Raise a 422 problem for what a job cannot be if `what` its gang has may change, by the `field` that says so.

    `each` tells for what its speed is measured.
    """
    if body.mode != "batch":
        raise invalid(
            field, f"a job of mode {body.mode} is never stopped, so its {what} cannot change; leave {field} out"
        )
    if not body.preemptible:
        raise invalid("preemptible", f"a gang is stopped where its {what} changes; leave it out, or leave {field} out")
    if body.throughputs:
        raise invalid("throughputs", f"leave them out with {field}: the speed is another {each}, and is measured")
    if body.dump:
        raise invalid(field, f"a program that is saved by dump and restore keeps its {what}; leave {field} out")
