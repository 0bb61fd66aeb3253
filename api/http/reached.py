"""How a browser reaches the service: whether the settings name the address and the proxies that it comes by."""

from urllib.parse import urlsplit

from fastapi import Request

from gavel.config import Settings
from gavel.types.findings import Finding


def as_reached(request: Request, settings: Settings) -> Finding:
    """Return whether the address of the page that sent the request, and a proxy in front, are those of the settings."""
    page = urlsplit(request.headers.get("referer", ""))
    origin = f"{page.scheme}://{page.netloc}" if page.netloc else ""
    public_url = "/".join(settings.public_url.split("/")[:3])
    client = request.client.host if request.client else ""
    named = [each.strip() for each in request.headers.get("x-forwarded-for", "").split(",") if each.strip()]
    if named and client not in named:
        text = f"a proxy at {client} says for whom it asks, and is not believed: add it to trusted_proxies"
        return Finding(about="proxy", verdict="problem", text=text)
    if public_url and origin and origin != public_url:
        text = f"you came by {origin}, but public_url is {public_url}: links and logins lead to the latter"
        return Finding(about="proxy", verdict="note", text=text)
    if page.scheme == "https" and request.url.scheme != "https" and not public_url:
        text = f'a proxy ends TLS: set public_url = "{origin}", so that changes and cookies are right'
        return Finding(about="proxy", verdict="problem", text=text)
    return Finding(about="proxy", verdict="ok", text="a proxy in front is known" if named else "nothing is in front")
