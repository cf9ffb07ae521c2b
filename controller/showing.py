"""What people are shown of voluntary disruption, from a pass that is made for them. Pure but for that pass."""

from collections.abc import Iterator
from typing import Final

from controller.caches import Caches
from controller.disrupting import Disrupting
from model.disruption import Command, Decision
from model.facts import PodFact
from model.labels import INSTANCE_TYPE
from model.plans import PlannedClaim
from model.showing import ShowAsked, Shown, ShownCommand

MOST: Final = 100
"""Commands."""
_TYPES: Final = 3


class Showing:
    def __init__(self, caches: Caches, disrupting: Disrupting) -> None:
        self._caches, self._disrupting = caches, disrupting

    async def show(self, asked: ShowAsked) -> Shown:
        """Raises TryLater when there is no planner to be had."""
        seen = await self._disrupting.look()
        if seen.decision is None:
            return Shown(at=seen.at, blocked=seen.blocked)
        found = self._all(seen.decision)
        if asked.name:
            found = self._one(asked.name, seen.decision)
        return found.model_copy(update={"at": seen.at})

    def _all(self, decision: Decision) -> Shown:
        return Shown(
            commands=tuple(_shown(one) for one in decision.commands[:MOST]),
            more=max(0, len(decision.commands) - MOST),
            nodes=len(decision.nodes),
            eligible=sum(bool(one.eligible) for one in decision.nodes),
            kept=dict(decision.causes.most_common()),
        )

    def _one(self, name: str, decision: Decision) -> Shown:
        verdicts = [one for one in decision.nodes if name in (one.claim, one.node)]
        if verdicts:
            node = verdicts[0].node
            going = [_shown(one) for one in decision.commands if node and node in one.nodes]
            return Shown(verdicts=tuple(verdicts), commands=tuple(going))
        pods = [one for one in self._caches.pods.values() if name in (one.name, f"{one.namespace}/{one.name}")]
        if not pods:
            return Shown(said=(f"no NodeClaim, Node or pod of the name {name} is there",))
        return self._pod(pods[0], decision, len(pods) - 1)

    def _pod(self, pod: PodFact, decision: Decision, others: int) -> Shown:
        verdicts = [one for one in decision.nodes if one.node == pod.node_name and pod.node_name]
        said = [f"{others} more pods have this name: write namespace/name"] if others else []
        if not pod.node_name:
            said.append("it has no node yet")
        elif not verdicts:
            said.append(f"it runs on {pod.node_name}, which is no node of a NodePool")
        said += [words for command in decision.commands for words in _move(pod, command)]
        return Shown(pod=f"{pod.namespace}/{pod.name}", said=tuple(said), verdicts=tuple(verdicts))


def _move(pod: PodFact, command: Command) -> Iterator[str]:
    for one in command.moves:
        if one.pod_uid == pod.uid:
            where = one.target or f"a new node of NodePool {command.replacements[one.replacement].pool}"
            yield f"it would move from {one.source} to {where}: {command.why}"


def _shown(command: Command) -> ShownCommand:
    return ShownCommand(
        reason=command.reason,
        nodes=command.nodes,
        replacements=tuple(_bought(one) for one in command.replacements),
        pods=len(command.moves),
        price_before=command.price_before,
        price_after=command.price_after,
        why=command.why,
    )


def _bought(planned: PlannedClaim) -> str:
    types = next((one.values for one in planned.requirements if one.key == INSTANCE_TYPE), ())
    more = f" or {len(types) - _TYPES} more" if len(types) > _TYPES else ""
    return f"{planned.pool}: {', '.join(types[:_TYPES]) or 'any type'}{more}"
