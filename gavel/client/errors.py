"""What the client raises."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx


class GavelApiError(Exception):
    """The service refused. `status`: the HTTP status. `field`: the part of the input that was wrong, if any."""

    def __init__(self, status: int, title: str, detail: str = "", field: str | None = None) -> None:
        where = f"{field}: " if field and not detail.startswith(field) else ""
        super().__init__(f"{title} ({status}): {where}{detail}" if detail else f"{title} ({status})")
        self.status = status
        self.title = title
        self.detail = detail
        self.field = field


class ServiceUnreachable(Exception):
    """No answer: nothing listens at the address, or the connection broke or was too slow."""


def refusal(answer: "httpx.Response") -> GavelApiError:
    """Return the problem document (RFC 9457) as an exception; any other body as its text."""
    match parsed(answer):
        case {"title": str(title), "detail": str(detail), "errors": [{"field": str(field)}, *_]}:
            return GavelApiError(answer.status_code, title, detail, field)
        case {"title": str(title), "detail": str(detail)}:
            return GavelApiError(answer.status_code, title, detail)
    return GavelApiError(answer.status_code, answer.reason_phrase or "refused", answer.text[:500])


def parsed(answer: "httpx.Response") -> Any:
    """Return the body as JSON; None if it is not JSON."""
    try:
        return answer.json()
    except ValueError:
        return None
