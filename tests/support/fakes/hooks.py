"""Jobs and HTTP services of hooks, in memory."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenure.model.hooks import CallResult, DesiredJob, JobFact
from tests.support.fakes.faulty import FaultInjectable


@dataclass
class FakeJobs(FaultInjectable):
    found: dict[str, JobFact] = field(default_factory=dict)
    """By `namespace/name`."""
    created: list[DesiredJob] = field(default_factory=list)
    next_outcome: JobFact | None = None
    """Outcome of each new Job; with None it runs until `finish_running`."""

    async def get(self, namespace: str, name: str) -> JobFact | None:
        return self.found.get(f"{namespace}/{name}")

    async def create(self, desired: DesiredJob) -> JobFact:
        name = f"{desired.namespace}/{desired.name}"
        if name not in self.found:
            self.created.append(desired)
            outcome = self.next_outcome or JobFact(key="")
            self.found[name] = outcome.model_copy(update={"key": desired.key})
        return self.found[name]

    def finish_running(self, outcome: str = "succeeded", why: str = "") -> None:
        """Finish all running Jobs."""
        for name, one in self.found.items():
            if one.outcome is None:
                self.found[name] = JobFact.model_validate({"key": one.key, "outcome": outcome, "why": why})


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class FakeHookClient(FaultInjectable):
    responses: list[CallResult] = field(default_factory=list)
    """Returned in order; afterwards 200."""
    responding: asyncio.Event = field(default_factory=_set_event)
    """Calls wait until it is set."""
    received: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """URL, idempotency key and body of each call."""

    async def post(self, url: str, *, key: str, body: Mapping[str, Any], seconds: float) -> CallResult:
        self.received.append((url, key, dict(body)))
        await self.responding.wait()
        return self.responses.pop(0) if self.responses else CallResult(status=200)

    @property
    def received_keys(self) -> list[str]:
        return [key for _, key, _ in self.received]
