"""A workflow instead of a NodePool's that grants every permit at once, except for rejected UIDs."""

from datetime import timedelta

from temporalio import workflow
from temporalio.client import WorkflowHandle

from tenure.model.base import Message
from tenure.model.disruption.commands import PermitRevoked
from tenure.model.signals import PermitRelease, PermitRequest, PermitResult


class PermitRules(Message):
    rejected_uids: tuple[str, ...] = ()
    """UIDs of NodeClaims."""
    ignores_requests: bool = False
    """No request gets a decision."""
    lease: timedelta = timedelta(minutes=2)


@workflow.defn
class PermitGranterWorkflow:
    @workflow.init
    def __init__(self, rules: PermitRules) -> None:
        self._rules = rules
        self._requests: list[PermitRequest] = []
        self._released_uids: list[str] = []

    @workflow.run
    async def run(self, rules: PermitRules) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    async def request_permit(self, request: PermitRequest) -> None:
        self._requests.append(request)
        await self._send_decision(request)

    @workflow.signal
    async def change_rules(self, rules: PermitRules) -> None:
        """NodeClaims that are no longer rejected get another decision."""
        before, self._rules = self._rules, rules
        for one in {one.claim_uid: one for one in self._requests}.values():
            if one.claim_uid in before.rejected_uids and one.claim_uid not in rules.rejected_uids:
                await self._send_decision(one)

    @workflow.signal
    async def revoke_permits(self, why: str) -> None:
        for one in {one.claim_uid: one for one in self._requests}.values():
            revocation = PermitRevoked(claim_uid=one.claim_uid, why=why)
            await workflow.get_external_workflow_handle(one.workflow_id).signal("permit_revoked", revocation)

    @workflow.signal
    def release_permit(self, release: PermitRelease) -> None:
        self._released_uids.append(release.claim_uid)

    @workflow.query
    def requests(self) -> list[PermitRequest]:
        return self._requests

    @workflow.query
    def released_uids(self) -> list[str]:
        return self._released_uids

    async def _send_decision(self, request: PermitRequest) -> None:
        if self._rules.ignores_requests:
            return
        granted = request.claim_uid not in self._rules.rejected_uids
        decision = PermitResult(
            granted=granted,
            reason=request.reason,
            claim_uid=request.claim_uid,
            until=workflow.now() + self._rules.lease if granted else None,
            blocked_by="" if granted else "NodePool default: budget 1 of 2 nodes allows 1, 1 in use",
        )
        await workflow.get_external_workflow_handle(request.workflow_id).signal("permit_decided", decision)


PermitGranterHandle = WorkflowHandle[PermitGranterWorkflow, None]
