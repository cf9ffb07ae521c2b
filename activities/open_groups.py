"""Launch groups that still hand out what they bought, as the workflows that launch them say.

Satisfies `upkeep_ports.LaunchGroups`. A group of many is in the Provisioning workflow's state; a NodeClaim that
launches alone is a group of its own name, in its own workflow.
"""

import re
from collections.abc import Set
from datetime import timedelta
from typing import Final, Protocol

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from model.coordination import ProvisioningState
from model.faults import TryLater
from model.lifecycle import ClaimState

_PATIENCE: Final = timedelta(seconds=10)
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
"""A tag is anybody's text; only what can be a name is looked up."""


class Names(Protocol):
    """Ids of workflows, which belong to `workflows/` and are handed in."""

    def provisioning_id(self) -> str: ...

    def lives_of(self, claim_name: str) -> str:
        """What the ids of all lives of this name begin with."""
        ...


class OpenGroups:
    """Raises TryLater."""

    def __init__(self, client: Client, names: Names) -> None:
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
