"""The sandbox as a whole: two at a time, retained data, and cleanup."""

import asyncio
import base64
import subprocess
import sys
from pathlib import Path

import aiohttp
import boto3
import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import DirectoryInUse, NotRunning
from tenure.sandbox.processes import PartFailed
from tenure.sandbox.spec import Plan
from tenure.sandbox.state_file import Record, is_running
from tests.integration.sandbox.test_processes import is_alive, wait_until
from tests.support.paths import ROOT
from tests.support.product.shared_sandbox import SharedSandbox

BARE = Plan(parts=("temporal", "kubernetes"), manifests=())


async def cluster_uid(sandbox: Sandbox) -> str:
    async with sandbox.cluster.client() as api:
        found = await api.request("GET", "/api/v1/namespaces/kube-system")
    return str(found["metadata"]["uid"])


async def test_two_sandboxes_run_at_the_same_time(cluster: Sandbox, tmp_path: Path) -> None:
    async with Sandbox(tmp_path, plan=BARE) as other:
        assert not set(other.ports.values()) & set(cluster.ports.values())
        assert await cluster_uid(other) != await cluster_uid(cluster)
        with pytest.raises(DirectoryInUse, match=str(tmp_path)):
            Sandbox(tmp_path, plan=BARE).start()
        pids = [part.pid for part in other.processes]
        assert all(is_alive(pid) for pid in pids)
    assert not any(is_alive(pid) for pid in pids)
    assert not is_running(tmp_path)
    cluster.check()


async def test_retained_data_is_loaded_under_the_same_ports(tmp_path: Path) -> None:
    persistent_plan = Plan(parts=("temporal", "kubernetes"), manifests=(), retain_data=True)
    async with Sandbox(tmp_path, plan=persistent_plan) as first:
        cluster, ports, environment = await cluster_uid(first), dict(first.ports), first.environment()
    async with Sandbox(tmp_path, plan=persistent_plan) as second:
        assert await cluster_uid(second) == cluster
        assert (second.ports, second.environment()) == (ports, environment)


async def test_stopped_component_starts_again_with_its_data(tmp_path: Path) -> None:
    async with Sandbox(tmp_path, plan=Plan(parts=("temporal",))) as sandbox:
        client = await Client.connect(sandbox.temporal_address)
        await client.start_workflow("Waiting", id="kept", task_queue="nobody")
        await asyncio.to_thread(sandbox.stop_part, "temporal")
        assert [part.is_running for part in sandbox.processes] == [False]
        await asyncio.to_thread(sandbox.start_part, "temporal")
        reconnected = await Client.connect(sandbox.temporal_address)
        assert (await reconnected.get_workflow_handle("kept").describe()).workflow_type == "Waiting"
        with pytest.raises(NotRunning, match="etcd"):
            sandbox.stop_part("etcd")


def test_stop_removes_data_and_keeps_logs(tmp_path: Path) -> None:
    with Sandbox(tmp_path, plan=Plan(parts=("temporal",))) as sandbox:
        assert (tmp_path / "temporal" / "temporal.db").exists()
        assert sandbox.environment()["TEMPORAL_ADDRESS"] == sandbox.temporal_address
        with pytest.raises(NotRunning, match="kubernetes"):
            _ = sandbox.kubeconfig
    assert not (tmp_path / "temporal").exists()
    assert (tmp_path / "logs" / "temporal.log").exists()


def test_failed_start_of_a_component_stops_the_others(tmp_path: Path) -> None:
    plan = Plan(parts=("temporal", "aws"), aws_arguments=("--no-such-flag",))
    sandbox = Sandbox(tmp_path, plan=plan)
    with pytest.raises(PartFailed, match="aws") as failed:
        sandbox.start()
    assert "no-such-flag" in str(failed.value)
    assert not any(part.is_running for part in sandbox.processes)
    assert not is_running(tmp_path)


OWNER = """
import pathlib, sys, time
from tenure.sandbox.spec import Plan
from tenure.sandbox.environment import Sandbox
sandbox = Sandbox(pathlib.Path(sys.argv[1]), plan=Plan(parts=("temporal", "kubernetes"), manifests=())).start()
print("up", flush=True)
time.sleep(600)
"""


async def test_components_end_when_the_owner_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    owner = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    assert owner.stdout and await owner.stdout.readline() == b"up\n"
    record = Record.read(tmp_path)
    assert record and record.pid == owner.pid and is_running(tmp_path)
    assert len(record.processes) == 7 and all(map(is_alive, record.processes.values()))
    owner.kill()
    await owner.wait()
    await wait_until(lambda: not any(map(is_alive, record.processes.values())))
    assert not is_running(tmp_path)


async def test_every_component_responds(shared_sandbox: SharedSandbox) -> None:
    exported = set(shared_sandbox.environment())
    assert exported >= {"KUBECONFIG", "AWS_ENDPOINT_URL", "TEMPORAL_ADDRESS", "AWS_REGION", "NODE_SIMULATOR_URL"}
    async with aiohttp.ClientSession() as session:
        for url in (
            shared_sandbox.temporal_ui,
            f"{shared_sandbox.aws_endpoint}/_sim/health",
            f"{shared_sandbox.nodes_endpoint}/_sim/health",
        ):
            async with session.get(url) as response:
                assert response.status == 200, url
    async with shared_sandbox.cluster.client() as api:
        for path in ("/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"):
            await api.request("GET", path)
    client = await Client.connect(shared_sandbox.temporal_address, namespace=shared_sandbox.plan.namespace)
    request = ListSearchAttributesRequest(namespace=shared_sandbox.plan.namespace)
    known = await client.operator_service.list_search_attributes(request)
    assert set(shared_sandbox.plan.search_attributes) <= set(known.custom_attributes)


async def test_fake_eks_describes_this_cluster(shared_sandbox: SharedSandbox) -> None:
    eks = boto3.client(
        "eks",
        endpoint_url=shared_sandbox.aws_endpoint,
        region_name=shared_sandbox.plan.region,
        aws_access_key_id="sandbox",
        aws_secret_access_key="sandbox",
    )
    described = (await asyncio.to_thread(eks.describe_cluster, name=shared_sandbox.plan.cluster_name))["cluster"]
    assert described["endpoint"] == shared_sandbox.apiserver
    assert base64.b64decode(described["certificateAuthority"]["data"]) == shared_sandbox.cluster.authority.read_bytes()
