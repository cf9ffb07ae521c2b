"""How the API server stores objects: defaults, immutable fields, status, scale subresource and printer columns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure.apis.capacitybuffer import CapacityBuffer
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodeoverlay import NodeOverlay
from tenure.apis.nodepool import NodePool
from tests.adapters.apis.server import ApiServerClient, assert_row
from tests.support.apis.crd_rows import (
    CAPACITYBUFFER,
    NODECLAIM,
    NODECLASS,
    NODEOVERLAY,
    NODEPOOL,
    Object,
    Row,
    accepts,
    apply_patch,
    load_table,
    rows_of,
)

ROWS = Path(__file__).parent / "rows"
CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2025-01-01T00:00:00Z",
}


# A class of another provider, so that a running controller ignores these objects.
FOREIGN = {"group": "example.com", "kind": "Foreign", "name": "other"}
FOREIGN_POOL = apply_patch(NODEPOOL, {"template__spec__nodeClassRef": FOREIGN})
FOREIGN_CLAIM = apply_patch(NODECLAIM, {"nodeClassRef": FOREIGN})
BASES = {
    "NodePool": FOREIGN_POOL,
    "static NodePool": apply_patch(FOREIGN_POOL, {"replicas": 1}),
    "NodeClaim": FOREIGN_CLAIM,
    "EC2NodeClass": NODECLASS,
    "CapacityBuffer": CAPACITYBUFFER,
}
CHANGES = [
    pytest.param(BASES[name], row, id=f"{name} {row}")
    for name, table in load_table(ROWS / "changes.yaml").items()
    for row in rows_of(table)
]
STATUSES = load_table(ROWS / "statuses.yaml")


@asynccontextmanager
async def stored_object(server: ApiServerClient, manifest: Object, name: str) -> AsyncIterator[Object]:
    """Create the object under this name, and delete it at the end."""
    status, found = await server.create(manifest | {"metadata": {"name": name}}, persist=True)
    assert status == 201, found
    try:
        yield found
    finally:
        await server.delete(found)


async def test_nodepool_gets_karpenters_defaults(server: ApiServerClient) -> None:
    pool = NodePool.from_object(await assert_row(server, NODEPOOL, accepts("bare")))
    assert pool.to_object()["spec"]["disruption"] == {
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "10%"}],
    }
    assert pool.to_object()["spec"]["template"]["spec"]["expireAfter"] == "720h"


async def test_budget_without_nodes_defaults_to_ten_percent(server: ApiServerClient) -> None:
    row = accepts("empty budget", disruption={"consolidateAfter": "Never", "budgets": [{}]})
    pool = NodePool.from_object(await assert_row(server, NODEPOOL, row))
    assert pool.spec.disruption.budgets[0].nodes == "10%"
    assert pool.spec.disruption.consolidate_after == "Never"


async def test_model_defaults_match_api_server_defaults(server: ApiServerClient) -> None:
    pairs: list[tuple[Any, Object]] = [
        (NodePool, NODEPOOL),
        (NodeClaim, NODECLAIM),
        (EC2NodeClass, NODECLASS),
        (NodeOverlay, NODEOVERLAY),
        (CapacityBuffer, CAPACITYBUFFER),
    ]
    for model, base in pairs:
        response = await assert_row(server, base, accepts("bare"))
        filled, bare = model.from_object(response).spec, model.from_object(base).spec
        assert _values(filled) == _values(bare)


def _values(part: Any) -> Any:
    """The values of all fields of a model, including defaults."""
    fields = getattr(type(part), "model_fields", None)
    if fields is not None:
        return {name: _values(getattr(part, name)) for name in fields}
    return tuple(map(_values, part)) if isinstance(part, tuple) else part


async def test_nodeclass_gets_metadata_options_defaults(server: ApiServerClient) -> None:
    expected = {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }
    bare = await assert_row(server, NODECLASS, accepts("bare"))
    partly = await assert_row(server, NODECLASS, accepts("partly", metadataOptions={"httpTokens": "required"}))
    assert bare["spec"]["metadataOptions"] == partly["spec"]["metadataOptions"] == expected


@pytest.mark.parametrize(("base", "row"), CHANGES)
async def test_update_is_accepted_or_rejected(base: Object, row: Row, server: ApiServerClient) -> None:
    async with stored_object(server, base, "changing") as found:
        status, response = await server.replace(apply_patch(found, row.patch))
    assert status == (422 if row.rejection else 200), response
    assert row.rejection in response.get("message", "")


@pytest.mark.parametrize(
    ("condition", "base", "rejection"),
    (
        (CONDITION, FOREIGN_POOL, ""),
        (CONDITION, FOREIGN_CLAIM, ""),
        (CONDITION, NODECLASS, ""),
        (CONDITION, NODEOVERLAY, ""),
        (CONDITION, CAPACITYBUFFER, ""),
        (CONDITION | {"reason": ""}, FOREIGN_CLAIM, ""),
        (CONDITION | {"reason": ""}, FOREIGN_POOL, "reason"),
        (CONDITION | {"reason": ""}, NODECLASS, "reason"),
        (CONDITION | {"reason": "two words"}, FOREIGN_CLAIM, "should match"),
        (CONDITION | {"status": "Maybe"}, FOREIGN_CLAIM, "Unsupported value"),
        ({k: v for k, v in CONDITION.items() if k not in ("reason", "message")}, FOREIGN_CLAIM, ""),
        ({k: v for k, v in CONDITION.items() if k != "message"}, FOREIGN_POOL, "message: Required"),
        ({k: v for k, v in CONDITION.items() if k != "type"}, FOREIGN_CLAIM, "type: Required"),
        (
            {k: v for k, v in CONDITION.items() if k != "lastTransitionTime"},
            FOREIGN_CLAIM,
            "lastTransitionTime: Required",
        ),
    ),
)
async def test_status_condition_is_accepted_or_rejected(
    condition: Object, base: Object, rejection: str, server: ApiServerClient
) -> None:
    async with stored_object(server, base, "condition") as found:
        status, response = await server.replace(found | {"status": {"conditions": [condition]}}, "/status")
    assert status == (422 if rejection else 200), response
    assert rejection in response.get("message", "")


@pytest.mark.parametrize("kind", STATUSES)
async def test_every_status_field_is_stored(kind: str, server: ApiServerClient) -> None:
    status = STATUSES[kind]
    async with stored_object(server, BASES[kind], "full-status") as found:
        code, response = await server.replace(found | {"status": status}, "/status")
    assert code == 200, response
    assert response["status"] == status


async def test_capacity_reservation_status_has_defaults(server: ApiServerClient) -> None:
    reservation = {
        "availabilityZone": "us-west-2a",
        "id": "cr-1",
        "instanceMatchCriteria": "open",
        "instanceType": "m5.large",
        "ownerID": "012345678901",
    }
    async with stored_object(server, NODECLASS, "reservation") as found:
        _, response = await server.replace(found | {"status": {"capacityReservations": [reservation]}}, "/status")
    assert response["status"]["capacityReservations"] == [
        reservation | {"reservationType": "default", "state": "active"}
    ]


async def test_static_nodepool_has_scale_subresource(server: ApiServerClient) -> None:
    async with stored_object(server, apply_patch(FOREIGN_POOL, {"replicas": 2}), "scale") as pool:
        status, scale = await server.read(pool, "/scale")
    assert status == 200
    assert scale["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("base", "default_columns", "wide"),
    (
        (FOREIGN_POOL, ["Name", "NodeClass", "Nodes", "Ready", "Age"], ["Weight", "CPU", "Memory"]),
        (
            FOREIGN_CLAIM,
            ["Name", "Type", "Capacity", "Zone", "Node", "Ready", "Age"],
            ["ImageID", "ID", "NodePool", "NodeClass", "Drifted"],
        ),
        (NODECLASS, ["Name", "Ready", "Age"], ["Role"]),
        (NODEOVERLAY, ["Name", "Ready", "Age"], ["Weight"]),
        (
            CAPACITYBUFFER,
            [
                "Name",
                "Strategy",
                "PodTemplate",
                "Replicas",
                "ConditionsType",
                "ConditionsStatus",
                "ConditionsReason",
                "Age",
            ],
            [],
        ),
    ),
    ids=("NodePool", "NodeClaim", "EC2NodeClass", "NodeOverlay", "CapacityBuffer"),
)
async def test_printer_columns(
    base: Object, default_columns: list[str], wide: list[str], server: ApiServerClient
) -> None:
    columns = (await server.get_table(base["kind"]))["columnDefinitions"]
    assert [column["name"] for column in columns if not column["priority"]] == default_columns
    assert [column["name"] for column in columns if column["priority"]] == wide


async def test_short_names_and_categories(server: ApiServerClient) -> None:
    found = {
        one["kind"]: one
        for one in [*await server.resources("karpenter.sh"), *await server.resources("karpenter.k8s.aws")]
        if "/" not in one["name"]
    }
    assert {kind: one["categories"] for kind, one in found.items()} == {kind: ["karpenter"] for kind in found}
    assert found["EC2NodeClass"]["shortNames"] == ["ec2nc", "ec2ncs"]
    assert not any(one["namespaced"] for one in found.values())
    assert {"NodePool", "NodeClaim", "EC2NodeClass"} <= set(found)
