"""Secrets of users, encrypted (Fernet): what jobs need and nobody is shown, such as a token of another service.

STATE/secrets/USER/NAME    a Fernet token of {"user", "name", "value"}, so that a file moved elsewhere is refused
STATE/secrets.key          the key, unless the settings name another file; made at first use
"""

import json
from collections.abc import Iterable
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from gavel.backends.durable import sync_folder, write_durable
from gavel.config import Settings
from gavel.errors import BackendUnavailable, InvalidRequest, NotFound
from gavel.types import StoredSecret
from gavel.types.environment import reserved

SECRETS_MAX = 1000


class SecretStore:
    """The secrets below `state_dir`. Safe from several threads and processes; every call raises OSError."""

    def __init__(self, state_dir: Path, key_file: Path | None = None) -> None:
        self._folder = state_dir / "secrets"
        self._key_file = key_file or state_dir / "secrets.key"

    def put(self, user: str, name: str, value: str) -> StoredSecret:
        """Store a secret, or replace its value. Raises InvalidRequest, BackendUnavailable."""
        if why := reserved(name):
            raise InvalidRequest("name", f"{name}: {why}")
        names = {each.name for each in self.names(user)}
        if name not in names and len(names) >= SECRETS_MAX:
            raise InvalidRequest("name", f"you have {SECRETS_MAX} secrets, which is the most; delete one first")
        text = json.dumps({"user": user, "name": name, "value": value}).encode()
        write_durable(self._path(user, name), self._cipher().encrypt(text))
        return self._described(self._path(user, name))

    def names(self, user: str) -> tuple[StoredSecret, ...]:
        """Return the user's secrets by name, without their values."""
        folder = self._folder / user
        paths = sorted(folder.iterdir()) if folder.is_dir() else ()
        return tuple(self._described(path) for path in paths if not path.name.startswith("."))

    def delete(self, user: str, name: str) -> None:
        """Delete a secret. Raises NotFound."""
        try:
            self._path(user, name).unlink()
        except FileNotFoundError:
            raise NotFound(f"you have no secret {name}") from None
        sync_folder(self._folder / user)

    def missing(self, user: str, names: Iterable[str]) -> str:
        """Return the first of the names that the user has no secret of; "" if all are there."""
        return next((name for name in names if not self._path(user, name).is_file()), "")

    def values(self, user: str, names: Iterable[str]) -> dict[str, str]:
        """Return the values of these secrets. Raises NotFound, BackendUnavailable if the key is not theirs."""
        return {name: self._value(user, name) for name in names}

    def _value(self, user: str, name: str) -> str:
        try:
            kept = json.loads(self._cipher().decrypt(self._path(user, name).read_bytes()))
        except FileNotFoundError:
            raise NotFound(missing_secret(name)) from None
        except InvalidToken:
            kept = {}
        if (kept.get("user"), kept.get("name")) != (user, name):
            raise BackendUnavailable(f"secret {name} cannot be read with the key in {self._key_file}")
        return str(kept["value"])

    def _path(self, user: str, name: str) -> Path:
        assert user not in ("", ".", "..") and "/" not in user + name, "names are checked where they come in"
        return self._folder / user / name

    def _described(self, path: Path) -> StoredSecret:
        return StoredSecret(name=path.name, updated_at_s=path.stat().st_mtime)

    def _cipher(self) -> Fernet:
        if not self._key_file.exists():
            if any(self._folder.glob("*/*")):
                raise BackendUnavailable(f"secrets are stored, but their key {self._key_file} is gone; put it back")
            write_durable(self._key_file, Fernet.generate_key(), replace=False)
        try:
            return Fernet(self._key_file.read_bytes().strip())
        except ValueError:
            raise BackendUnavailable(f"{self._key_file} has no key for secrets (32 bytes in URL-safe base64)") from None


def secret_store(settings: Settings) -> SecretStore:
    """Return the store of the service with these settings."""
    return SecretStore(settings.state_dir.resolve(), settings.secrets_key_file)


def missing_secret(name: str) -> str:
    """Return the sentence for a secret that is not stored."""
    return f"there is no secret {name}; store it with gavel secret set {name}"
