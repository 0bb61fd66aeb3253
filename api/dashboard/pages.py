"""The dashboard: two server-rendered pages that plain JavaScript keeps current over the REST API.

Everything a page needs is served from here; scripts and styles come from files, never from the page itself, which the
Content-Security-Policy enforces.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.auth import PUBLIC, CookieDep, identify, start_session
from api.errors import documented, problem
from api.services import ServicesDep
from gavel.types import Identity, Scope

HERE = Path(__file__).parent
MEDIA_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
FILES: Final[Mapping[str, Path]] = {
    path.name: path for path in sorted((HERE / "static").iterdir()) if path.suffix in MEDIA_TYPES
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
FILE_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}

router = APIRouter(include_in_schema=False, dependencies=[PUBLIC])
_templates = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


@router.get("/", response_class=HTMLResponse)
def overview(request: Request, services: ServicesDep, session: CookieDep) -> Response:
    """The cluster at a glance; without a session, how to get one (401)."""
    kind = next(iter(services.catalogue), "")
    return _page("overview.html", request, identify(services, session), kind=kind)


@router.get("/jobs/{job_id}", response_class=HTMLResponse)
def job(job_id: str, request: Request, services: ServicesDep, session: CookieDep) -> Response:
    """One job. The page asks the API for it, which decides whether the caller may see it."""
    return _page("job.html", request, identify(services, session), job_id=job_id)


@router.get("/login")
def login(request: Request, services: ServicesDep, token: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Begin a session with a token and go to the overview, so that the token leaves the address bar."""
    token = token.strip()
    if identify(services, token) is None:
        return _login_page(request, "The service does not know this token.")
    answer = RedirectResponse("/", status_code=303, headers=HEADERS)
    start_session(answer, token)
    return answer


@router.get("/static/{name}", responses=documented(404))
def static(name: str) -> Response:
    """One file of the dashboard; names are looked up among those that exist, so no path can lead elsewhere."""
    path = FILES.get(name)
    if path is None:
        raise problem(404, "the dashboard has no such file")
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers=FILE_HEADERS)


@router.get("/favicon.ico")
def favicon() -> Response:
    """The icon that browsers ask for unasked."""
    return static("icon.svg")


def _page(template: str, request: Request, caller: Identity | None, **values: str) -> HTMLResponse:
    """A page for the caller; the login page for nobody, and for a job's token, which may not look around."""
    if caller is None or caller.scope is Scope.JOB:
        return _login_page(request)
    return _render(template, request, 200, user=caller.user, scope=caller.scope.value, **values)


def _login_page(request: Request, refusal: str = "") -> HTMLResponse:
    return _render("login.html", request, 401, refusal=refusal)


def _render(template: str, request: Request, status: int, **values: str) -> HTMLResponse:
    base = str(request.base_url).rstrip("/")
    text = _templates.get_template(template).render(base=base, **values)
    return HTMLResponse(text, status_code=status, headers=HEADERS)
