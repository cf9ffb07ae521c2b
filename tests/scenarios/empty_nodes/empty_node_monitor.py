"""Monitors promise 1 for a month: how long each node is empty, and whether its reported reason is current.

It checks the search attributes of each node about every ten minutes. A reason is current while its cause exists: a
paused NodePool, a zero or used-up budget, a node with do-not-disrupt, or a NotReady node.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest

from tenure.apis.durations import parse_duration
from tenure.model.nodeclaim.state import Phase
from tests.scenarios.empty_nodes.month import Month
from tests.scenarios.empty_nodes.month_watch import NodeSlot

BOUND: Final = timedelta(minutes=5)
"""After consolidateAfter and the end of the last reason: a permit, retries, and the next poll of a budget."""
NEVER: Final = timedelta(0)


@dataclass(frozen=True)
class WorkflowStatus:
    phase: str
    blocked_by: str
    deadline: datetime | None


@dataclass
class EmptyNodeMonitor:
    month: Month
    violations: list[str] = field(default_factory=list)
    """Violations of the promise."""
    checks: int = 0
    longest: timedelta = NEVER
    """Longest time that a node was empty after consolidateAfter, with a current reason."""
    longest_silent: timedelta = NEVER
    """The same without a current reason."""
    _used: datetime | None = None
    """When another node last used the budget."""
    _deleting_since: dict[str, datetime] = field(default_factory=dict)
    _excused: dict[str, datetime] = field(default_factory=dict)
    """By node, when it last had a current reason."""
    _silent: dict[str, datetime] = field(default_factory=dict)
    """By node, the time since which it has had none."""

    async def check(self) -> bool:
        """True if a node has no current reason, so that the next check is due soon."""
        now = await self.month.current_time()
        self.checks += 1
        if any(self.month.watch.budget_state(slot) == "uses" for slot in self.month.slots):
            self._used = now
        for slot in self.month.slots:
            if why := await self._evaluate(slot, now):
                self.violations.append(why)
                print(why, flush=True)
        return bool(self._silent)

    async def _evaluate(self, slot: NodeSlot, now: datetime) -> str:
        silent_before = self._silent.pop(slot.name, None)
        claim, node = self.month.fake.claims.found.get(slot.name), self.month.watch.find_node(slot)
        if claim is None or node is None or slot.handle is None:
            return ""
        if "deletionTimestamp" in claim["metadata"] or node.deleting:
            since = self._deleting_since.setdefault(slot.name, now)
            return f"{slot.name} is being deleted since {since}" if now - since > 4 * BOUND else ""
        if slot.empty_since is None:
            return ""
        due = slot.empty_since + (parse_duration(self.month.after) or timedelta(0))
        if now <= due:
            return ""
        status = await self._describe(slot.handle.id)
        if self._is_current_reason(status, slot, now):
            self._excused[slot.name] = now
            self.longest = max(self.longest, now - due)
            return ""
        if silent_before is not None:
            self._silent[slot.name] = silent_before
        silent = now - max(self._silent_since(slot, due, now), due, *self._reason_ends(slot, now))
        self.longest_silent = max(self.longest_silent, silent)
        if silent <= BOUND:
            return ""
        return f"{now}: {slot.name}, empty for {now - slot.empty_since}: {status}, {self}"

    async def _describe(self, workflow_id: str) -> WorkflowStatus:
        """`describe` of the SDK cannot parse the timestamps of this server."""
        client = self.month.fake.client
        execution = WorkflowExecution(workflow_id=workflow_id)
        request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
        response = await client.workflow_service.describe_workflow_execution(request)
        fields = response.workflow_execution_info.search_attributes.indexed_fields
        values = {name: json.loads(field.data) if field.data else "" for name, field in fields.items()}
        until = values.get("TenureDeadline")
        return WorkflowStatus(
            phase=values["TenurePhase"],
            blocked_by=values.get("TenureBlockedBy", ""),
            deadline=datetime.fromisoformat(until) if until else None,
        )

    def _silent_since(self, slot: NodeSlot, due: datetime, now: datetime) -> datetime:
        """A reason may have ended at any time since the last check: then the time counts from this check."""
        last, known = self._excused.get(slot.name), max(due, *self._reason_ends(slot, now))
        return self._silent.setdefault(slot.name, known if last is None or known > last else now)

    def _reason_ends(self, slot: NodeSlot, now: datetime) -> list[datetime]:
        """Known ends of reasons: an event, or a time."""
        pauses = [one for one in (self.month.paused, slot.paused) if one and one <= now]
        changed = [self.month.changed] if self.month.changed else []
        used = [self._used] if self._used and self.month.budget != "100%" else []
        return [*pauses, *changed, *used]

    def _is_current_reason(self, status: WorkflowStatus, slot: NodeSlot, now: datetime) -> bool:
        blocked_by, month, node = status.blocked_by, self.month, self.month.watch.find_node(slot)
        if status.phase != Phase.READY:
            unready = "NodeNotReady" in blocked_by and node is not None and not node.ready
            return unready or (status.deadline is not None and now < status.deadline)
        is_paused = bool(month.paused and month.paused > now) or bool(slot.paused and slot.paused > now)
        causes = {
            "Paused": is_paused,
            "PermitDenied": is_paused or month.budget == "0" or (month.budget in ("1", "10%") and self._used == now),
            "NodeDoNotDisrupt": slot.do_not_disrupt,
            "LiveStateDiffers": slot.do_not_disrupt or bool(node and month.fake.pods.by_node.get(node.name)),
            "Never": month.after == "Never",
        }
        return causes.get(blocked_by, False)

    def __str__(self) -> str:
        month = self.month
        return (
            f"budget {month.budget}, after {month.after}, paused {month.paused}, {month.fault_count} "
            f"faults of {month.due}"
        )

    def report(self) -> str:
        nodeclaim_count = sum(slot.nodeclaim_count for slot in self.month.slots)
        kinds = ", ".join(f"{name.strip('_')} {count}" for name, count in self.month.kinds.most_common())
        ends = ", ".join(f"{name} {count}" for name, count in self.month.ends.most_common())
        return (
            f"{nodeclaim_count} nodes ({ends}), {self.month.fault_count} faults ({kinds}); {self.checks} checks; "
            f"longest time empty after consolidateAfter: {self.longest} with a current reason, "
            f"{self.longest_silent} without"
        )
