"""Jobs and services in memory, as hooks see them: a Job ends when a test says so, a service answers as it is told."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenure.model.hooks import CallAnswer, JobFact, JobWanted
from tests.support.fakes.faulty import Faulty


@dataclass
class FakeJobs(Faulty):
    found: dict[str, JobFact] = field(default_factory=dict)
    """By namespace/name."""
    made: list[JobWanted] = field(default_factory=list)
    ends: JobFact | None = None
    """How those end at once that are made from now on; None: they run."""

    async def get(self, namespace: str, name: str) -> JobFact | None:
        return self.found.get(f"{namespace}/{name}")

    async def create(self, wanted: JobWanted) -> JobFact:
        name = f"{wanted.namespace}/{wanted.name}"
        if name not in self.found:
            self.made.append(wanted)
            ends = self.ends or JobFact(key="")
            self.found[name] = ends.model_copy(update={"key": wanted.key})
        return self.found[name]

    def end(self, outcome: str = "succeeded", why: str = "") -> None:
        """All that run."""
        for name, one in self.found.items():
            if one.outcome is None:
                self.found[name] = JobFact.model_validate({"key": one.key, "outcome": outcome, "why": why})


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class FakeCalls(Faulty):
    answers: list[CallAnswer] = field(default_factory=list)
    """In order; then 200."""
    answering: asyncio.Event = field(default_factory=_set)
    """Nobody answers while it is not set."""
    came: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """URL, key and body of each call."""

    async def post(self, url: str, *, key: str, body: Mapping[str, Any], seconds: float) -> CallAnswer:
        self.came.append((url, key, dict(body)))
        await self.answering.wait()
        return self.answers.pop(0) if self.answers else CallAnswer(status=200)

    @property
    def keys(self) -> list[str]:
        return [key for _, key, _ in self.came]
