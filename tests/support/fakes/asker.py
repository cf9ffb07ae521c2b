"""A workflow that asks a NodePool for permits and writes down what it is answered, in the place of a NodeClaim's."""

from temporalio import workflow

from tenure.model.disruption.commands import PermitRecalled
from tenure.model.signals import PermitAnswered


@workflow.defn
class AskerWorkflow:
    def __init__(self) -> None:
        self._answers: list[PermitAnswered] = []
        self._recalls: list[PermitRecalled] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def permitted(self, answer: PermitAnswered) -> None:
        self._answers.append(answer)

    @workflow.signal
    def recalled(self, recalled: PermitRecalled) -> None:
        self._recalls.append(recalled)

    @workflow.query
    def recalls(self) -> list[PermitRecalled]:
        return self._recalls

    @workflow.query
    def answers(self) -> list[PermitAnswered]:
        return self._answers
