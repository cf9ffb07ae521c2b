"""Calls of activities to workflows: launch results and open launch groups."""

import re
from collections.abc import Set
from datetime import timedelta
from typing import Final, Protocol

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from tenure.apis.labels import LAUNCH_GROUP, LAUNCH_REASON, NODECLASS, NODEPOOL, REPLACES
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.base import Message
from tenure.model.errors import TryLater
from tenure.model.launch import LaunchGroupMember
from tenure.model.nodeclaim.state import Deadlines, NodeClaimIdentity, NodeClaimState
from tenure.model.signals import GroupResult, LaunchError
from tenure.model.workflow_states import ProvisioningState

_RPC_TIMEOUT: Final = timedelta(seconds=10)
_VALID_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
"""The name comes from a tag, which users can write, so only a valid name may be part of a query."""


class WorkflowNames(Protocol):
    """IDs, queues and search attributes of workflows, which `workflows/` defines."""

    def nodeclaim_workflow_id(self, claim_name: str, uid: str) -> str:
        """With an empty UID: the prefix of the IDs of all NodeClaims with this name."""

    def provisioning_id(self) -> str: ...

    def task_queue(self) -> str: ...

    def search_attributes(self, identity: NodeClaimIdentity) -> TypedSearchAttributes: ...


class WorkflowClient:
    def __init__(self, client: Client, cluster: str, names: WorkflowNames, deadlines: Deadlines) -> None:
        self._client, self._cluster, self._names, self._deadlines = client, cluster, names, deadlines

    def build_identity(self, claim: NodeClaim) -> NodeClaimIdentity:
        meta = claim.metadata
        if meta.creation_timestamp is None:
            raise ValueError(
                f"NodeClaim {meta.name}: metadata.creationTimestamp is missing; it was not read from a server"
            )
        return NodeClaimIdentity(
            cluster=self._cluster,
            name=meta.name,
            uid=meta.uid,
            pool=meta.labels.get(NODEPOOL, ""),
            node_class=meta.labels.get(NODECLASS, claim.spec.node_class_ref.name),
            group_id=meta.annotations.get(LAUNCH_GROUP, ""),
            created=meta.creation_timestamp,
            why=meta.annotations.get(LAUNCH_REASON, ""),
            replaces=meta.annotations.get(REPLACES, ""),
            termination_grace_period=claim.spec.termination_grace_period or "",
        )

    async def signal_launch_result(self, claim: NodeClaim, result: GroupResult) -> None:
        """Signal-with-start, since the watch may not have seen the NodeClaim yet."""
        identity = self.build_identity(claim)
        await self._client.start_workflow(
            "NodeClaim",
            NodeClaimState(identity=identity, deadlines=self._deadlines),
            id=self._names.nodeclaim_workflow_id(identity.name, identity.uid),
            task_queue=self._names.task_queue(),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            search_attributes=self._names.search_attributes(identity),
            static_summary=identity.summary,
            static_details=identity.details,
            start_signal="launch_result",
            start_signal_args=[result],
        )

    async def notify_deleted(self, member: LaunchGroupMember, result: GroupResult) -> None:
        """Signal the workflow of a deleted NodeClaim, if it is running."""
        await self._signal_member(member, "launch_result", result)

    async def report_launch_error(self, member: LaunchGroupMember, error: LaunchError) -> None:
        """Signal the workflow of a NodeClaim whose launch is repeated, if it is running."""
        await self._signal_member(member, "launch_error", error)

    async def _signal_member(self, member: LaunchGroupMember, signal: str, message: Message) -> None:
        handle = self._client.get_workflow_handle(self._names.nodeclaim_workflow_id(member.name, member.uid))
        try:
            await handle.signal(signal, message)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    async def find_open_groups(self, group_ids: Set[str]) -> Set[str]:
        """The groups that still assign their instances. Raises TryLater.

        Provisioning knows the groups of several NodeClaims. An individual launch is a group with the NodeClaim's name.
        """
        try:
            found = set(group_ids) & await self._provisioning_groups()
            return found | {one for one in set(group_ids) - found if await self._is_launching_individually(one)}
        except (RPCError, WorkflowQueryFailedError) as error:
            raise TryLater(f"launch groups cannot be listed: {error}") from error

    async def _provisioning_groups(self) -> set[str]:
        handle = self._client.get_workflow_handle(self._names.provisioning_id())
        try:
            state = await handle.query("state", result_type=ProvisioningState, rpc_timeout=_RPC_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return set()
            raise
        return {group.group_id for group in state.groups}

    async def _is_launching_individually(self, name: str) -> bool:
        if not _VALID_NAME.fullmatch(name):
            return False
        prefix = self._names.nodeclaim_workflow_id(name, "")
        query = f"WorkflowId STARTS_WITH '{prefix}' AND ExecutionStatus = 'Running'"
        for workflow_id in [one.id async for one in self._client.list_workflows(query, rpc_timeout=_RPC_TIMEOUT)]:
            handle = self._client.get_workflow_handle(workflow_id)
            state = await handle.query("state", result_type=NodeClaimState, rpc_timeout=_RPC_TIMEOUT)
            if state.group is not None and state.launched is None:
                return True
        return False
