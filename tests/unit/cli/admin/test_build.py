"""`tenure build` with a fake of Temporal's worker deployments."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.capture import CaptureFixture
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.deployment.v1 import RoutingConfig, WorkerDeploymentInfo, WorkerDeploymentOptions
from temporalio.api.deployment.v1 import WorkerDeploymentVersion as Version
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse, DescribeWorkerDeploymentResponse
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tenure.cli import main as cli_main
from tenure.model.errors import TryLater


class FakeDeployment:
    """The worker deployment of one cluster. It runs no workflow task, so a canary fails with the given error."""

    namespace = "default"

    def __init__(self, *builds: str, current: str, ramping: str = "", canary: RPCError | None = None) -> None:
        self.builds, self.current, self.ramping, self._canary = builds, current, ramping, canary

    @property
    def workflow_service(self) -> "FakeDeployment":
        return self

    async def describe_worker_deployment(self, *_: Any, **__: Any) -> DescribeWorkerDeploymentResponse:
        routing = RoutingConfig(
            current_deployment_version=Version(build_id=self.current),
            ramping_deployment_version=Version(build_id=self.ramping),
            ramping_version_percentage=10,
        )
        return DescribeWorkerDeploymentResponse(worker_deployment_info=WorkerDeploymentInfo(routing_config=routing))

    async def describe_task_queue(self, *_: Any, **__: Any) -> DescribeTaskQueueResponse:
        now = Timestamp()
        now.FromDatetime(datetime.now(UTC))
        pollers = [
            PollerInfo(identity=build, last_access_time=now, deployment_options=WorkerDeploymentOptions(build_id=build))
            for build in self.builds
        ]
        return DescribeTaskQueueResponse(pollers=pollers)

    async def set_worker_deployment_current_version(self, request: Any, **_: Any) -> None:
        self.current = request.build_id

    async def set_worker_deployment_ramping_version(self, request: Any, **_: Any) -> None:
        self.ramping = request.build_id

    async def start_workflow(self, *_: Any, **options: Any) -> Any:
        if self._canary:
            raise self._canary

        async def result() -> None:
            self.canary = options["versioning_override"].version.build_id

        return SimpleNamespace(result=result)


def run(monkeypatch: pytest.MonkeyPatch, deployment: FakeDeployment, *arguments: str) -> int:
    async def connect(*_: Any, **__: Any) -> FakeDeployment:
        return deployment

    monkeypatch.setattr(Client, "connect", connect)
    monkeypatch.delenv("TEMPORAL_WORKER_BUILD_ID", raising=False)
    return cli_main.main(["build", *arguments, "--cluster-name", "demo"])


def test_status_lists_current_ramping_and_waiting_builds(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    deployment = FakeDeployment("0.1.0", "0.2.0", "0.3.0", current="0.2.0", ramping="0.3.0")
    assert run(monkeypatch, deployment, "status", "-o", "json") == 0
    assert [(one["build"], one["workers"], one["state"]) for one in json.loads(capsys.readouterr().out)] == [
        ("0.2.0", 1, "current"),
        ("0.3.0", 1, "ramping 10 %"),
        ("0.1.0", 1, "waiting"),
    ]


def test_build_is_promoted_after_its_canary(monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    deployment = FakeDeployment("0.2.0", "0.3.0", current="0.2.0")
    assert run(monkeypatch, deployment, "promote", "--build", "0.3.0", "--ramp-percentage", "0") == 0
    assert (deployment.canary, deployment.current) == ("0.3.0", "0.3.0")
    assert "Build 0.3.0 is current." in capsys.readouterr().out


def test_older_build_is_promoted_only_by_a_rollback(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    deployment = FakeDeployment("0.2.0", "0.3.0", current="0.3.0")
    assert run(monkeypatch, deployment, "promote", "--build", "0.2.0", "--timeout", "0s") == 1
    assert "tenure build rollback" in capsys.readouterr().err and deployment.current == "0.3.0"
    assert run(monkeypatch, deployment, "rollback") == 0
    assert deployment.current == "0.2.0"


def test_rollback_during_a_ramp_ends_the_ramp(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = FakeDeployment("0.2.0", "0.3.0", current="0.2.0", ramping="0.3.0")
    assert run(monkeypatch, deployment, "rollback", "--build", "0.2.0") == 0
    assert (deployment.current, deployment.ramping) == ("0.2.0", "")


def test_rollback_without_other_workers_names_the_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    assert run(monkeypatch, FakeDeployment("0.3.0", current="0.3.0"), "rollback") == 2
    assert "helm rollback tenure" in capsys.readouterr().err


def test_unreachable_temporal_has_an_exit_code_that_the_job_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    unavailable = RPCError("no connection", RPCStatusCode.UNAVAILABLE, b"")
    deployment = FakeDeployment("0.2.0", "0.3.0", current="0.2.0", canary=unavailable)
    assert run(monkeypatch, deployment, "promote", "--build", "0.3.0") == 2
    assert deployment.current == "0.2.0"


def test_rollback_without_temporal_has_an_exit_code_that_the_job_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unavailable(FakeDeployment):
        async def describe_worker_deployment(self, *_: Any, **__: Any) -> DescribeWorkerDeploymentResponse:
            raise RPCError("no connection", RPCStatusCode.UNAVAILABLE, b"")

    assert run(monkeypatch, Unavailable("0.2.0", "0.3.0", current="0.3.0"), "rollback", "--build", "0.2.0") == 2


def test_promotion_ends_while_karpenter_leads_and_workers_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    lead_karpenter(monkeypatch, "karpenter-7d9")
    for current in ("", "0.2.0", "0.3.0+1"):
        assert run(monkeypatch, FakeDeployment(current=current), "promote", "--build", "0.3.0") == 0
        assert "karpenter-7d9 leads in the cluster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("builds", "current"),
    [((), "0.4.0"), (("0.2.0",), "0.2.0")],
    ids=["a newer build is current", "the current build has workers"],
)
def test_promotion_fails_where_the_workers_would_not_take_over(
    builds: tuple[str, ...], current: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead_karpenter(monkeypatch, "karpenter-7d9")
    assert run(monkeypatch, FakeDeployment(*builds, current=current), "promote", "--build", "0.3.0", *NOW) == 1


@pytest.mark.parametrize("fault", [None, TryLater("cut")])
def test_promotion_without_karpenter_waits_for_workers(
    fault: TryLater | None, monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    lead_karpenter(monkeypatch, "", fault)
    assert run(monkeypatch, FakeDeployment(current=""), "promote", "--build", "0.3.0", *NOW) == 1
    assert "no worker runs build 0.3.0 yet" in capsys.readouterr().err


NOW = ("--timeout", "0s")


def lead_karpenter(monkeypatch: pytest.MonkeyPatch, holder: str, fault: TryLater | None = None) -> None:
    """`holder` of the lease in any namespace, or a fault of the API server."""

    async def request(method: str, path: str, *, params: dict[str, str]) -> dict[str, Any]:
        assert (path, params["fieldSelector"]) == (
            "/apis/coordination.k8s.io/v1/leases",
            "metadata.name=karpenter-leader-election",
        )
        if fault:
            raise fault
        renewed = datetime.now(UTC).isoformat()
        spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
        metadata = {"name": "karpenter-leader-election", "namespace": "kube-system"}
        return {"items": [{"metadata": metadata, "spec": spec}] if holder else []}

    async def close() -> None:
        pass

    async def connect(kubeconfig: str) -> Any:
        return SimpleNamespace(request=request, close=close)

    monkeypatch.setattr("tenure.cli.admin.build.connect", connect)


def test_promotion_needs_a_build(monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    assert run(monkeypatch, FakeDeployment(current=""), "promote") == 2
    assert "TEMPORAL_WORKER_BUILD_ID" in capsys.readouterr().err
