"""The dashboard: server-rendered pages that plain JavaScript keeps current over the REST API and its events.

Everything a page needs is served from here; scripts and styles come from files, never from the page itself, which the
Content-Security-Policy enforces.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.access.auth import PUBLIC, CookieDep, may_see
from api.access.sessions import FROM_OWN_PAGE, FormToken, end_session, logged_in, may_log_in, start_session
from api.http.errors import documented, problem
from api.services import Services, ServicesDep
from api.submission.specs import tiers_for
from gavel.errors import NotFound
from gavel.types import Identity, Scope

HERE = Path(__file__).parent
MEDIA_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}
FILES: Final[Mapping[str, Path]] = {
    path.name: path for path in sorted((HERE / "static").rglob("*")) if path.suffix in MEDIA_TYPES
}
PAGES: Final[Mapping[str, str]] = {
    "/": "Overview",
    "/submit": "Submit",
    "/allocation": "Allocation",
    "/placements": "Placements",
    "/queue": "Queue",
    "/tiers": "Tiers",
    "/estimator": "Estimator",
    "/nodes": "Nodes",
    "/policy": "Policy",
    "/autopilot": "Autopilot",
}
OPERATORS_PAGES: Final[Mapping[str, str]] = {"/setup": "Setup"}
IMPORT: Final = re.compile(r'from "\./([a-z]+\.js)"')
PLOTTED: Final = frozenset({"tiers", "job", "compare", "autopilot"})  # pages that load the plotting library
FEATURES: Final[Mapping[str, str]] = {  # files that pages use only if this service has them
    "explain": "/v1/jobs/{job_id}/explanation",
    "calibration": "/v1/calibration",
    "preview": "/v1/tiers/{name}/preview",
    "what-if": "/v1/what-if",
}


def _imported(name: str) -> frozenset[str]:
    """Return the scripts that a script imports, directly or through others."""
    imported: set[str] = set()
    new = {name}
    while new:
        imported |= new
        new = {each for path in new for each in IMPORT.findall(FILES[path].read_text())} - imported
    return frozenset(imported - {name})


PRELOADED: Final[Mapping[str, tuple[str, ...]]] = {  # requested at once, not one after the other
    f"{name}.js": tuple(sorted(_imported(f"{name}.js")))
    for name in (*(path.strip("/") or "overview" for path in PAGES), "job", "compare", "setup")
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
    "Referrer-Policy": "same-origin",  # with no-referrer a browser names no origin for a form
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
FILE_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}

router = APIRouter(include_in_schema=False, dependencies=[PUBLIC])
_templates = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def page(request: Request, services: ServicesDep, session: CookieDep) -> Response:
    """Return a page of `PAGES` or `OPERATORS_PAGES`; without a session a 401 page that says how to log in."""
    path = request.url.path
    return _page(path.strip("/") or "overview", path, request, services, session)


for each in (*PAGES, *OPERATORS_PAGES):
    router.get(each, response_class=HTMLResponse)(page)


@router.get("/jobs/{job_id}", response_class=HTMLResponse)
def job(job_id: str, request: Request, services: ServicesDep, session: CookieDep) -> Response:
    """Return the page of one job; a 404 page if there is no such job, or the caller may not see it."""
    caller = logged_in(services, session)
    if caller is not None and not _sees(services, caller, job_id):
        return render("missing.html", request, 404, job_id=job_id)
    return _page("job", f"Job {job_id}", request, services, session, job_id=job_id)


@router.get("/curves", response_class=HTMLResponse)
def curves(request: Request, services: ServicesDep, session: CookieDep) -> Response:
    """Return the page that overlays the metrics of several jobs: `?jobs=ID,ID`, or those of a sweep, `?array=ID`."""
    return _page("compare", "Metrics of several jobs", request, services, session)


def _sees(services: Services, caller: Identity, job_id: str) -> bool:
    try:
        return may_see(caller, services.store.job(job_id))
    except NotFound:
        return False


@router.get("/login")
def ask_for_login(request: Request) -> Response:
    """Return the page to log in on. Its script takes a token from the address, behind #, which no server is sent."""
    return login_page(request, status=200)


@router.post("/login", responses=documented(400, 403))
def login(request: Request, services: ServicesDep, token: FormToken) -> Response:
    """Begin a session with a token and redirect to the overview."""
    if not may_log_in(services, token):
        return login_page(request, "The service does not know this token, or it is that of a job.")
    answer = RedirectResponse("/", status_code=303, headers=HEADERS)
    start_session(services, request, answer, token)
    return answer


@router.post("/logout", responses=documented(403), dependencies=[FROM_OWN_PAGE])
def logout(services: ServicesDep, session: CookieDep) -> Response:
    """End the session and redirect to the login page."""
    answer = RedirectResponse("/login", status_code=303, headers=HEADERS)
    end_session(services, answer, session)
    return answer


@router.get("/static/{name}", responses=documented(404))
def static(name: str) -> Response:
    """Return one file of the dashboard. Names are looked up among existing files, so no path can lead elsewhere."""
    path = FILES.get(name)
    if path is None:
        raise problem(404, "the dashboard has no such file")
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers=FILE_HEADERS)


@router.get("/favicon.ico")
def favicon() -> Response:
    """Return the icon, which browsers request by themselves."""
    return static("icon.svg")


def _page(
    name: str, here: str, request: Request, services: Services, session: str | None, job_id: str = ""
) -> HTMLResponse:
    """Return a page for the caller; the login page without a session."""
    caller = logged_in(services, session)
    if caller is None:
        return login_page(request)
    pages = {**PAGES, **OPERATORS_PAGES} if caller.scope is Scope.OPERATOR else PAGES
    offered = request.app.state.paths
    return render(
        f"{name}.html",
        request,
        200,
        title={**PAGES, **OPERATORS_PAGES}.get(here, here),
        here=here,
        pages=tuple(pages.items()),
        script=f"{name}.js",
        preloaded=PRELOADED[f"{name}.js"],
        plots=name in PLOTTED,
        user=caller.user,
        scope=caller.scope.value,
        kind=next(iter(services.catalogue), ""),
        kinds=tuple(services.catalogue.values()),
        tiers=tiers_for(caller, [tier.name for tier in services.store.tiers()]),
        features=" ".join(feature for feature, path in FEATURES.items() if path in offered),
        job_id=job_id,
    )


def login_page(request: Request, refusal: str = "", status: int = 401) -> HTMLResponse:
    """Return the page to log in on, with the ways that this service has, and with why nobody is logged in."""
    oidc = request.app.state.services.settings.oidc
    return render("login.html", request, status, refusal=refusal, provider=oidc.provider_name if oidc else "")


def render(template: str, request: Request, status: int, **values: object) -> HTMLResponse:
    """Return a page with the headers that every page has."""
    text = _templates.get_template(template).render(**values)
    return HTMLResponse(text, status_code=status, headers=HEADERS)
