"""Which NodeClaims the API server takes, field by field; what they share with NodePools is tested less here."""

import pytest

from tests.adapters.apis.server import ApiServerClient, assert_row
from tests.support.apis.crd_rows import ABSENT, NODECLAIM, Row, accepts, rejects

TEAM = [{"key": "team", "value": "a", "effect": "NoSchedule", "timeAdded": "2025-01-01T00:00:00Z"}]

ROWS = (
    accepts("the smallest claim"),
    rejects("a claim without spec", "spec: Required", spec=ABSENT),
    rejects("an unknown field", "unknown field", replicas=1),
    accepts("taints", taints=TEAM, startupTaints=TEAM),
    rejects("a taint without key", "key: Required", taints=[{"effect": "NoSchedule"}]),
    rejects("a startup taint with another effect", "Unsupported value", startupTaints=[{"key": "a", "effect": "x"}]),
    rejects("no requirements at all", "requirements: Required", requirements=ABSENT),
    accepts("100 requirements", requirements=[{"key": "a", "operator": "Exists"}] * 100),
    rejects("101 requirements", "at most 100", requirements=[{"key": "a", "operator": "Exists"}] * 101),
    accepts(
        "its own pool as requirement",
        requirements=[{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}],
    ),
    rejects(
        "the hostname as requirement",
        "leave it out",
        requirements=[{"key": "kubernetes.io/hostname", "operator": "Exists"}],
    ),
    rejects(
        "a reserved domain as requirement",
        "another domain",
        requirements=[{"key": "karpenter.sh/registered", "operator": "Exists"}],
    ),
    rejects(
        "an unknown key of karpenter.k8s.aws",
        "another domain",
        requirements=[{"key": "karpenter.k8s.aws/custom", "operator": "Exists"}],
    ),
    accepts(
        "a known key of karpenter.k8s.aws",
        requirements=[{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Exists"}],
    ),
    rejects("In without values", "write operator: Exists", requirements=[{"key": "a", "operator": "In"}]),
    *(
        row
        for operator in ("Gt", "Lt", "Gte", "Lte")
        for row in (
            accepts(f"{operator} 1", requirements=[{"key": "a", "operator": operator, "values": ["1"]}]),
            rejects(
                f"{operator} -1",
                "write exactly one",
                requirements=[{"key": "a", "operator": operator, "values": ["-1"]}],
            ),
        )
    ),
    rejects("another operator", "Unsupported value", requirements=[{"key": "a", "operator": "Is"}]),
    accepts("minValues", requirements=[{"key": "a", "operator": "In", "values": ["x", "y"], "minValues": 2}]),
    rejects(
        "minValues above the values",
        "lower minValues",
        requirements=[{"key": "a", "operator": "In", "values": ["x"], "minValues": 2}],
    ),
    rejects(
        "minValues 51", "less than or equal to 50", requirements=[{"key": "a", "operator": "Exists", "minValues": 51}]
    ),
    accepts("requests", resources={"requests": {"cpu": "1500m", "memory": "1Gi", "pods": 5, "example.com/gpu": "1"}}),
    accepts("empty resources", resources={}),
    rejects("requests that are no quantities", "should match", resources={"requests": {"cpu": "much"}}),
    rejects("limits in resources", "unknown field", resources={"limits": {"cpu": "1"}}),
    rejects("no nodeClassRef", "nodeClassRef: Required", nodeClassRef=ABSENT),
    *(
        row
        for name in ("group", "kind", "name")
        for row in (
            rejects(f"no {name}", f"{name}: Required", **{f"nodeClassRef__{name}": ABSENT}),
            rejects(f"an empty {name}", f"{name} may not be empty: write", **{f"nodeClassRef__{name}": ""}),
        )
    ),
    rejects("a group with version", "should match", nodeClassRef__group="karpenter.k8s.aws/v1"),
    *(accepts(f"expireAfter {text}", expireAfter=text) for text in ("0s", "30s", "720h", "1h30m", "Never")),
    *(rejects(f"expireAfter {text!r}", "should match", expireAfter=text) for text in ("-1s", "1d", "never", "")),
    *(accepts(f"terminationGracePeriod {text}", terminationGracePeriod=text) for text in ("0s", "24h", "1h30m")),
    *(
        rejects(f"terminationGracePeriod {text!r}", "should match", terminationGracePeriod=text)
        for text in ("Never", "-30s")
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_the_api_server(row: Row, server: ApiServerClient) -> None:
    await assert_row(server, NODECLAIM, row)
