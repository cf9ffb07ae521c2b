"""Which CapacityBuffers the API server takes, field by field, and what it says to the others."""

from typing import Any

import pytest

from tests.adapters.apis.server import ApiServerClient, assert_row
from tests.support.apis.crd_rows import ABSENT, CAPACITYBUFFER, Row, accepts, rejects

DEPLOYMENT = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}


def scalable_ref_spec(scalable: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"podTemplateRef": ABSENT, "replicas": ABSENT, "scalableRef": scalable} | fields


ROWS = (
    accepts("the smallest buffer"),
    rejects("a buffer without spec", "spec: Required", spec=ABSENT),
    accepts("a spec that says nothing", podTemplateRef=ABSENT, replicas=ABSENT),
    rejects("an unknown field", "unknown field", colour="blue"),
    accepts("limits alone", replicas=ABSENT, limits={"cpu": "5", "memory": "4Gi"}),
    rejects("a template and no number", "add 'replicas' or 'limits'", replicas=ABSENT),
    rejects("a template without a name", "name: Required", podTemplateRef={}),
    rejects("a template with an empty name", "at least 1 char", podTemplateRef={"name": ""}),
    rejects("no replicas at all and less", "greater than or equal to 0", replicas=-1),
    accepts("no replicas", replicas=0),
    accepts("a strategy of somebody else", provisioningStrategy="buffer.gke.io/standby-capacity"),
    accepts("a workload", **scalable_ref_spec(DEPLOYMENT)),
    accepts("a share of a workload", **scalable_ref_spec(DEPLOYMENT, percentage=20)),
    accepts("a workload without a group", **scalable_ref_spec({"kind": "StatefulSet", "name": "db"}, replicas=2)),
    rejects("a workload without a name", "name: Required", **scalable_ref_spec({"kind": "Deployment"})),
    rejects("a workload without a kind", "kind: Required", **scalable_ref_spec({"name": "web"})),
    rejects("a share below nothing", "greater than or equal to 0", **scalable_ref_spec(DEPLOYMENT, percentage=-1)),
    rejects("both", "remove 'podTemplateRef' or 'scalableRef'", scalableRef=DEPLOYMENT),
    rejects("limits that are none", "should match", limits={"cpu": "many"}),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_capacitybuffers(row: Row, server: ApiServerClient) -> None:
    await assert_row(server, CAPACITYBUFFER, row)


async def test_the_strategy_has_a_default(server: ApiServerClient) -> None:
    found = await assert_row(server, CAPACITYBUFFER, accepts("bare"))
    assert found["spec"]["provisioningStrategy"] == "buffer.x-k8s.io/active-capacity"


async def test_the_version_of_karpenters_first_manual_is_taken_too(server: ApiServerClient) -> None:
    older = CAPACITYBUFFER | {"apiVersion": "autoscaling.x-k8s.io/v1alpha1"}
    status, response = await server.create(
        older, path="/apis/autoscaling.x-k8s.io/v1alpha1/namespaces/default/capacitybuffers"
    )
    assert status == 201, response
