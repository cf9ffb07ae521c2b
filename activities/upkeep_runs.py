"""Runs of upkeep that had nothing to do: deleted by the run after them, so that what is kept is worth reading.

Thousands of them a day would fill Temporal's database and its list of workflows.
"""

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.errors import faults_mapped
from model.faults import TryLater
from model.upkeep import RunRef


class RunUpkeep:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    @faults_mapped
    async def forget_run(self, run: RunRef) -> None:
        """One that is gone already counts as forgotten."""
        execution = WorkflowExecution(workflow_id=run.workflow_id, run_id=run.run_id)
        request = DeleteWorkflowExecutionRequest(namespace=self._client.namespace, workflow_execution=execution)
        try:
            await self._client.workflow_service.delete_workflow_execution(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise TryLater(f"{run.workflow_id} cannot be deleted: {error.message}") from error
