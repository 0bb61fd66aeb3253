"""Logins at an OpenID provider: the authorization code flow with PKCE, and the check of what comes back.

What an attempt needs until its end is in a cookie of the browser that began it, so any process can end it.
"""

import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import httpx

from gavel.config import OidcSettings

CALLBACK_PATH = "/login/oidc/callback"
LIMIT_S = 10.0  # of one request to the provider
METADATA_S = 3_600.0  # how long its description is used
REFUSED = 400  # the status for a code that is not good
LEEWAY_S = 60  # between its clock and ours
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")


class LoginFailed(Exception):
    """Nobody is logged in. `sentence` is for the person, `cause` for the log, `status` that of the answer."""

    def __init__(self, sentence: str, cause: str = "", status: int = 403) -> None:
        super().__init__(cause or sentence)
        self.sentence, self.status = sentence, status


@dataclass(frozen=True, slots=True)
class Attempt:
    """Three secrets of one attempt: what the answer must repeat, what the id token must have, what proves the code."""

    state: str
    nonce: str
    code_verifier: str

    @classmethod
    def new(cls) -> "Attempt":
        """Return an attempt of which nobody knows."""
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))

    @classmethod
    def of_cookie(cls, text: str) -> "Attempt | None":
        """Return the attempt that is in a cookie; None if there is none."""
        parts = text.split(".")
        return cls(*parts) if len(parts) == 3 and all(parts) else None

    def cookie(self) -> str:
        """Return the value of the cookie."""
        return ".".join(astuple(self))


