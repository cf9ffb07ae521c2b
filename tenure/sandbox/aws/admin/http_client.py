"""The transport of the control client: JSON requests and responses."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


class ControlError(RuntimeError):
    """The stand-in rejected a control request, for the reason in the text."""


class ControlClient:
    def __init__(self, endpoint: str) -> None:
        self._base = f"{endpoint.rstrip('/')}/_sim"

    def _call(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] | None = None, timeout: float = 30
    ) -> Json:
        url = f"{self._base}/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                found: Json = json.load(response)
                return found
        except urllib.error.HTTPError as error:
            raise ControlError(json.load(error).get("error", str(error))) from None
