"""Which CapacityBuffers the API server takes, field by field, and what it says to the others."""

from typing import Any

import pytest

from tests.adapters.model.kinds.server import Server, assert_row
from tests.support.model.kinds.table import ABSENT, CAPACITYBUFFER, Row, no, ok

DEPLOYMENT = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}


def like(scalable: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"podTemplateRef": ABSENT, "replicas": ABSENT, "scalableRef": scalable} | fields


ROWS = (
    ok("the smallest buffer"),
    no("a buffer without spec", "spec: Required", spec=ABSENT),
    ok("a spec that says nothing", podTemplateRef=ABSENT, replicas=ABSENT),
    no("an unknown field", "unknown field", colour="blue"),
    ok("limits alone", replicas=ABSENT, limits={"cpu": "5", "memory": "4Gi"}),
    no("a template and no number", "add 'replicas' or 'limits'", replicas=ABSENT),
    no("a template without a name", "name: Required", podTemplateRef={}),
    no("a template with an empty name", "at least 1 char", podTemplateRef={"name": ""}),
    no("no replicas at all and less", "greater than or equal to 0", replicas=-1),
    ok("no replicas", replicas=0),
    ok("a strategy of somebody else", provisioningStrategy="buffer.gke.io/standby-capacity"),
    ok("a workload", **like(DEPLOYMENT)),
    ok("a share of a workload", **like(DEPLOYMENT, percentage=20)),
    ok("a workload without a group", **like({"kind": "StatefulSet", "name": "db"}, replicas=2)),
    no("a workload without a name", "name: Required", **like({"kind": "Deployment"})),
    no("a workload without a kind", "kind: Required", **like({"name": "web"})),
    no("a share below nothing", "greater than or equal to 0", **like(DEPLOYMENT, percentage=-1)),
    no("both", "remove 'podTemplateRef' or 'scalableRef'", scalableRef=DEPLOYMENT),
    no("limits that are none", "should match", limits={"cpu": "many"}),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_capacitybuffers(row: Row, server: Server) -> None:
    await assert_row(server, CAPACITYBUFFER, row)


async def test_the_strategy_has_a_default(server: Server) -> None:
    found = await assert_row(server, CAPACITYBUFFER, ok("bare"))
    assert found["spec"]["provisioningStrategy"] == "buffer.x-k8s.io/active-capacity"


async def test_the_version_of_karpenters_first_manual_is_taken_too(server: Server) -> None:
    older = CAPACITYBUFFER | {"apiVersion": "autoscaling.x-k8s.io/v1alpha1"}
    status, answer = await server.create(
        older, path="/apis/autoscaling.x-k8s.io/v1alpha1/namespaces/default/capacitybuffers"
    )
    assert status == 201, answer
