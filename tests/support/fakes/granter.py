"""A workflow in the place of a NodePool's: it grants every permit at once, but those that it was told to refuse."""

from datetime import timedelta

from temporalio import workflow
from temporalio.client import WorkflowHandle

from tenure.model.base import Message
from tenure.model.disruption.commands import PermitRecalled
from tenure.model.signals import PermitAnswered, PermitAsked, PermitWithdrawn


class Grants(Message):
    refused: tuple[str, ...] = ()
    """UIDs of NodeClaims."""
    silent: bool = False
    """Nobody is answered at all."""
    lease: timedelta = timedelta(minutes=2)


@workflow.defn
class GranterWorkflow:
    @workflow.init
    def __init__(self, grants: Grants) -> None:
        self._grants = grants
        self._asked: list[PermitAsked] = []
        self._withdrawn: list[str] = []

    @workflow.run
    async def run(self, grants: Grants) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    async def asked(self, asked: PermitAsked) -> None:
        self._asked.append(asked)
        await self._answer(asked)

    @workflow.signal
    async def change(self, grants: Grants) -> None:
        """Whoever was refused and need not be is answered again."""
        before, self._grants = self._grants, grants
        for one in {one.claim_uid: one for one in self._asked}.values():
            if one.claim_uid in before.refused and one.claim_uid not in grants.refused:
                await self._answer(one)

    @workflow.signal
    async def recall(self, why: str) -> None:
        for one in {one.claim_uid: one for one in self._asked}.values():
            recalled = PermitRecalled(claim_uid=one.claim_uid, why=why)
            await workflow.get_external_workflow_handle(one.workflow_id).signal("recalled", recalled)

    @workflow.signal
    def withdrawn(self, withdrawn: PermitWithdrawn) -> None:
        self._withdrawn.append(withdrawn.claim_uid)

    @workflow.query
    def wishes(self) -> list[PermitAsked]:
        return self._asked

    @workflow.query
    def given_back(self) -> list[str]:
        return self._withdrawn

    async def _answer(self, asked: PermitAsked) -> None:
        if self._grants.silent:
            return
        granted = asked.claim_uid not in self._grants.refused
        answer = PermitAnswered(
            granted=granted,
            reason=asked.reason,
            claim_uid=asked.claim_uid,
            until=workflow.now() + self._grants.lease if granted else None,
            blocked_by="" if granted else "NodePool default: budget 1 of 2 nodes allows 1, 1 in use",
        )
        await workflow.get_external_workflow_handle(asked.workflow_id).signal("permitted", answer)


Granter = WorkflowHandle[GranterWorkflow, None]
