"""A word to a NodeClaim's workflow: signal-with-start, so that it arrives even before the watch has seen the claim."""

from typing import Protocol

from temporalio.client import Client
from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from model.kinds import NodeClaim
from model.labels import LAUNCH_GROUP, NODECLASS, NODEPOOL, REPLACES, WHY
from model.launches import Member
from model.lifecycle import ClaimIdentity, ClaimState, Deadlines
from model.messages import GroupAnswered


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
