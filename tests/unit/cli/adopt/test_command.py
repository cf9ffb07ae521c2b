"""`tenure adopt` changes nothing if the worker could not use Temporal after Karpenter is stopped."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from tenure.cli.adopt.command import connect_temporal
from tenure.cli.exit_codes import UsageError
from tenure.cli.temporal_client import Connection
from tenure.controller.temporal.client import CLUSTER_UID
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.errors import BadInput
from tenure.settings import load


class FakeTemporal:
    """Temporal with the ClusterWatch workflow of the cluster `owner`, or whose requests fail."""

    namespace = "prod"

    def __init__(self, owner: str = "", fault: RPCError | None = None) -> None:
        self._owner, self._fault = owner, fault

    def get_workflow_handle(self, _: str) -> "FakeTemporal":
        return self

    async def describe(self) -> Any:
        if self._fault:
            raise self._fault
        return SimpleNamespace(status=WorkflowExecutionStatus.RUNNING, memo=self._memo)

    async def _memo(self) -> dict[str, str]:
        return {CLUSTER_UID: self._owner}


async def connect(temporal: FakeTemporal, monkeypatch: pytest.MonkeyPatch, *, needed: bool = True) -> Client | None:
    async def connect_client(_: Connection) -> Client:
        return cast(Client, temporal)

    async def request(*_: str) -> dict[str, Any]:
        return {"metadata": {"uid": "uid-b"}}

    monkeypatch.setattr(Connection, "connect", connect_client)
    cluster = cast(KubeAdapters, SimpleNamespace(client=SimpleNamespace(request=request)))
    return await connect_temporal(cluster, load(["--cluster-name=demo"]), needed=needed)


async def test_workflows_of_another_cluster_are_found_before_karpenter_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await connect(FakeTemporal("uid-b"), monkeypatch) is not None
    with pytest.raises(BadInput, match="CLUSTER_NAME=demo: the Kubernetes cluster with UID uid-a uses this name"):
        await connect(FakeTemporal("uid-a"), monkeypatch)
    assert await connect(FakeTemporal("uid-a"), monkeypatch, needed=False) is not None


async def test_missing_namespace_is_found_before_karpenter_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = RPCError("Namespace default is not found.", RPCStatusCode.NOT_FOUND, b"")
    with pytest.raises(UsageError, match=r"adopt: TEMPORAL_NAMESPACE=default: .*create it"):
        await connect(FakeTemporal(fault=missing), monkeypatch)
