"""A workflow instead of a NodeClaim's that records the NodePool's decisions on its permit requests."""

from temporalio import workflow

from tenure.model.disruption.commands import PermitRevoked
from tenure.model.signals import PermitResult


@workflow.defn
class PermitRequesterWorkflow:
    def __init__(self) -> None:
        self._decisions: list[PermitResult] = []
        self._revocations: list[PermitRevoked] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def permit_decided(self, decision: PermitResult) -> None:
        self._decisions.append(decision)

    @workflow.signal
    def permit_revoked(self, revocation: PermitRevoked) -> None:
        self._revocations.append(revocation)

    @workflow.query
    def revocations(self) -> list[PermitRevoked]:
        return self._revocations

    @workflow.query
    def decisions(self) -> list[PermitResult]:
        return self._decisions
