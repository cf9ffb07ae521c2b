"""Lives of machines on a real API server, and everything that rules can do to them."""

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
from tests.integration.sandbox.builders import condition, find, until
from tests.integration.sandbox.nodes.simulated import USER_DATA, Cloud, Json, simulating, stage

NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"
A_WHILE = 10.0
"""Seconds, so that a busy machine sees it too."""


@pytest.fixture
async def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
async def simulator(cluster: Sandbox, api: KubeApi, cloud: Cloud) -> AsyncIterator[Simulator]:
    async with simulating(cloud, cluster.kubeconfig) as running:
        yield running


async def node(api: KubeApi, name: str) -> Json:
    return await api.request("GET", f"{NODES}/{name}")


async def until_ready(api: KubeApi, name: str, status: str = "True") -> Json:
    """The node, once its condition Ready has this status."""

    async def so() -> bool:
        found = await find(api, f"{NODES}/{name}")
        return bool(found and condition(found, "Ready") == status)

    await until(so)
    return await node(api, name)


async def until_gone(api: KubeApi, name: str) -> None:
    async def so() -> bool:
        return await find(api, f"{NODES}/{name}") is None

    await until(so)


async def until_taints(api: KubeApi, name: str, keys: set[str]) -> None:
    async def so() -> bool:
        found = await find(api, f"{NODES}/{name}")
        return bool(found and taints_of(found) == keys)

    await until(so)


async def until_stage(simulator: Simulator, number: int, wanted: str | None) -> None:
    async def so() -> bool:
        return stage(simulator, number) == wanted

    await until(so)


def taints_of(found: Json) -> set[str]:
    return {taint["key"] for taint in found["spec"].get("taints", [])}


