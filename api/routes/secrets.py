"""Secrets of the caller: store, list and delete them. Their values are in no answer, log or event."""

from typing import Annotated

from fastapi import APIRouter, Path

from api.access.auth import UserOrOperator
from api.http.errors import documented, invalid
from api.schemas.secrets import SecretList, SecretName, SecretPut, SecretView
from api.services import ServicesDep
from gavel.types import StoredSecret

router = APIRouter(prefix="/v1/secrets", tags=["tiers and users"])

NamePath = Annotated[SecretName, Path(description="Name of the secret, and of the variable that jobs get.")]


@router.get("", operation_id="list_secrets", responses=documented(401, 403, 503))
def list_secrets(caller: UserOrOperator, services: ServicesDep) -> SecretList:
    """The caller's secrets by name, without their values."""
    return SecretList(items=[_view(each) for each in services.secrets.names(caller.user)])


@router.put("/{name}", operation_id="put_secret", responses=documented(400, 401, 403, 413, 422, 503))
def put_secret(name: NamePath, body: SecretPut, caller: UserOrOperator, services: ServicesDep) -> SecretView:
    """Store a secret of the caller, or replace its value. Jobs get the new value when they start the next time."""
    value = body.value.get_secret_value()
    if "\0" in value:
        raise invalid("value", "has a NUL, which no environment variable can hold")
    return _view(services.secrets.put(caller.user, name, value))


@router.delete("/{name}", status_code=200, operation_id="delete_secret", responses=documented(401, 403, 404, 422, 503))
def delete_secret(name: NamePath, caller: UserOrOperator, services: ServicesDep) -> SecretList:
    """Delete a secret of the caller, and answer those left. Jobs that ask for it do not start any more."""
    services.secrets.delete(caller.user, name)
    return list_secrets(caller, services)


def _view(secret: StoredSecret) -> SecretView:
    return SecretView(name=secret.name, updated_at_s=secret.updated_at_s)
