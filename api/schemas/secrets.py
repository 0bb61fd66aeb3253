"""Secrets of users: names are shown, values never."""

from typing import Annotated

from pydantic import Field, SecretStr, StringConstraints

from api.schemas.fields import Request, View, example

SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=127)]


class SecretPut(Request):
    """A secret's value, which no answer ever has."""

    model_config = example(value="the-value-itself")

    value: SecretStr = Field(min_length=8, max_length=16384, description="Text without NUL.")


class SecretView(View):
    """A secret of a user, without its value."""

    name: str
    updated_at_s: float


class SecretList(View):
    """A user's secrets, by name."""

    items: list[SecretView]
