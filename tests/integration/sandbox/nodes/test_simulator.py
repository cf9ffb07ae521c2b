"""Node lifecycles on a real API server, and all faults that rules can inject."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tenure.sandbox.environment import Sandbox
from tenure.sandbox.fault_proxy import Cut, Faults
from tenure.sandbox.kube_client import KubeApi, write_kubeconfig
from tenure.sandbox.nodes.fault_rules import (
    AddTaint,
    Deregister,
    LateDevices,
    LessMemory,
    LoseCni,
    Match,
    NeverRegister,
    NotReady,
    Rule,
    SetCondition,
    SlowReady,
)
from tenure.sandbox.nodes.simulator import Simulator
from tenure.sandbox.nodes.userdata.kubelet_join import Taint
from tests.integration.sandbox.builders import condition, find, wait_until
from tests.integration.sandbox.nodes.instance_builders import USER_DATA, Cloud, Json, machine_stage, running_simulator

NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
LOST = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
FAULT_SECONDS = 10.0
"""Long enough for a busy machine to observe the fault."""


@pytest.fixture
async def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
async def simulator(cluster: Sandbox, api: KubeApi, cloud: Cloud) -> AsyncIterator[Simulator]:
    async with running_simulator(cloud, cluster.kubeconfig) as running:
        yield running


async def get_node(api: KubeApi, name: str) -> Json:
    return await api.request("GET", f"{NODES}/{name}")


async def wait_until_ready(api: KubeApi, name: str, status: str = "True") -> Json:
    """Wait until the condition Ready has this status. Returns the Node."""
    return await wait_until_conditions(api, name, Ready=status)


async def wait_until_conditions(api: KubeApi, name: str, **statuses: str) -> Json:
    """Wait until the conditions of these types have these statuses. Returns the Node."""

    async def has_conditions() -> bool:
        found = await find(api, f"{NODES}/{name}")
        return bool(found and all(condition(found, type_) == status for type_, status in statuses.items()))

    await wait_until(has_conditions)
    return await get_node(api, name)


async def wait_until_deleted(api: KubeApi, name: str) -> None:
    async def is_deleted() -> bool:
        return await find(api, f"{NODES}/{name}") is None

    await wait_until(is_deleted)


async def wait_until_taints(api: KubeApi, name: str, keys: set[str]) -> None:
    async def has_taints() -> bool:
        found = await find(api, f"{NODES}/{name}")
        return bool(found and taints_of(found) == keys)

    await wait_until(has_taints)


async def wait_until_stage(simulator: Simulator, number: int, expected_stage: str | None) -> None:
    async def is_in_stage() -> bool:
        return machine_stage(simulator, number) == expected_stage

    await wait_until(is_in_stage)


def taints_of(found: Json) -> set[str]:
    return {taint["key"] for taint in found["spec"].get("taints", [])}


async def test_running_instance_registers_as_its_user_data_says(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1)
    found = await wait_until_ready(api, name)
    assert found["spec"]["providerID"] == "aws:///us-west-2a/i-0001"
    expected = {
        "karpenter.sh/nodepool": "default",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.k8s.aws/zone-id": "usw2-az1",
        "topology.kubernetes.io/region": "us-west-2",
        "topology.kubernetes.io/zone": "us-west-2a",
    }
    assert expected.items() <= found["metadata"]["labels"].items()
    assert found["status"]["capacity"]["cpu"] == "2"
    assert found["status"]["allocatable"]["cpu"] == "1930m"
    assert found["status"]["capacity"]["pods"] == "29"
    # Kubernetes' own controllers add and remove the NotReady taint.
    await wait_until_taints(api, name, {"karpenter.sh/unregistered"})


async def test_node_info_strings_are_not_yaml_numbers(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    found = await wait_until_ready(api, cloud.put(1))
    for text in found["status"]["nodeInfo"].values():
        if isinstance(text, str):
            with pytest.raises(ValueError, match="could not convert"):
                float(text)


async def test_pending_instance_has_no_node(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    waiting, running = cloud.put(1, "pending"), cloud.put(2)
    await wait_until_ready(api, running)
    assert await find(api, f"{NODES}/{waiting}") is None
    cloud.put(1)
    await wait_until_ready(api, waiting)


async def test_node_is_not_ready_during_shutdown_and_deleted_afterwards(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1)
    await wait_until_ready(api, name)
    cloud.put(1, "shutting-down")
    await wait_until_ready(api, name, "False")
    cloud.put(1, "terminated")
    await wait_until_deleted(api, name)
    cloud.remove(1)
    await wait_until_stage(simulator, 1, None)


async def test_finalizer_keeps_the_node_of_a_removed_instance(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    await wait_until_ready(api, name)
    with_finalizer = {"metadata": {"finalizers": ["karpenter.sh/termination"]}}
    await api.request("PATCH", f"{NODES}/{name}", with_finalizer, MERGE)
    cloud.remove(1)

    async def is_deleting() -> bool:
        return "deletionTimestamp" in (await get_node(api, name))["metadata"]

    await wait_until(is_deleting)
    await api.request("PATCH", f"{NODES}/{name}", {"metadata": {"finalizers": None}}, MERGE)
    await wait_until_deleted(api, name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#!/bin/bash\n", "no-cluster"),
        ("[settings.kubernetes\n", "failed"),
        (USER_DATA.replace("karpenter.sh/nodepool", "node-restriction.kubernetes.io/x"), "failed"),
    ],
)
async def test_instance_with_a_failed_boot_never_registers(
    api: KubeApi, cloud: Cloud, simulator: Simulator, text: str, expected: str
) -> None:
    name = cloud.put(1, text=text)
    await wait_until_stage(simulator, 1, expected)
    assert await find(api, f"{NODES}/{name}") is None


async def test_never_register_applies_to_count_instances(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    simulator.add_rule(Rule(fault=NeverRegister(), count=1))
    silent = cloud.put(1)
    await wait_until_stage(simulator, 1, "silent")
    await wait_until_ready(api, cloud.put(2))
    assert await find(api, f"{NODES}/{silent}") is None


async def test_slow_ready_delays_ready_of_a_registered_node(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    simulator.add_rule(Rule(fault=SlowReady(seconds=3600), match=Match(instance_id="i-0001")))
    slow = cloud.put(1)
    await wait_until_ready(api, slow, "False")
    await wait_until_ready(api, cloud.put(2))
    assert condition(await get_node(api, slow), "Ready") == "False"


async def test_not_ready_fault_ends_with_another_boot_id(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    before = await wait_until_ready(api, name)
    await wait_until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(fault=NotReady(for_seconds=FAULT_SECONDS, new_boot_id=True)))
    await wait_until_ready(api, name, "False")
    after = await wait_until_ready(api, name)
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_reboot_clears_faults_and_changes_the_boot_id(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    before = await wait_until_ready(api, name)
    await wait_until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(fault=SetCondition(type="KernelReady", status="False")))
    simulator.add_rule(Rule(fault=SetCondition(type="StorageReady", status="False", survives_reboot=True)))
    simulator.add_rule(Rule(fault=NotReady()))
    await wait_until_conditions(api, name, KernelReady="False", StorageReady="False", Ready="False")
    cloud.reboot(1)
    after = await wait_until_conditions(api, name, KernelReady="True", StorageReady="False", Ready="True")
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_node_recovers_after_both_of_two_faults(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    await wait_until_ready(api, name)
    await wait_until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(fault=NotReady(status="Unknown", for_seconds=0.3)))
    simulator.add_rule(Rule(fault=LoseCni(for_seconds=0.3 + FAULT_SECONDS)))
    await wait_until_ready(api, name, "False")
    found = await wait_until_ready(api, name)
    ready = next(one for one in found["status"]["conditions"] if one["type"] == "Ready")
    assert ready["reason"] == "KubeletReady"
    assert simulator.machines()[0].stage in ("ready", "waiting")


async def test_startup_taint_exists_at_creation_and_is_removed(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    cilium = Taint(key="node.cilium.io/agent-not-ready", value="true", effect="NoExecute")
    simulator.add_rule(Rule(fault=AddTaint(taints=(cilium,), for_seconds=FAULT_SECONDS)))
    name = cloud.put(1)
    observed: list[Json] = []

    async def exists() -> bool:
        found = await find(api, f"{NODES}/{name}")
        observed.extend([found] if found else [])
        return bool(observed)

    await wait_until(exists)
    assert cilium.to_object() in observed[0]["spec"]["taints"]
    await wait_until_taints(api, name, {"karpenter.sh/unregistered"})


async def test_taint_is_added_to_a_ready_node(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    await wait_until_ready(api, name)
    await wait_until_stage(simulator, 1, "ready")
    custom = Taint(key="example.com/maintenance", effect="NoSchedule")
    simulator.add_rule(Rule(fault=AddTaint(taints=(custom,))))
    await wait_until_taints(api, name, {"karpenter.sh/unregistered", "example.com/maintenance"})


async def test_rule_for_new_instances_does_not_apply_to_existing_nodes(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    old = cloud.put(1)
    await wait_until_ready(api, old)
    await wait_until_stage(simulator, 1, "ready")
    custom = Taint(key="example.com/new", effect="NoSchedule")
    simulator.add_rule(Rule(fault=AddTaint(taints=(custom,)), existing=False))
    await wait_until_taints(api, cloud.put(2), {"karpenter.sh/unregistered", "example.com/new"})
    assert "example.com/new" not in taints_of(await get_node(api, old))


async def test_node_reports_reduced_memory(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    simulator.add_rule(Rule(fault=LessMemory(mebibytes=7650)))
    found = await wait_until_ready(api, cloud.put(1))
    assert found["status"]["capacity"]["memory"] == "7650Mi"


async def test_gpus_appear_with_their_device_plugin(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    simulator.add_rule(Rule(fault=LateDevices(seconds=None), match=Match(instance_id="i-0001")))
    without_plugin, with_plugin = cloud.put(1, instance_type="g5.xlarge"), cloud.put(2, instance_type="g5.xlarge")
    await wait_until_ready(api, without_plugin)

    async def has_gpu() -> bool:
        found = await find(api, f"{NODES}/{with_plugin}")
        return bool(found and found["status"]["allocatable"].get("nvidia.com/gpu") == "1")

    await wait_until(has_gpu)
    assert "nvidia.com/gpu" not in (await get_node(api, without_plugin))["status"]["capacity"]


async def test_condition_is_set_for_a_duration(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    await wait_until_ready(api, name)
    await wait_until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(fault=SetCondition(type="KernelReady", status="False", for_seconds=FAULT_SECONDS)))
    for status in ("False", "True"):

        async def has_status(expected: str = status) -> bool:
            return condition(await get_node(api, name), "KernelReady") == expected

        await wait_until(has_status)


@pytest.mark.parametrize("reboots", [False, True])
async def test_deregistered_node_is_created_again_after_its_duration(
    api: KubeApi, cloud: Cloud, simulator: Simulator, *, reboots: bool
) -> None:
    name = cloud.put(1)
    before = await wait_until_ready(api, name)
    await wait_until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(fault=Deregister(for_seconds=FAULT_SECONDS, new_boot_id=reboots)))
    await wait_until_deleted(api, name)
    after = await wait_until_ready(api, name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    boots = {one["status"]["nodeInfo"]["bootID"] for one in (before, after)}
    assert len(boots) == 1 + reboots
    assert "karpenter.sh/unregistered" in taints_of(after)


async def test_stopped_instance_keeps_its_node_and_boots_again(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1)
    before = await wait_until_ready(api, name)
    await wait_until_taints(api, name, {"karpenter.sh/unregistered"})
    cloud.put(1, "stopped")
    await wait_until_ready(api, name, "False")

    async def is_tainted() -> bool:
        return "node.cloudprovider.kubernetes.io/shutdown" in taints_of(await get_node(api, name))

    await wait_until(is_tainted)
    cloud.put(1, "pending")
    await wait_until_stage(simulator, 1, "waiting")
    cloud.put(1)
    after = await wait_until_ready(api, name)
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await wait_until_taints(api, name, {"karpenter.sh/unregistered"})


async def test_new_simulator_adopts_nodes_and_deletes_orphaned_ones(
    api: KubeApi, cloud: Cloud, cluster: Sandbox
) -> None:
    async with running_simulator(cloud, cluster.kubeconfig):
        retained, deleted = cloud.put(1), cloud.put(2)
        before = await wait_until_ready(api, retained)
        await wait_until_ready(api, deleted)
    cloud.remove(2)
    async with running_simulator(cloud, cluster.kubeconfig, boot_seconds=3600) as simulator:
        await wait_until_deleted(api, deleted)
        await wait_until_stage(simulator, 1, "ready")
        assert (await get_node(api, retained))["metadata"]["uid"] == before["metadata"]["uid"]
        cloud.remove(1)
        await wait_until_deleted(api, retained)


async def test_registration_waits_while_another_node_has_the_name(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1, "pending")
    foreign_node = {"metadata": {"name": name}, "spec": {"providerID": "aws:///us-west-2a/i-9999"}}
    await api.request("POST", NODES, foreign_node)
    cloud.put(1)
    await wait_until_stage(simulator, 1, "booting")
    await asyncio.sleep(0.3)
    assert (await get_node(api, name))["spec"]["providerID"].endswith("i-9999")
    await api.request("DELETE", f"{NODES}/{name}")
    assert (await wait_until_ready(api, name))["spec"]["providerID"].endswith("i-0001")


@pytest.fixture
def faults(cluster: Sandbox) -> Iterator[Faults]:
    yield cluster.faults
    cluster.faults.clear()


async def test_instance_registers_once_the_api_server_is_reachable(
    api: KubeApi, cloud: Cloud, cluster: Sandbox, faults: Faults
) -> None:
    proxied = write_kubeconfig(
        cluster.directory / "nodes-by-proxy.yaml",
        server=cluster.locations()["apiserver by proxy"],
        token=cluster.cluster.token,
        authority=None,
    )
    async with running_simulator(cloud, proxied) as simulator:
        await wait_until_stage(simulator, 250, "waiting")
        cut = faults.add(Cut())
        name = cloud.put(1)

        async def is_retrying() -> bool:
            return cut.hits > 1

        await wait_until(is_retrying)
        assert await find(api, f"{NODES}/{name}") is None
        faults.clear()
        await wait_until_ready(api, name)


async def test_node_set_to_unknown_becomes_ready_again(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    """A running kubelet renews its conditions."""
    name = cloud.put(1)
    await wait_until_ready(api, name)
    patch = {"status": {"conditions": [LOST]}}
    patched = await api.request("PATCH", f"/api/v1/nodes/{name}/status", patch, STRATEGIC)
    assert condition(patched, "Ready") == "Unknown"
    await wait_until_ready(api, name)
