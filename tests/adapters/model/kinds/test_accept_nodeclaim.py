"""Which NodeClaims the API server takes, field by field; what they share with NodePools is tested less here."""

import pytest

from tests.adapters.model.kinds.server import Server, assert_row
from tests.support.model.kinds.table import ABSENT, NODECLAIM, Row, no, ok

TEAM = [{"key": "team", "value": "a", "effect": "NoSchedule", "timeAdded": "2025-01-01T00:00:00Z"}]

ROWS = (
    ok("the smallest claim"),
    no("a claim without spec", "spec: Required", spec=ABSENT),
    no("an unknown field", "unknown field", replicas=1),
    ok("taints", taints=TEAM, startupTaints=TEAM),
    no("a taint without key", "key: Required", taints=[{"effect": "NoSchedule"}]),
    no("a startup taint with another effect", "Unsupported value", startupTaints=[{"key": "a", "effect": "x"}]),
    no("no requirements at all", "requirements: Required", requirements=ABSENT),
    ok("100 requirements", requirements=[{"key": "a", "operator": "Exists"}] * 100),
    no("101 requirements", "at most 100", requirements=[{"key": "a", "operator": "Exists"}] * 101),
    ok(
        "its own pool as requirement",
        requirements=[{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}],
    ),
    no(
        "the hostname as requirement",
        "leave it out",
        requirements=[{"key": "kubernetes.io/hostname", "operator": "Exists"}],
    ),
    no(
        "a reserved domain as requirement",
        "another domain",
        requirements=[{"key": "karpenter.sh/registered", "operator": "Exists"}],
    ),
    no(
        "an unknown key of karpenter.k8s.aws",
        "another domain",
        requirements=[{"key": "karpenter.k8s.aws/custom", "operator": "Exists"}],
    ),
    ok(
        "a known key of karpenter.k8s.aws",
        requirements=[{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Exists"}],
    ),
    no("In without values", "write operator: Exists", requirements=[{"key": "a", "operator": "In"}]),
    *(
        row
        for operator in ("Gt", "Lt", "Gte", "Lte")
        for row in (
            ok(f"{operator} 1", requirements=[{"key": "a", "operator": operator, "values": ["1"]}]),
            no(
                f"{operator} -1",
                "write exactly one",
                requirements=[{"key": "a", "operator": operator, "values": ["-1"]}],
            ),
        )
    ),
    no("another operator", "Unsupported value", requirements=[{"key": "a", "operator": "Is"}]),
    ok("minValues", requirements=[{"key": "a", "operator": "In", "values": ["x", "y"], "minValues": 2}]),
    no(
        "minValues above the values",
        "lower minValues",
        requirements=[{"key": "a", "operator": "In", "values": ["x"], "minValues": 2}],
    ),
    no("minValues 51", "less than or equal to 50", requirements=[{"key": "a", "operator": "Exists", "minValues": 51}]),
    ok("requests", resources={"requests": {"cpu": "1500m", "memory": "1Gi", "pods": 5, "example.com/gpu": "1"}}),
    ok("empty resources", resources={}),
    no("requests that are no quantities", "should match", resources={"requests": {"cpu": "much"}}),
    no("limits in resources", "unknown field", resources={"limits": {"cpu": "1"}}),
    no("no nodeClassRef", "nodeClassRef: Required", nodeClassRef=ABSENT),
    *(
        row
        for name in ("group", "kind", "name")
        for row in (
            no(f"no {name}", f"{name}: Required", **{f"nodeClassRef__{name}": ABSENT}),
            no(f"an empty {name}", f"{name} may not be empty: write", **{f"nodeClassRef__{name}": ""}),
        )
    ),
    no("a group with version", "should match", nodeClassRef__group="karpenter.k8s.aws/v1"),
    *(ok(f"expireAfter {text}", expireAfter=text) for text in ("0s", "30s", "720h", "1h30m", "Never")),
    *(no(f"expireAfter {text!r}", "should match", expireAfter=text) for text in ("-1s", "1d", "never", "")),
    *(ok(f"terminationGracePeriod {text}", terminationGracePeriod=text) for text in ("0s", "24h", "1h30m")),
    *(
        no(f"terminationGracePeriod {text!r}", "should match", terminationGracePeriod=text)
        for text in ("Never", "-30s")
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_the_api_server(row: Row, server: Server) -> None:
    await assert_row(server, NODECLAIM, row)
