"""Who watches over promise 1 while a month goes by: how long each node is empty, and whether what it says holds.

Looked at every ten minutes or so, by what everybody is shown of a node: its search attributes. A reason is current
while what it names is so: a pool that is paused, a budget of nothing or one that others use up, a node that somebody
holds or that is NotReady.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest

from tenure.apis.durations import parse_duration
from tenure.model.nodeclaim_state import Phase
from tests.scenarios.month import Month
from tests.scenarios.month_watch import Place

BOUND: Final = timedelta(minutes=5)
"""Beyond consolidateAfter and the end of the last reason: a permit, retries, and the next look at a budget."""
NEVER: Final = timedelta(0)


@dataclass(frozen=True)
class Shown:
    phase: str
    blocked_by: str
    deadline: datetime | None


@dataclass
class Vigil:
    month: Month
    broken: list[str] = field(default_factory=list)
    """What broke the promise."""
    looks: int = 0
    longest: timedelta = NEVER
    """That a node was empty beyond consolidateAfter, for a reason that held, ..."""
    longest_silent: timedelta = NEVER
    """... and without one."""
    _used: datetime | None = None
    """When others were last seen to use the budget up."""
    _going: dict[str, datetime] = field(default_factory=dict)
    _excused: dict[str, datetime] = field(default_factory=dict)
    """By node: when it last had a reason, ..."""
    _silent: dict[str, datetime] = field(default_factory=dict)
    """... and since when it has none."""

    async def look(self) -> bool:
        """Whether some node has no reason now, so that the next look is due soon."""
        now = await self.month.now()
        self.looks += 1
        if any(self.month.watch.standing(place) == "uses" for place in self.month.places):
            self._used = now
        for place in self.month.places:
            if why := await self._judge(place, now):
                self.broken.append(why)
                print(why, flush=True)
        return bool(self._silent)

    async def _judge(self, place: Place, now: datetime) -> str:
        silent_before = self._silent.pop(place.name, None)
        claim, node = self.month.fake.claims.found.get(place.name), self.month.watch.node(place)
        if claim is None or node is None or place.handle is None:
            return ""
        if "deletionTimestamp" in claim["metadata"] or node.deleting:
            since = self._going.setdefault(place.name, now)
            return f"{place.name} is going since {since}" if now - since > 4 * BOUND else ""
        if place.empty_since is None:
            return ""
        due = place.empty_since + (parse_duration(self.month.after) or timedelta(0))
        if now <= due:
            return ""
        shown = await self._shown(place.handle.id)
        if self._is_current(shown, place, now):
            self._excused[place.name] = now
            self.longest = max(self.longest, now - due)
            return ""
        if silent_before is not None:
            self._silent[place.name] = silent_before
        silent = now - max(self._since(place, due, now), due, *self._ends(place, now))
        self.longest_silent = max(self.longest_silent, silent)
        if silent <= BOUND:
            return ""
        return f"{now}: {place.name}, empty for {now - place.empty_since}: {shown}, {self}"

    async def _shown(self, workflow_id: str) -> Shown:
        """The SDK's own `describe` does not read the moments that this server writes."""
        client = self.month.skipping.client
        execution = WorkflowExecution(workflow_id=workflow_id)
        asked = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
        answer = await client.workflow_service.describe_workflow_execution(asked)
        fields = answer.workflow_execution_info.search_attributes.indexed_fields
        values = {name: json.loads(field.data) if field.data else "" for name, field in fields.items()}
        until = values.get("TenureDeadline")
        return Shown(
            phase=values["TenurePhase"],
            blocked_by=values.get("TenureBlockedBy", ""),
            deadline=datetime.fromisoformat(until) if until else None,
        )

    def _since(self, place: Place, due: datetime, now: datetime) -> datetime:
        """A reason may have ended at any time since the last look: then this one counts, and the next comes soon."""
        last, known = self._excused.get(place.name), max(due, *self._ends(place, now))
        return self._silent.setdefault(place.name, known if last is None or known > last else now)

    def _ends(self, place: Place, now: datetime) -> list[datetime]:
        """When reasons ended, as far as it is known: by an event, or by time."""
        pauses = [one for one in (self.month.paused, place.paused) if one and one <= now]
        changed = [self.month.changed] if self.month.changed else []
        used = [self._used] if self._used and self.month.budget != "100%" else []
        return [*pauses, *changed, *used]

    def _is_current(self, shown: Shown, place: Place, now: datetime) -> bool:
        said, month, node = shown.blocked_by, self.month, self.month.watch.node(place)
        if shown.phase != Phase.READY:
            unready = "NodeNotReady" in said and node is not None and not node.ready
            return unready or (shown.deadline is not None and now < shown.deadline)
        causes = {
            "paused": bool(month.paused and month.paused > now) or bool(place.paused and place.paused > now),
            "budget 0": month.budget == "0",
            "budget 1": month.budget in ("1", "10%") and self._used == now,
            "do-not-disrupt": place.held,
            "not empty": bool(node and month.fake.pods.by_node.get(node.name)),
            "consolidateAfter": month.after == "Never",
        }
        return any(word in said and holds for word, holds in causes.items())

    def __str__(self) -> str:
        month = self.month
        return (
            f"budget {month.budget}, after {month.after}, paused {month.paused}, {month.faults} faults of {month.due}"
        )

    def report(self) -> str:
        lives = sum(place.lives for place in self.month.places)
        kinds = ", ".join(f"{name.strip('_')} {count}" for name, count in self.month.kinds.most_common())
        ends = ", ".join(f"{name} {count}" for name, count in self.month.ends.most_common())
        return (
            f"{lives} nodes ({ends}), {self.month.faults} faults ({kinds}); {self.looks} looks; "
            f"beyond consolidateAfter the longest empty was {self.longest} with a reason that held, "
            f"{self.longest_silent} without"
        )
