"""A small OpenID provider as a process of its own: `python -m tests.oidc_provider`.

It keeps what the protocol asks of one: registered clients and addresses, codes that are good once, PKCE, signed tokens,
keys that may be replaced. PUT /control says what a person's tokens hold, so that wrong ones can be tried, too.
"""

import base64
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx
import uvicorn
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "gavel", "a secret of the client"
LIMIT_S = 60.0


def a_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig", "alg": "RS256"}, auto_kid=False)


@dataclass
class State:
    """What the provider remembers. `claims` are those of everybody who logs in; `userinfo` is told elsewhere."""

    url: str
    redirect_url: str = ""
    key: RSAKey = field(default_factory=a_key)
    claims: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)


def provider(state: State) -> FastAPI:
    app = FastAPI()
    describe(app, state)
    serve_browsers(app, state)
    serve_clients(app, state)

    @app.put("/control")
    async def control(request: Request) -> Response:
        wanted = await request.json()
        if wanted.pop("new_key", False):
            state.key = a_key()
        for name, value in wanted.items():
            setattr(state, name, value)
        return Response(status_code=204)

    return app


def describe(app: FastAPI, state: State) -> None:
    @app.get("/.well-known/openid-configuration")
    def configuration() -> dict[str, Any]:
        places = {
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
            "jwks_uri": "jwks",
            "userinfo_endpoint": "userinfo",
        }
        return {"issuer": state.url, **{name: f"{state.url}/{path}" for name, path in places.items()}}

    @app.get("/jwks")
    def jwks() -> dict[str, Any]:
        return {"keys": [state.key.as_dict(private=False)]}


def serve_browsers(app: FastAPI, state: State) -> None:
    @app.get("/authorize")
    def authorize(request: Request) -> Response:
        asked = dict(request.query_params)
        if asked.get("client_id") != CLIENT or asked.get("redirect_uri") != state.redirect_url:
            return HTMLResponse("<p>This client or address is not registered.</p>", 400)
        if asked.get("code_challenge_method") != "S256" or "openid" not in asked.get("scope", "").split():
            return RedirectResponse(f"{state.redirect_url}?error=invalid_request&state={asked.get('state')}", 303)
        fields = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in asked.items())
        return HTMLResponse(f'<form method="post"><h1>Provider</h1>{fields}<button>Sign in</button></form>')

    @app.post("/authorize")
    async def signed_in(request: Request) -> Response:
        asked = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        code = secrets.token_urlsafe(16)
        state.codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": state.url}
        return RedirectResponse(f"{state.redirect_url}?{urlencode(back)}", 303)


def serve_clients(app: FastAPI, state: State) -> None:
    @app.post("/token")
    async def token(request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        asked = state.codes.pop(form.get("code", ""), None)
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return JSONResponse({"error": "invalid_client"}, 401)
        is_proven = asked and asked["code_challenge"] == create_s256_code_challenge(form.get("code_verifier", ""))
        if not asked or not is_proven or form.get("redirect_uri") != asked["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        standard = {"iss": state.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        header = {"alg": "RS256", "kid": state.key.kid}
        id_token = jwt.encode(header, {**standard, **state.claims}, state.key)
        return JSONResponse({"access_token": "an access token", "token_type": "Bearer", "id_token": id_token})

    @app.get("/userinfo")
    def userinfo(request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer an access token":
            return JSONResponse({"error": "invalid_token"}, 401)
        return JSONResponse({"sub": state.claims["sub"], **state.userinfo})


@dataclass
class Running:
    """A running provider."""

    url: str
    process: "subprocess.Popen[str]"

    def tell(self, **wanted: Any) -> None:
        httpx.put(f"{self.url}/control", json=wanted).raise_for_status()

    def of(self, subject: str, name: str, *groups: str, **claims: Any) -> None:
        """Whoever signs in from now on is this person."""
        self.tell(claims={"sub": subject, "preferred_username": name, "groups": list(groups), **claims}, userinfo={})

    def sign_in(self, browser: httpx.Client, url: str) -> str:
        """Fill in the provider's form at the URL; return where it sends the browser."""
        asked = dict(httpx.URL(url).params)
        assert browser.get(url).status_code == 200
        return str(browser.post(f"{self.url}/authorize", data=asked).headers["location"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LIMIT_S)


@contextmanager
def running() -> Iterator[Running]:
    argv = [sys.executable, "-m", "tests.oidc_provider"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    try:
        yield Running(process.stdout.readline().strip(), process)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
        process.stdout.close()


def settings_of(provider_url: str, **further: Any) -> Mapping[str, Any]:
    return {"issuer_url": provider_url, "client_id": CLIENT, "client_secret": SECRET, **further}


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    print(url)
    uvicorn.Server(uvicorn.Config(provider(State(url)), log_level="critical")).run(sockets=[listener])


if __name__ == "__main__":
    main()
