"""Changes that may let a new node help a pod for which no node is launched."""

from typing import Any

import pytest

from tenure.apis import labels
from tenure.model.plan import UNUSED_NODE_LIMIT
from tests.support.controller.builders import Json, node_class, pool, stamp
from tests.unit.controller.planning.launches import Launches, web


def daemonset(**template: Any) -> Json:
    metadata = {"name": "agent", "namespace": "default", "uid": "uid-agent", "creationTimestamp": stamp()}
    return {"metadata": metadata, "spec": {"template": web("agent", **template)}}


def overlay(**labels_of_nodes: str) -> Json:
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels_of_nodes.items()]
    return {
        "metadata": {"name": "discount", "uid": "uid-discount"},
        "spec": {"price": "1", "requirements": requirements},
    }


def pool_of_another_team() -> Json:
    found = pool("second")
    found["spec"]["template"]["metadata"] = {"labels": {"team": "other"}}
    found["spec"]["template"]["spec"]["taints"] = [{"key": "team", "value": "other", "effect": "NoSchedule"}]
    return found


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("nodepools", pool(limits={"cpu": "1000"})),
        ("nodepools", pool("second")),
        ("ec2nodeclasses", node_class(generation=2)),
        ("daemonsets", daemonset()),
        ("nodeoverlays", overlay()),
    ],
)
async def test_relevant_change_ends_the_backoff(launches: Launches, kind: str, changed: Json) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        await launches.launch()
    assert await launches.plan() == []
    launches.harness.apply_objects(kind, changed)
    assert len(await launches.launch()) == 1
    assert len(await launches.launch()) == 1, "the count begins again, without the nodes counted before"


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("nodepools", pool_of_another_team()),
        ("ec2nodeclasses", node_class("second")),
        ("daemonsets", daemonset(nodeSelector={"team": "other"})),
        ("nodeoverlays", overlay(**{labels.NODEPOOL: "second"})),
    ],
)
async def test_changes_that_do_not_concern_the_pod_keep_the_backoff(
    launches: Launches, kind: str, changed: Json
) -> None:
    for _ in range(UNUSED_NODE_LIMIT):
        await launches.launch()
        launches.harness.apply_objects(kind, changed)
    assert await launches.plan() == []
