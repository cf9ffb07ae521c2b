"""AWS's answers on tape: recorded once from the stand-in, then played again, with or without something added to them.

It hooks into botocore's own events, so that all of the adapters is at work, their parsing of answers too.
"""

import copy
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from tenure.aws.client.client import AwsClients

Answer = dict[str, Any]
_FLEETING = ("StartTime", "ClientToken")
_SERVICES = ("ec2", "launching", "iam", "ssm", "eks", "pricing")


@dataclass(frozen=True)
class _Http:
    status_code: int


@dataclass
class Tape:
    """Answers by question. A question that was not recorded is an error, since then something else was asked."""

    shorten: Callable[[str, Answer], None] = lambda operation, answer: None
    """What is left out of an answer when it is recorded."""
    recording: bool = True
    change: Callable[[Answer], Answer] = lambda answer: answer
    """What becomes of EC2's answers when they are played."""
    _held: dict[str, list[tuple[int, Answer]]] = field(default_factory=lambda: defaultdict(list))
    _played: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _lock: Lock = field(default_factory=Lock)

    def listen(self, clients: AwsClients) -> None:
        for name in _SERVICES:
            events = getattr(clients, name).meta.events
            events.register("before-call", self._before)
            events.register("after-call", self._after)

    def rewind(self, change: Callable[[Answer], Answer]) -> None:
        """From the beginning, with EC2's answers changed so."""
        self.recording, self.change = False, change
        self._played.clear()

    def _before(self, model: Any, params: Answer, context: Answer, **_: Any) -> tuple[_Http, Answer] | None:
        question = f"{model.service_model.service_name} {model.name} {_body(params)}"
        context["question"] = question
        if self.recording:
            return None
        with self._lock:
            answers = self._held.get(question)
            assert answers, f"this was not asked before: {question}"
            place = min(self._played[question], len(answers) - 1)
            self._played[question] += 1
        status, answer = copy.deepcopy(answers[place])
        return _Http(status), self.change(answer) if question.startswith("ec2 ") else answer

    def _after(self, http_response: Any, parsed: Answer, model: Any, context: Answer, **_: Any) -> None:
        if self.recording:
            self.shorten(model.name, parsed)
            with self._lock:
                self._held[context["question"]].append((http_response.status_code, copy.deepcopy(parsed)))


def _body(params: Answer) -> str:
    """Without what is another at each call: the moment, and tokens that botocore makes up."""
    body = params.get("body")
    if not isinstance(body, dict):
        return repr(body)
    return json.dumps({key: one for key, one in body.items() if key not in _FLEETING}, sort_keys=True, default=str)
