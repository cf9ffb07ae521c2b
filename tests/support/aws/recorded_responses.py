"""Records AWS responses from the stand-in and replays them, optionally transformed.

It uses botocore's event hooks, so that the adapters run completely, including their parsing of responses.
"""

import copy
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from tenure.aws.client.client import AwsClients

Response = dict[str, Any]
_VOLATILE_FIELDS = ("StartTime", "ClientToken")
_SERVICES = ("ec2", "ec2_without_retries", "iam", "ssm", "eks", "pricing")


@dataclass(frozen=True)
class _Http:
    status_code: int


@dataclass
class ResponseRecorder:
    """Responses by request. An unknown request is an error, since the code then made another call than before."""

    truncate: Callable[[str, Response], None] = lambda operation, response: None
    """Removes parts of a response before it is recorded."""
    recording: bool = True
    transform: Callable[[Response], Response] = lambda response: response
    """Changes EC2's responses during replay."""
    _responses: dict[str, list[tuple[int, Response]]] = field(default_factory=lambda: defaultdict(list))
    _replayed_counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _lock: Lock = field(default_factory=Lock)

    def attach(self, clients: AwsClients) -> None:
        for name in _SERVICES:
            events = getattr(clients, name).meta.events
            events.register("before-call", self._before_call)
            events.register("after-call", self._after_call)

    def replay(self, transform: Callable[[Response], Response]) -> None:
        """Replay from the beginning, with EC2's responses transformed."""
        self.recording, self.transform = False, transform
        self._replayed_counts.clear()

    def _before_call(self, model: Any, params: Response, context: Response, **_: Any) -> tuple[_Http, Response] | None:
        request_key = f"{model.service_model.service_name} {model.name} {_stable_body(params)}"
        context["question"] = request_key
        if self.recording:
            return None
        with self._lock:
            responses = self._responses.get(request_key)
            assert responses, f"request was not recorded: {request_key}"
            index = min(self._replayed_counts[request_key], len(responses) - 1)
            self._replayed_counts[request_key] += 1
        status, response = copy.deepcopy(responses[index])
        return _Http(status), self.transform(response) if request_key.startswith("ec2 ") else response

    def _after_call(self, http_response: Any, parsed: Response, model: Any, context: Response, **_: Any) -> None:
        if self.recording:
            self.truncate(model.name, parsed)
            with self._lock:
                self._responses[context["question"]].append((http_response.status_code, copy.deepcopy(parsed)))


def _stable_body(params: Response) -> str:
    """The body without fields that change with each call: times, and tokens that botocore generates."""
    body = params.get("body")
    if not isinstance(body, dict):
        return repr(body)
    return json.dumps(
        {key: one for key, one in body.items() if key not in _VOLATILE_FIELDS}, sort_keys=True, default=str
    )
