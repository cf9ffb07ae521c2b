"""Which NodeOverlays the API server takes, field by field, and what it says to the others."""

from typing import Any

import pytest

from tests.adapters.apis.server import ApiServerClient, assert_row
from tests.support.apis.crd_rows import ABSENT, NODEOVERLAY, Row, accepts, rejects


def demand(key: str = "node.kubernetes.io/instance-type", operator: str = "In", **fields: Any) -> list[dict[str, Any]]:
    return [{"key": key, "operator": operator} | fields]


REQUIREMENTS = (
    accepts("the smallest overlay"),
    rejects("an overlay without spec", "spec: Required", spec=ABSENT),
    rejects("a spec without requirements", "spec.requirements: Required", requirements=ABSENT),
    rejects("an unknown field", "unknown field", colour="blue"),
    accepts("a type", requirements=demand(values=["m5.large"])),
    accepts("every type but one", requirements=demand(operator="NotIn", values=["m5.large"])),
    accepts("a label that is there", requirements=demand(operator="Exists")),
    accepts("a label that is not there", requirements=demand(operator="DoesNotExist")),
    accepts("bounds", requirements=demand("karpenter.k8s.aws/instance-cpu", "Gte", values=["4"])),
    accepts("a label of one's own", requirements=demand("example.com/team", values=["a"])),
    accepts("the pool", requirements=demand("karpenter.sh/nodepool", values=["default"])),
    accepts("the capacity type", requirements=demand("karpenter.sh/capacity-type", values=["spot"])),
    rejects(
        "another label of karpenter.sh",
        "write karpenter.sh/capacity-type",
        requirements=demand("karpenter.sh/x", "Exists"),
    ),
    rejects("the hostname", "leave it out, and choose by", requirements=demand("kubernetes.io/hostname", "Exists")),
    rejects("a key that is none", "should match", requirements=demand("a b", "Exists")),
    rejects("a key of 317", "316", requirements=demand("a" * 317, "Exists")),
    rejects("a key that is missing", "key: Required", requirements=[{"operator": "Exists"}]),
    rejects("an operator that is missing", "operator: Required", requirements=[{"key": "a"}]),
    rejects("an unknown operator", "Unsupported value", requirements=demand(operator="Like", values=["m5"])),
    rejects("In without values", "operators In and NotIn need at least one", requirements=demand()),
    rejects(
        "NotIn with no value",
        "operators In and NotIn need at least one",
        requirements=demand(operator="NotIn", values=[]),
    ),
    rejects("Gt with words", "conversion error", requirements=demand(operator="Gt", values=["many"])),
    rejects("Gt with a negative number", "one whole number", requirements=demand(operator="Gt", values=["-1"])),
    rejects("Lt with two numbers", "one whole number", requirements=demand(operator="Lt", values=["1", "2"])),
    accepts("100 requirements", requirements=demand(operator="Exists") * 100),
    rejects("101 requirements", "at most 100", requirements=demand(operator="Exists") * 101),
)
PRICES = (
    accepts("a price", price="0.25"),
    accepts("a price without cents", price="3"),
    rejects("a price below nothing", "should match", price="-1"),
    rejects("a price in words", "should match", price="$3"),
    *(
        accepts(f"the adjustment {one}", priceAdjustment=one)
        for one in ("+0.5", "-.1", "+10%", "+200%", "-25%", "-99.5%", "-100%")
    ),
    *(
        rejects(f"the adjustment {one}", "should match", priceAdjustment=one)
        for one in ("0.5", "10%", "-101%", "+-1", "free")
    ),
    rejects("a price that is set and adjusted", "remove 'price' or 'priceAdjustment'", price="1", priceAdjustment="+1"),
)
CAPACITY = (
    accepts("extended resources", capacity={"example.com/fuse": "2", "hugepages-2Mi": "1Gi", "nvidia.com/gpu": 4}),
    *(
        rejects(f"an amount of {one}", "extended resources alone", capacity={one: "1"})
        for one in ("cpu", "memory", "pods")
    ),
    rejects("an amount of ephemeral-storage", "extended resources alone", capacity={"ephemeral-storage": "1Gi"}),
    rejects("an amount that is none", "should match", capacity={"example.com/fuse": "many"}),
)
WEIGHTS = (
    accepts("a weight", weight=1),
    accepts("the largest weight", weight=10000),
    rejects("a weight of nothing", "greater than or equal to 1", weight=0),
    rejects("a weight of more", "less than or equal to 10000", weight=10001),
)
ROWS = (*REQUIREMENTS, *PRICES, *CAPACITY, *WEIGHTS)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_nodeoverlays(row: Row, server: ApiServerClient) -> None:
    await assert_row(server, NODEOVERLAY, row)
