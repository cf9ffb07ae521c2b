"""A word to a NodeClaim's workflow: signal-with-start, so that it arrives even before the watch has seen the claim.

Launch groups that still hand out what they bought, as the workflows that launch them say.

Satisfies `upkeep_ports.LaunchGroups`. A group of many is in the Provisioning workflow's state; a NodeClaim that
launches alone is a group of its own name, in its own workflow.

What nodes have shown of their machines, as the Provisioning workflow keeps it: for launches, without the watch.
"""

import asyncio
import re
import time
from collections.abc import Callable, Set
from datetime import timedelta
from typing import Final, Protocol

import structlog
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from tenure.apis.labels import LAUNCH_GROUP, NODECLASS, NODEPOOL, REPLACES, WHY
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.discovered_capacity import Learnt
from tenure.model.errors import TryLater
from tenure.model.launch import Member
from tenure.model.nodeclaim_state import ClaimIdentity, ClaimState, Deadlines
from tenure.model.signals import GroupAnswered
from tenure.model.workflow_states import ProvisioningState


class Names(Protocol):
    """Ids, queues and attributes of workflows, which belong to `workflows/` and are handed in."""

    def life_of(self, claim_name: str, uid: str) -> str: ...

    def task_queue(self) -> str: ...

    def attributes(self, identity: ClaimIdentity) -> TypedSearchAttributes: ...


class Lives:
    """Signals NodeClaim workflows, starting them where they are not yet."""

    def __init__(self, client: Client, cluster: str, names: Names, deadlines: Deadlines) -> None:
        self._client, self._cluster, self._names, self._deadlines = client, cluster, names, deadlines

    def identity(self, claim: NodeClaim) -> ClaimIdentity:
        meta = claim.metadata
        if meta.creation_timestamp is None:
            raise ValueError(
                f"NodeClaim {meta.name}: metadata.creationTimestamp is missing; it was not read from a server"
            )
        return ClaimIdentity(
            cluster=self._cluster,
            name=meta.name,
            uid=meta.uid,
            pool=meta.labels.get(NODEPOOL, ""),
            node_class=meta.labels.get(NODECLASS, claim.spec.node_class_ref.name),
            group_id=meta.annotations.get(LAUNCH_GROUP, ""),
            created=meta.creation_timestamp,
            why=meta.annotations.get(WHY, ""),
            replaces=meta.annotations.get(REPLACES, ""),
        )

    async def answered(self, claim: NodeClaim, answer: GroupAnswered) -> None:
        identity = self.identity(claim)
        await self._client.start_workflow(
            "NodeClaimWorkflow",
            ClaimState(identity=identity, deadlines=self._deadlines, keeps_records=True),
            id=self._names.life_of(identity.name, identity.uid),
            task_queue=self._names.task_queue(),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            search_attributes=self._names.attributes(identity),
            start_signal="answered",
            start_signal_args=[answer],
        )

    async def bereft(self, member: Member, answer: GroupAnswered) -> None:
        """To one whose NodeClaim is gone: where no workflow is open nobody waits."""
        life = self._client.get_workflow_handle(self._names.life_of(member.name, member.uid))
        try:
            await life.signal("answered", answer)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise


_PATIENCE: Final = timedelta(seconds=10)
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
"""A tag is anybody's text; only what can be a name is looked up."""


class WorkflowIds(Protocol):
    """Ids of workflows, which belong to `workflows/` and are handed in."""

    def provisioning_id(self) -> str: ...

    def lives_of(self, claim_name: str) -> str:
        """What the ids of all lives of this name begin with."""
        ...


class OpenGroups:
    """Raises TryLater."""

    def __init__(self, client: Client, names: WorkflowIds) -> None:
        self._client, self._names = client, names

    async def open(self, group_ids: Set[str]) -> Set[str]:
        try:
            found = set(group_ids) & await self._of_provisioning()
            return found | {one for one in set(group_ids) - found if await self._launches_alone(one)}
        except (RPCError, WorkflowQueryFailedError) as error:
            raise TryLater(f"launch groups cannot be asked for: {error}") from error

    async def _of_provisioning(self) -> set[str]:
        handle = self._client.get_workflow_handle(self._names.provisioning_id())
        try:
            state = await handle.query("state", result_type=ProvisioningState, rpc_timeout=_PATIENCE)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return set()
            raise
        return {group.group_id for group in state.groups}

    async def _launches_alone(self, name: str) -> bool:
        if not _PLAIN.fullmatch(name):
            return False
        query = f"WorkflowId STARTS_WITH '{self._names.lives_of(name)}' AND ExecutionStatus = 'Running'"
        for life in [one.id async for one in self._client.list_workflows(query, rpc_timeout=_PATIENCE)]:
            handle = self._client.get_workflow_handle(life)
            state = await handle.query("state", result_type=ClaimState, rpc_timeout=_PATIENCE)
            if state.group is not None and state.launched is None:
                return True
        return False


log = structlog.get_logger(__name__)

_ANSWER_IN: Final = timedelta(seconds=2)
_FRESH_SECONDS: Final = 2.0
"""Launches that come together ask once."""


class KeptMachines:
    """Satisfies `activities.ports.Machines`."""

    def __init__(self, client: Client, workflow_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._workflow_id, self._clock = client, workflow_id, clock
        self._asking = asyncio.Lock()
        self._known, self._asked_at = Learnt(), -_FRESH_SECONDS

    async def learnt(self) -> Learnt:
        """The last known when there is no answer at once: a node that is too small is worse than none, but not much."""
        async with self._asking:
            if self._clock() - self._asked_at >= _FRESH_SECONDS:
                self._known, self._asked_at = await self._ask(), self._clock()
            return self._known

    async def _ask(self) -> Learnt:
        handle = self._client.get_workflow_handle(self._workflow_id)
        try:
            asking = handle.query("machines", result_type=Learnt, rpc_timeout=_ANSWER_IN)
            # The client repeats calls that time out, so that the time-out of a call is not the end of it.
            known: Learnt = await asyncio.wait_for(asking, _ANSWER_IN.total_seconds())
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                log.warning("what nodes have shown is not told", error=str(error))
        except (TimeoutError, WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            log.warning("what nodes have shown is not told", error=str(error) or "no answer")
        else:
            return known
        return self._known
