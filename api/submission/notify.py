"""Checks that a job's user can be notified at all."""

from api.http.errors import invalid
from api.schemas import JobSubmit
from api.services import Services
from gavel.notifications.addresses import addresses_of
from gavel.types import Identity

NO_ADDRESS = (
    "nothing can be sent to you: say where to with `gavel notification set --email ADDRESS` or --webhook-url;"
    " if that is refused, an operator has to set up notifications first"
)


def check_notify(body: JobSubmit, caller: Identity, services: Services) -> None:
    """Raise a 422 problem for a job with notifications that nothing would be sent of."""
    if body.notify and not addresses_of(services.store.notifications.settings(caller.user), services.settings):
        raise invalid("notify", NO_ADDRESS)
