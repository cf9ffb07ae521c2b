"""An HTTP request and its AWS call: service and region from the signature's scope, action from target, form or path."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote

CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/([^/]*)/([^/]+)/aws4_request")
REST = {
    ("eks", "GET", re.compile(r"^/clusters/([^/]+)$")): "DescribeCluster",
    ("eks", "DELETE", re.compile(r"^/clusters/([^/]+)$")): "DeleteCluster",
    ("eks", "GET", re.compile(r"^/clusters$")): "ListClusters",
    ("eks", "POST", re.compile(r"^/clusters$")): "CreateCluster",
    ("eks", "POST", re.compile(r"^/clusters/([^/]+)/access-entries$")): "CreateAccessEntry",
    ("eks", "GET", re.compile(r"^/clusters/([^/]+)/access-entries$")): "ListAccessEntries",
    ("eks", "GET", re.compile(r"^/clusters/([^/]+)/access-entries/[^/]+$")): "DescribeAccessEntry",
    ("eks", "DELETE", re.compile(r"^/clusters/([^/]+)/access-entries/[^/]+$")): "DeleteAccessEntry",
    ("arc-zonal-shift", "GET", re.compile(r"^/managedresources/(.+)$")): "GetManagedResource",
    ("arc-zonal-shift", "GET", re.compile(r"^/managedresources$")): "ListManagedResources",
}


@dataclass(frozen=True)
class HttpRequest:
    """Header names are in lower case. `path` is still percent-encoded."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON; an empty one is an empty object. Raises ValueError."""
        return json.loads(self.body) if self.body else {}


@dataclass(frozen=True)
class AwsCall:
    """One AWS call before its parameters are parsed. Empty service: the request was not signed."""

    http: HttpRequest
    access_key: str
    service: str
    region: str

    @cached_property
    def form(self) -> dict[str, str]:
        text = self.http.body.decode("utf-8", "replace") if self.http.method == "POST" else ""
        return dict(parse_qsl(self.http.query, keep_blank_values=True) + parse_qsl(text, keep_blank_values=True))

    @cached_property
    def is_json(self) -> bool:
        return "x-amz-target" in self.http.headers

    @cached_property
    def action(self) -> str:
        target = self.http.headers.get("x-amz-target")
        if target:
            return target.rpartition(".")[2]
        if self.service in ("eks", "arc-zonal-shift"):
            return self._rest_action()[0]
        return self.form.get("Action", f"{self.http.method} {self.http.path}")

    @cached_property
    def path_argument(self) -> str:
        return self._rest_action()[1]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON body or the form, for fault rules and for services other than EC2."""
        if self.is_json:
            try:
                return dict(self.http.json())
            except ValueError:
                return {}
        return dict(self.form)

    def _rest_action(self) -> tuple[str, str]:
        for (service, method, pattern), action in REST.items():
            match = pattern.match(self.http.path)
            if match and (service, method) == (self.service, self.http.method):
                return action, unquote(match[1]) if match.groups() else ""
        return f"{self.http.method} {self.http.path}", ""


def identify_call(http: HttpRequest) -> AwsCall:
    match = CREDENTIAL.search(http.headers.get("authorization", ""))
    if match is None:
        return AwsCall(http, "", "", "")
    return AwsCall(http, match[1], match[3].lower(), match[2])
