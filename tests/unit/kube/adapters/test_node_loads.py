"""NodeLoads are computed from the pods that the API server lists for each node."""

from datetime import UTC, datetime
from typing import Any

from tenure.kube.adapters.nodes import KubeNodeLoads, node_load
from tenure.model.extra_capacity import MovedPod, NodeLoad
from tests.support.kube.builders import pod_json
from tests.unit.kube.fake_api import FakeApi, list_response, serve_api

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(name: str = "a", *, owner: str = "ReplicaSet", phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    owners = [{"kind": owner, "uid": "o", "controller": True}]
    identity = {"uid": f"uid-{name}", "creationTimestamp": "2026-01-01T10:00:00Z"}
    raw = pod_json(name, node="n1", metadata={**identity, "ownerReferences": owners, **metadata})
    raw["status"] = {"phase": phase, "startTime": "2026-01-01T11:00:00Z"}
    return raw


def test_pods_without_rescheduling_are_not_counted() -> None:
    pods = [pod(owner="DaemonSet"), pod(owner="Node"), pod(phase="Succeeded")]
    assert node_load(pods, NOW) == NodeLoad()


def test_moved_pods_have_priority_and_deletion_cost() -> None:
    expensive = pod("b", annotations={"controller.kubernetes.io/pod-deletion-cost": "-100"})
    expensive["spec"]["priority"] = 7
    invalid = pod("c", annotations={"controller.kubernetes.io/pod-deletion-cost": "much"})
    load = node_load([pod(), expensive, invalid], NOW)
    assert load.moved == (MovedPod(), MovedPod(priority=7, deletion_cost=-100), MovedPod())


def test_do_not_disrupt_pod_protects_its_node_even_if_owned_by_a_daemonset() -> None:
    assert node_load([pod(annotations={"karpenter.sh/do-not-disrupt": "true"})], NOW).protected
    assert node_load([pod(owner="DaemonSet", annotations={"karpenter.sh/do-not-disrupt": "true"})], NOW).protected
    assert node_load([pod(annotations={"karpenter.sh/do-not-disrupt": "2h"})], NOW).protected
    assert not node_load([pod(annotations={"karpenter.sh/do-not-disrupt": "30m"})], NOW).protected
    ended = pod(phase="Succeeded", annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert not node_load([ended], NOW).protected


def test_unreadable_pod_protects_its_node_and_is_counted() -> None:
    broken = pod("b")
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "much"
    assert node_load([broken, pod()], NOW) == NodeLoad(moved=(MovedPod(), MovedPod()), protected=True)


async def test_pods_are_listed_per_node_name() -> None:
    api = FakeApi()
    api.lists = [list_response(1, pod()), list_response(1)]
    async with serve_api(api) as client:
        loads = await KubeNodeLoads(client).on_nodes(["n1", "n2"], now=NOW)
    assert sorted(query["fieldSelector"] for query in api.requests) == ["spec.nodeName=n1", "spec.nodeName=n2"]
    assert sorted(len(load.moved) for load in loads.values()) == [0, 1] and set(loads) == {"n1", "n2"}