class Provider:
    """An OpenID provider, for one event loop."""

    def __init__(self, settings: OidcSettings, public_url: str) -> None:
        self.settings = settings
        self._redirect_url = public_url.rstrip("/") + CALLBACK_PATH
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: dict[str, Any] | None = None

    async def authorization_url(self, attempt: Attempt) -> str:
        """Return where the browser is sent to log in. Raises LoginFailed if the provider does not answer."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        async with self._client() as client:
            metadata = await self.metadata(client)
        return str(
            prepare_grant_uri(
                metadata["authorization_endpoint"],
                self.settings.client_id,
                "code",
                redirect_uri=self._redirect_url,
                scope=self.settings.scopes,
                state=attempt.state,
                nonce=attempt.nonce,
                code_challenge=create_s256_code_challenge(attempt.code_verifier),
                code_challenge_method="S256",
            )
        )

    async def claims(self, attempt: Attempt, answer: Mapping[str, str]) -> Mapping[str, Any]:
        """Return what the provider reports of the person, checked. `answer` is what the browser brought back."""
        if not secrets.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise LoginFailed("This login was begun in another window, or long ago. Please log in again.", status=400)
        async with self._client() as client:
            metadata = await self.metadata(client)
            if "code" not in answer or answer.get("iss", metadata["issuer"]) != metadata["issuer"]:
                raise LoginFailed("The provider did not log you in.", f"no code, or of another issuer: {set(answer)}")
            tokens = await self._tokens(client, metadata, answer["code"], attempt)
            claims = await self._checked(client, metadata, tokens, attempt.nonce)
            return {**await self._userinfo(client, metadata, tokens, claims), **claims}

    async def metadata(self, client: httpx.AsyncClient) -> dict[str, Any]:
        """Return the provider's description of itself, at most an hour old."""
        if self._metadata is None or time.monotonic() - self._metadata[0] > METADATA_S:
            url = self.settings.issuer_url.rstrip("/") + "/.well-known/openid-configuration"
            metadata = await _json(client, "GET", url)
            if metadata.get("issuer") != self.settings.issuer_url:
                raise _unusable(f"its issuer is {metadata.get('issuer')!r}, not the one of the settings")
            absent = {"authorization_endpoint", "token_endpoint", "jwks_uri"} - metadata.keys()
            if absent:
                raise _unusable(f"its description lacks {', '.join(sorted(absent))}")
            self._metadata = time.monotonic(), metadata
        return self._metadata[1]

    async def _tokens(
        self, client: httpx.AsyncClient, metadata: Mapping[str, Any], code: str, attempt: Attempt
    ) -> dict[str, Any]:
        """Exchange the code for tokens."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url,
            "client_id": self.settings.client_id,
            "code_verifier": attempt.code_verifier,
        }
        secret, auth = self._secret(), None
        ways = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if secret and "client_secret_basic" in ways:
            auth = httpx.BasicAuth(self.settings.client_id, secret)
        elif secret:
            form["client_secret"] = secret
        return await _json(client, "POST", metadata["token_endpoint"], data=form, auth=auth)

    async def _checked(
        self, client: httpx.AsyncClient, metadata: Mapping[str, Any], tokens: Mapping[str, Any], nonce: str
    ) -> Mapping[str, Any]:
        """Return the claims of the id token, if the provider signed it for this client and attempt, and just now."""
        from authlib.oidc.core import CodeIDToken
        from joserfc.errors import JoseError

        ours = {
            "iss": {"essential": True, "value": metadata["issuer"]},
            "aud": {"essential": True, "value": self.settings.client_id},
            "nonce": {"essential": True, "value": nonce},
        }
        about = {"nonce": nonce, "client_id": self.settings.client_id, "access_token": tokens.get("access_token")}
        try:
            header, claims = await self._signed(client, metadata, str(tokens.get("id_token", "")))
            checked = CodeIDToken(claims, header, ours, about)
            checked.validate(now=int(time.time()), leeway=LEEWAY_S)
        except (JoseError, ValueError) as error:
            raise LoginFailed("What the provider reported of you cannot be trusted.", f"id token: {error}") from None
        return dict(checked)

    async def _signed(
        self, client: httpx.AsyncClient, metadata: Mapping[str, Any], id_token: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return header and claims of an id token that the provider signed; its keys may be new ones."""
        from joserfc import jwt
        from joserfc.errors import BadSignatureError, InvalidKeyIdError
        from joserfc.jwk import KeySet

        for is_last in (False, True):
            if self._keys is None or is_last:
                self._keys = await _json(client, "GET", metadata["jwks_uri"])
            try:
                token = jwt.decode(id_token, KeySet.import_key_set(self._keys), algorithms=list(ALGORITHMS))  # type: ignore[arg-type]
            except (InvalidKeyIdError, BadSignatureError):
                if is_last:
                    raise
            else:
                return dict(token.header), dict(token.claims)
        raise AssertionError("the loop returns or raises")

    async def _userinfo(
        self,
        client: httpx.AsyncClient,
        metadata: Mapping[str, Any],
        tokens: Mapping[str, Any],
        claims: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Return further claims, from the place where many providers put groups, if the id token lacks some."""
        wanted = (self.settings.name_claim, self.settings.groups_claim)
        if "userinfo_endpoint" not in metadata or all(claim(claims, each) is not None for each in wanted):
            return {}
        bearer = {"Authorization": f"Bearer {tokens.get('access_token', '')}"}
        further = await _json(client, "GET", metadata["userinfo_endpoint"], headers=bearer)
        if further.get("sub") != claims["sub"]:
            raise LoginFailed("What the provider reported of you cannot be trusted.", "userinfo is of somebody else")
        return further

    def _secret(self) -> str:
        try:
            return self.settings.secret()
        except OSError as error:
            raise _unusable(f"client_secret_file: {error}") from None

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(verify=self._trust, timeout=LIMIT_S)

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context()


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim, None if it is absent; dots lead into objects, as in `realm_access.roles`."""
    value: Any = claims
    for part in [name] if name in claims else name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


async def _json(client: httpx.AsyncClient, method: str, url: str, **request: Any) -> dict[str, Any]:
    """Return the object that the provider answers. Raises LoginFailed."""
    try:
        answer = await client.request(method, url, **request)
        if answer.status_code == REFUSED:
            raise LoginFailed("The provider did not log you in.", f"{method} {url}: {answer.text[:200]}")
        payload = answer.raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise _unusable(f"{method} {url}: {error!r}") from None
    if not isinstance(payload, dict):
        raise _unusable(f"{method} {url} did not answer with an object")
    return payload


def _unusable(cause: str) -> LoginFailed:
    sentence = "The provider that you log in at does not answer as it should. Try again later, or log in with a token."
    return LoginFailed(sentence, cause, status=503)
