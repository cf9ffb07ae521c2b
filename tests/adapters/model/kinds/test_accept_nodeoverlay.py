"""Which NodeOverlays the API server takes, field by field, and what it says to the others."""

from typing import Any

import pytest

from tests.adapters.model.kinds.server import Server, assert_row
from tests.support.model.kinds.table import ABSENT, NODEOVERLAY, Row, no, ok


def demand(key: str = "node.kubernetes.io/instance-type", operator: str = "In", **fields: Any) -> list[dict[str, Any]]:
    return [{"key": key, "operator": operator} | fields]


REQUIREMENTS = (
    ok("the smallest overlay"),
    no("an overlay without spec", "spec: Required", spec=ABSENT),
    no("a spec without requirements", "spec.requirements: Required", requirements=ABSENT),
    no("an unknown field", "unknown field", colour="blue"),
    ok("a type", requirements=demand(values=["m5.large"])),
    ok("every type but one", requirements=demand(operator="NotIn", values=["m5.large"])),
    ok("a label that is there", requirements=demand(operator="Exists")),
    ok("a label that is not there", requirements=demand(operator="DoesNotExist")),
    ok("bounds", requirements=demand("karpenter.k8s.aws/instance-cpu", "Gte", values=["4"])),
    ok("a label of one's own", requirements=demand("example.com/team", values=["a"])),
    ok("the pool", requirements=demand("karpenter.sh/nodepool", values=["default"])),
    ok("the capacity type", requirements=demand("karpenter.sh/capacity-type", values=["spot"])),
    no(
        "another label of karpenter.sh",
        "write karpenter.sh/capacity-type",
        requirements=demand("karpenter.sh/x", "Exists"),
    ),
    no("the hostname", "leave it out, and choose by", requirements=demand("kubernetes.io/hostname", "Exists")),
    no("a key that is none", "should match", requirements=demand("a b", "Exists")),
    no("a key of 317", "316", requirements=demand("a" * 317, "Exists")),
    no("a key that is missing", "key: Required", requirements=[{"operator": "Exists"}]),
    no("an operator that is missing", "operator: Required", requirements=[{"key": "a"}]),
    no("an unknown operator", "Unsupported value", requirements=demand(operator="Like", values=["m5"])),
    no("In without values", "operators In and NotIn need at least one", requirements=demand()),
    no(
        "NotIn with no value",
        "operators In and NotIn need at least one",
        requirements=demand(operator="NotIn", values=[]),
    ),
    no("Gt with words", "conversion error", requirements=demand(operator="Gt", values=["many"])),
    no("Gt with a negative number", "one whole number", requirements=demand(operator="Gt", values=["-1"])),
    no("Lt with two numbers", "one whole number", requirements=demand(operator="Lt", values=["1", "2"])),
    ok("100 requirements", requirements=demand(operator="Exists") * 100),
    no("101 requirements", "at most 100", requirements=demand(operator="Exists") * 101),
)
PRICES = (
    ok("a price", price="0.25"),
    ok("a price without cents", price="3"),
    no("a price below nothing", "should match", price="-1"),
    no("a price in words", "should match", price="$3"),
    *(
        ok(f"the adjustment {one}", priceAdjustment=one)
        for one in ("+0.5", "-.1", "+10%", "+200%", "-25%", "-99.5%", "-100%")
    ),
    *(
        no(f"the adjustment {one}", "should match", priceAdjustment=one)
        for one in ("0.5", "10%", "-101%", "+-1", "free")
    ),
    no("a price that is set and adjusted", "remove 'price' or 'priceAdjustment'", price="1", priceAdjustment="+1"),
)
CAPACITY = (
    ok("extended resources", capacity={"example.com/fuse": "2", "hugepages-2Mi": "1Gi", "nvidia.com/gpu": 4}),
    *(no(f"an amount of {one}", "extended resources alone", capacity={one: "1"}) for one in ("cpu", "memory", "pods")),
    no("an amount of ephemeral-storage", "extended resources alone", capacity={"ephemeral-storage": "1Gi"}),
    no("an amount that is none", "should match", capacity={"example.com/fuse": "many"}),
)
WEIGHTS = (
    ok("a weight", weight=1),
    ok("the largest weight", weight=10000),
    no("a weight of nothing", "greater than or equal to 1", weight=0),
    no("a weight of more", "less than or equal to 10000", weight=10001),
)
ROWS = (*REQUIREMENTS, *PRICES, *CAPACITY, *WEIGHTS)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_nodeoverlays(row: Row, server: Server) -> None:
    await assert_row(server, NODEOVERLAY, row)
