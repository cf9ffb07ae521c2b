"""What the activities of voluntary disruption need of the planner's host."""

from typing import Protocol

from model.disrupting import DecideAsked, Decided, ReplaceAsked, Replaced


class DisruptionHost(Protocol):
    async def decide(self, asked: DecideAsked) -> Decided: ...

    async def replace(self, asked: ReplaceAsked) -> Replaced: ...
