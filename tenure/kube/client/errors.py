"""Maps error responses of the API server and connection errors to faults of the model."""

from typing import Any

import aiohttp

from tenure.kube.client.json_reader import parse_json
from tenure.model.errors import BadInput, Conflict, Fault, Forbidden, NotFound, Throttled, TryLater

Json = dict[str, Any]

_BY_STATUS: dict[int, type[Fault]] = {
    400: BadInput,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    405: BadInput,
    409: Conflict,
    410: TryLater,
    413: BadInput,
    415: BadInput,
    422: BadInput,
    429: Throttled,
}


def status_of(body: bytes) -> Json:
    """The Status object of an error response; empty for other bodies, for example from a proxy."""
    try:
        parsed = parse_json(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) and parsed.get("kind") == "Status" else {}


def read_json(body: bytes, *, what: str) -> Json:
    """The JSON of a successful response. Raises TryLater for other bodies, for example the page of a proxy."""
    try:
        parsed: Json = parse_json(body)
    except ValueError as error:
        raise TryLater(f"{what}: expected JSON, got {body[:100]!r}") from error
    return parsed


def fault_of(code: int, body: bytes, *, what: str, retry_after: str | None) -> Fault:
    """The fault of a response other than 2xx. `what`: the request, for the message."""
    status = status_of(body)
    message = status.get("message") or body[:200].decode(errors="replace") or "no message"
    kind = _BY_STATUS.get(code, TryLater)
    return kind(
        f"{what}: {message}",
        code=status.get("reason") or str(code),
        retry_after=_parse_retry_after(retry_after),
        status=code,
    )


def fault_of_connection(error: Exception, *, what: str) -> TryLater:
    """The fault of a failed name resolution, a timeout, or a refused or broken connection."""
    reason = "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return TryLater(f"{what}: {reason}", code=type(error).__name__, is_unreachable=True)


CONNECTION_ERRORS = (aiohttp.ClientError, OSError)
"""OSError is the base of TimeoutError, ConnectionError and `socket.gaierror`."""


def _parse_retry_after(header: str | None) -> float | None:
    try:
        return float(header) if header else None
    except ValueError:
        return None