async def test_a_running_instance_joins_as_its_user_data_says(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    found = await until_ready(api, name)
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
    # The taint of NotReady is put and taken by Kubernetes' own controllers.
    await until_taints(api, name, {"karpenter.sh/unregistered"})


async def test_what_kwok_reads_as_yaml_cannot_be_taken_for_a_number(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    found = await until_ready(api, cloud.put(1))
    for text in found["status"]["nodeInfo"].values():
        if isinstance(text, str):
            with pytest.raises(ValueError, match="could not convert"):
                float(text)


async def test_an_instance_that_is_pending_has_no_node_yet(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    waiting, running = cloud.put(1, "pending"), cloud.put(2)
    await until_ready(api, running)
    assert await find(api, f"{NODES}/{waiting}") is None
    cloud.put(1)
    await until_ready(api, waiting)


async def test_a_node_is_not_ready_while_its_instance_shuts_down_and_goes_with_it(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1)
    await until_ready(api, name)
    cloud.put(1, "shutting-down")
    await until_ready(api, name, "False")
    cloud.put(1, "terminated")
    await until_gone(api, name)
    cloud.remove(1)
    await until_stage(simulator, 1, None)


async def test_a_finalizer_holds_the_node_of_a_gone_instance(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    await until_ready(api, name)
    held = {"metadata": {"finalizers": ["karpenter.sh/termination"]}}
    await api.request("PATCH", f"{NODES}/{name}", held, MERGE)
    cloud.remove(1)

    async def is_deleting() -> bool:
        return "deletionTimestamp" in (await node(api, name))["metadata"]

    await until(is_deleting)
    await api.request("PATCH", f"{NODES}/{name}", {"metadata": {"finalizers": None}}, MERGE)
    await until_gone(api, name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#!/bin/bash\n", "no-cluster"),
        ("[settings.kubernetes\n", "failed"),
        (USER_DATA.replace("karpenter.sh/nodepool", "node-restriction.kubernetes.io/x"), "failed"),
    ],
)
async def test_an_instance_whose_boot_goes_wrong_never_joins(
    api: KubeApi, cloud: Cloud, simulator: Simulator, text: str, expected: str
) -> None:
    name = cloud.put(1, text=text)
    await until_stage(simulator, 1, expected)
    assert await find(api, f"{NODES}/{name}") is None


async def test_never_register_befalls_as_many_as_it_says(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    simulator.add_rule(Rule(trouble=NeverRegister(), count=1))
    silent = cloud.put(1)
    await until_stage(simulator, 1, "silent")
    await until_ready(api, cloud.put(2))
    assert await find(api, f"{NODES}/{silent}") is None


async def test_slow_ready_keeps_a_registered_node_waiting(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    simulator.add_rule(Rule(trouble=SlowReady(seconds=3600), match=Match(instance_id="i-0001")))
    slow = cloud.put(1)
    await until_ready(api, slow, "False")
    await until_ready(api, cloud.put(2))
    assert condition(await node(api, slow), "Ready") == "False"


async def test_a_kubelet_restart_is_not_ready_for_a_while_with_another_boot_id(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1)
    before = await until_ready(api, name)
    await until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(trouble=NotReady(for_seconds=A_WHILE, new_boot_id=True)))
    await until_ready(api, name, "False")
    after = await until_ready(api, name)
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_reboot_puts_right_what_a_boot_can_and_changes_the_boot_id(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1)
    before = await until_ready(api, name)
    await until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(trouble=SetCondition(type="KernelReady", status="False")))
    simulator.add_rule(Rule(trouble=SetCondition(type="StorageReady", status="False", survives_reboot=True)))
    simulator.add_rule(Rule(trouble=NotReady()))
    await until_ready(api, name, "False")
    cloud.reboot(1)
    after = await until_ready(api, name)
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (condition(after, "KernelReady"), condition(after, "StorageReady")) == ("True", "False")


async def test_two_troubles_at_a_time_are_over_when_both_are(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    await until_ready(api, name)
    await until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(trouble=NotReady(status="Unknown", for_seconds=0.3)))
    simulator.add_rule(Rule(trouble=LoseCni(for_seconds=0.3 + A_WHILE)))
    await until_ready(api, name, "False")
    found = await until_ready(api, name)
    ready = next(one for one in found["status"]["conditions"] if one["type"] == "Ready")
    assert ready["reason"] == "KubeletReady"
    assert simulator.machines()[0].stage in ("ready", "waiting")


async def test_a_startup_taint_is_there_from_the_first_moment_and_is_removed(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    cilium = Taint(key="node.cilium.io/agent-not-ready", value="true", effect="NoExecute")
    simulator.add_rule(Rule(trouble=AddTaint(taints=(cilium,), for_seconds=A_WHILE)))
    name = cloud.put(1)
    seen: list[Json] = []

    async def stands() -> bool:
        found = await find(api, f"{NODES}/{name}")
        seen.extend([found] if found else [])
        return bool(seen)

    await until(stands)
    assert cilium.to_object() in seen[0]["spec"]["taints"]
    await until_taints(api, name, {"karpenter.sh/unregistered"})


async def test_a_late_taint_falls_on_a_node_that_is_up(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    await until_ready(api, name)
    await until_stage(simulator, 1, "ready")
    custom = Taint(key="example.com/maintenance", effect="NoSchedule")
    simulator.add_rule(Rule(trouble=AddTaint(taints=(custom,))))
    await until_taints(api, name, {"karpenter.sh/unregistered", "example.com/maintenance"})


async def test_a_rule_for_new_instances_leaves_nodes_that_are_up_alone(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    old = cloud.put(1)
    await until_ready(api, old)
    await until_stage(simulator, 1, "ready")
    custom = Taint(key="example.com/new", effect="NoSchedule")
    simulator.add_rule(Rule(trouble=AddTaint(taints=(custom,)), existing=False))
    await until_taints(api, cloud.put(2), {"karpenter.sh/unregistered", "example.com/new"})
    assert "example.com/new" not in taints_of(await node(api, old))


async def test_less_memory_is_what_the_node_reports(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    simulator.add_rule(Rule(trouble=LessMemory(mebibytes=7650)))
    found = await until_ready(api, cloud.put(1))
    assert found["status"]["capacity"]["memory"] == "7650Mi"


async def test_gpus_appear_when_their_plugin_runs_or_never(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    simulator.add_rule(Rule(trouble=LateDevices(seconds=None), match=Match(instance_id="i-0001")))
    blind, seeing = cloud.put(1, instance_type="g5.xlarge"), cloud.put(2, instance_type="g5.xlarge")
    await until_ready(api, blind)

    async def sees() -> bool:
        found = await find(api, f"{NODES}/{seeing}")
        return bool(found and found["status"]["allocatable"].get("nvidia.com/gpu") == "1")

    await until(sees)
    assert "nvidia.com/gpu" not in (await node(api, blind))["status"]["capacity"]


async def test_a_condition_can_be_set_for_a_while(api: KubeApi, cloud: Cloud, simulator: Simulator) -> None:
    name = cloud.put(1)
    await until_ready(api, name)
    await until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(trouble=SetCondition(type="KernelReady", status="False", for_seconds=A_WHILE)))
    for status in ("False", "True"):

        async def so(wanted: str = status) -> bool:
            return condition(await node(api, name), "KernelReady") == wanted

        await until(so)


async def test_a_deregistered_node_is_gone_and_comes_back_when_told(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1)
    before = await until_ready(api, name)
    await until_stage(simulator, 1, "ready")
    simulator.add_rule(Rule(trouble=Deregister(for_seconds=A_WHILE)))
    await until_gone(api, name)
    after = await until_ready(api, name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert "karpenter.sh/unregistered" in taints_of(after)


async def test_a_stopped_instance_keeps_its_node_and_boots_again(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1)
    before = await until_ready(api, name)
    await until_taints(api, name, {"karpenter.sh/unregistered"})
    cloud.put(1, "stopped")
    await until_ready(api, name, "False")

    async def is_tainted() -> bool:
        return "node.cloudprovider.kubernetes.io/shutdown" in taints_of(await node(api, name))

    await until(is_tainted)
    cloud.put(1, "pending")
    await until_stage(simulator, 1, "waiting")
    cloud.put(1)
    after = await until_ready(api, name)
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await until_taints(api, name, {"karpenter.sh/unregistered"})


async def test_a_new_simulator_adopts_what_stands_and_tidies_what_is_gone(
    api: KubeApi, cloud: Cloud, cluster: Sandbox
) -> None:
    async with simulating(cloud, cluster.kubeconfig):
        kept, gone = cloud.put(1), cloud.put(2)
        before = await until_ready(api, kept)
        await until_ready(api, gone)
    cloud.remove(2)
    async with simulating(cloud, cluster.kubeconfig, boot_seconds=3600) as simulator:
        await until_gone(api, gone)
        await until_stage(simulator, 1, "ready")
        assert (await node(api, kept))["metadata"]["uid"] == before["metadata"]["uid"]
        cloud.remove(1)
        await until_gone(api, kept)


async def test_a_name_that_another_machine_still_holds_is_waited_for(
    api: KubeApi, cloud: Cloud, simulator: Simulator
) -> None:
    name = cloud.put(1, "pending")
    stranger = {"metadata": {"name": name}, "spec": {"providerID": "aws:///us-west-2a/i-9999"}}
    await api.request("POST", NODES, stranger)
    cloud.put(1)
    await until_stage(simulator, 1, "booting")
    await asyncio.sleep(0.3)
    assert (await node(api, name))["spec"]["providerID"].endswith("i-9999")
    await api.request("DELETE", f"{NODES}/{name}")
    assert (await until_ready(api, name))["spec"]["providerID"].endswith("i-0001")


@pytest.fixture
def faults(cluster: Sandbox) -> Iterator[Faults]:
    yield cluster.faults
    cluster.faults.clear()


async def test_an_instance_joins_once_the_api_server_can_be_reached(
    api: KubeApi, cloud: Cloud, cluster: Sandbox, faults: Faults
) -> None:
    proxied = write_kubeconfig(
        cluster.directory / "nodes-by-proxy.yaml",
        server=cluster.reach()["apiserver by proxy"],
        token=cluster.cluster.token,
        authority=None,
    )
    async with simulating(cloud, proxied) as simulator:
        await until_stage(simulator, 250, "waiting")
        cut = faults.add(Cut())
        name = cloud.put(1)

        async def is_trying() -> bool:
            return cut.hits > 1

        await until(is_trying)
        assert await find(api, f"{NODES}/{name}") is None
        faults.clear()
        await until_ready(api, name)
