"""Which NodePools the API server takes, field by field, and what it says to the others."""

from typing import Any

import pytest

from tests.adapters.apis.server import ApiServerClient, assert_row
from tests.support.apis.crd_rows import ABSENT, NODEPOOL, Row, accepts, rejects

CLASS_REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def taint(**fields: Any) -> list[dict[str, Any]]:
    return [{"key": "team", "effect": "NoSchedule"} | fields]


def demand(key: str = "team", operator: str = "Exists", **fields: Any) -> list[dict[str, Any]]:
    return [{"key": key, "operator": operator} | fields]


def budget(**fields: Any) -> dict[str, Any]:
    return {"consolidateAfter": "30s", "budgets": [{"nodes": "1"} | fields]}


TEMPLATE = (
    accepts("the smallest pool"),
    rejects("a pool without spec", "spec: Required", spec=ABSENT),
    rejects("a spec without template", "spec.template: Required", template=ABSENT),
    rejects("a template without spec", "spec.template.spec: Required", template={}),
    rejects("an unknown field", "unknown field", colour="blue"),
    accepts("template labels", template__metadata={"labels": {"team": "a", "example.com/b": "c"}}),
    accepts("an empty label value", template__metadata={"labels": {"team": ""}}),
    accepts("a capacity-type label", template__metadata={"labels": {"karpenter.sh/capacity-type": "spot"}}),
    accepts(
        "labels of Kubernetes", template__metadata={"labels": {"kubernetes.io/x": "y", "node.kubernetes.io/z": "y"}}
    ),
    accepts("labels of kOps", template__metadata={"labels": {"kops.k8s.io/instancegroup": "a"}}),
    accepts("restricted-node labels", template__metadata={"labels": {"node-restriction.kubernetes.io/x": "y"}}),
    accepts("well-known AWS labels", template__metadata={"labels": {"karpenter.k8s.aws/instance-family": "m5"}}),
    accepts("100 labels", template__metadata={"labels": {f"l{i}": "x" for i in range(100)}}),
    rejects("101 labels", "at most 100", template__metadata={"labels": {f"l{i}": "x" for i in range(101)}}),
    accepts("a label value of 63", template__metadata={"labels": {"team": "a" * 63}}),
    rejects("a label value of 64", "63", template__metadata={"labels": {"team": "a" * 64}}),
    rejects("a label value with spaces", "should match", template__metadata={"labels": {"team": "a b"}}),
    rejects(
        "a label of karpenter.sh",
        "give your own label another domain",
        template__metadata={"labels": {"karpenter.sh/custom": "x"}},
    ),
    rejects(
        "a label of a subdomain of karpenter.sh",
        "give your own label another domain",
        template__metadata={"labels": {"sub.karpenter.sh/custom": "x"}},
    ),
    rejects(
        "a label of karpenter.k8s.aws that is not known",
        "give your own label another domain",
        template__metadata={"labels": {"karpenter.k8s.aws/custom": "x"}},
    ),
    rejects(
        "the pool's own label",
        "always this pool's own name: leave it out",
        template__metadata={"labels": {"karpenter.sh/nodepool": "x"}},
    ),
    rejects(
        "the hostname label",
        "kubernetes.io/hostname is set when the node starts",
        template__metadata={"labels": {"kubernetes.io/hostname": "x"}},
    ),
    accepts("annotations of any kind", template__metadata={"annotations": {"karpenter.sh/x": "a b c", "y": ""}}),
    rejects("an annotation that is no text", "must be of type string", template__metadata={"annotations": {"a": 1}}),
)

TAINTS = tuple(
    row
    for where in ("template__spec__taints", "template__spec__startupTaints")
    for row in (
        accepts(f"{where}: none", **{where: []}),
        accepts(f"{where}: a key alone", **{where: taint()}),
        accepts(f"{where}: a value", **{where: taint(value="a")}),
        accepts(f"{where}: a value with a prefix", **{where: taint(value="example.com/A_b.c")}),
        accepts(f"{where}: a key with a domain", **{where: taint(key="example.com/Team")}),
        accepts(f"{where}: PreferNoSchedule", **{where: taint(effect="PreferNoSchedule")}),
        accepts(f"{where}: NoExecute", **{where: taint(effect="NoExecute")}),
        accepts(f"{where}: a time", **{where: taint(timeAdded="2025-01-01T00:00:00Z")}),
        accepts(f"{where}: the same key twice", **{where: taint() + taint(effect="NoExecute")}),
        rejects(f"{where}: no key", "key: Required", **{where: [{"effect": "NoSchedule"}]}),
        rejects(f"{where}: an empty key", "at least 1 char", **{where: taint(key="")}),
        rejects(f"{where}: no effect", "effect: Required", **{where: [{"key": "a"}]}),
        rejects(f"{where}: another effect", "Unsupported value", **{where: taint(effect="NoAdmit")}),
        rejects(f"{where}: a brace in the key", "should match", **{where: taint(key="test.com.com}")}),
        rejects(f"{where}: a capital in the domain", "should match", **{where: taint(key="Test.com/test")}),
        rejects(f"{where}: two slashes", "should match", **{where: taint(key="test/test/test")}),
        rejects(f"{where}: nothing after the slash", "should match", **{where: taint(key="test/")}),
        rejects(f"{where}: nothing before the slash", "should match", **{where: taint(key="/test")}),
        rejects(f"{where}: question marks as value", "should match", **{where: taint(value="???")}),
        rejects(f"{where}: a written empty value", "should match", **{where: taint(value="")}),
    )
)

KEYS = tuple(
    row
    for where in ("template__spec__requirements",)
    for row in (
        *(
            accepts(f"key {key}", **{where: demand(key)})
            for key in (
                "Test",
                "test.com/Test",
                "test.com.com/test",
                "key-only",
                "karpenter.sh/capacity-type",
                "node.kubernetes.io/instance-type",
                "topology.kubernetes.io/zone",
                "topology.k8s.aws/zone-id",
                "kubernetes.io/arch",
                "beta.kubernetes.io/os",
                "kubernetes.io/custom",
                "k8s.io/custom",
                "subdomain.node.kubernetes.io/custom",
                "karpenter.k8s.aws/ec2nodeclass",
                "karpenter.k8s.aws/instance-cpu",
                "karpenter.k8s.aws/instance-tenancy",
                "karpenter.k8s.aws/capacity-reservation-id",
                "karpenter.k8s.aws/placement-group-partition",
                "karpenter.k8s.aws/nitro-sandbox",
                "a" * 253 + "/" + "b" * 62,
            )
        ),
        *(
            rejects(f"key {key}", "should match", **{where: demand(key)})
            for key in ("test.com.com}", "Test.com/test", "test/test/test", "test/", "/test", "")
        ),
        rejects("a key of 317", "Too long", **{where: demand("a" * 253 + "/" + "b" * 63)}),
        rejects("no key", "key: Required", **{where: [{"operator": "Exists"}]}),
        rejects("key karpenter.sh/nodepool", "leave it out", **{where: demand("karpenter.sh/nodepool")}),
        rejects("key kubernetes.io/hostname", "leave it out", **{where: demand("kubernetes.io/hostname")}),
        rejects("key karpenter.sh/registered", "another domain", **{where: demand("karpenter.sh/registered")}),
        rejects("key in a subdomain", "another domain", **{where: demand("sub.karpenter.sh/x")}),
        rejects("key in a domain that ends alike", "another domain", **{where: demand("mykarpenter.sh/x")}),
        rejects("key karpenter.k8s.aws/custom", "another domain", **{where: demand("karpenter.k8s.aws/custom")}),
    )
)

MANY = [f"t{i}" for i in range(90)]
REQUIREMENTS = tuple(
    row
    for where in ("template__spec__requirements",)
    for row in (
        rejects("no requirements at all", "requirements: Required", **{where: ABSENT}),
        accepts("100 requirements", **{where: demand() * 100}),
        rejects("101 requirements", "at most 100", **{where: demand() * 101}),
        accepts("In", **{where: demand(operator="In", values=["a"])}),
        accepts("In with a value that is no label value", **{where: demand(operator="In", values=["a b/c"])}),
        accepts("In with 90 values", **{where: demand(operator="In", values=MANY)}),
        rejects("In without values", "write operator: Exists", **{where: demand(operator="In")}),
        rejects("In with an empty list", "write operator: Exists", **{where: demand(operator="In", values=[])}),
        accepts("NotIn", **{where: demand(operator="NotIn", values=["a"])}),
        accepts("NotIn without values", **{where: demand(operator="NotIn")}),
        accepts("Exists", **{where: demand()}),
        accepts("Exists with values", **{where: demand(values=["a"])}),
        accepts("DoesNotExist", **{where: demand(operator="DoesNotExist")}),
        rejects("another operator", "Unsupported value", **{where: demand(operator="unknown")}),
        rejects("no operator", "operator: Required", **{where: [{"key": "a"}]}),
        rejects("a value that is no text", "must be of type string", **{where: demand(operator="In", values=[1])}),
        *(
            row
            for operator in ("Gt", "Lt", "Gte", "Lte")
            for row in (
                accepts(f"{operator} 1", **{where: demand(operator=operator, values=["1"])}),
                accepts(f"{operator} 0", **{where: demand(operator=operator, values=["0"])}),
                accepts(f"{operator} +5", **{where: demand(operator=operator, values=["+5"])}),
                rejects(f"{operator} -1", "write exactly one", **{where: demand(operator=operator, values=["-1"])}),
                rejects(f"{operator} a", "write exactly one", **{where: demand(operator=operator, values=["a"])}),
                rejects(f"{operator} 1.5", "write exactly one", **{where: demand(operator=operator, values=["1.5"])}),
                rejects(
                    f"{operator} [1, 2]", "write exactly one", **{where: demand(operator=operator, values=["1", "2"])}
                ),
                rejects(f"{operator} []", "write exactly one", **{where: demand(operator=operator, values=[])}),
                rejects(f"{operator} nothing", "write exactly one", **{where: demand(operator=operator)}),
                rejects(
                    f"{operator} 2^63", "write exactly one", **{where: demand(operator=operator, values=[str(2**63)])}
                ),
            )
        ),
        accepts("minValues 1", **{where: demand(operator="In", values=["a"], minValues=1)}),
        accepts("minValues 50", **{where: demand(minValues=50)}),
        accepts("minValues with Exists and no values", **{where: demand(minValues=2)}),
        accepts("minValues above the values of NotIn", **{where: demand(operator="NotIn", values=["a"], minValues=2)}),
        rejects("minValues 0", "greater than or equal to 1", **{where: demand(minValues=0)}),
        rejects("minValues -1", "greater than or equal to 1", **{where: demand(minValues=-1)}),
        rejects("minValues 51", "less than or equal to 50", **{where: demand(minValues=51)}),
        rejects(
            "minValues above the values of In",
            "add values",
            **{where: demand(operator="In", values=["a"], minValues=2)},
        ),
    )
)

CLASS = (
    rejects("no nodeClassRef", "nodeClassRef: Required", template__spec__nodeClassRef=ABSENT),
    *(
        row
        for name in ("group", "kind", "name")
        for row in (
            rejects(f"no {name}", f"{name}: Required", **{f"template__spec__nodeClassRef__{name}": ABSENT}),
            rejects(
                f"an empty {name}", f"{name} may not be empty: write", **{f"template__spec__nodeClassRef__{name}": ""}
            ),
        )
    ),
    rejects("a group with version", "should match", template__spec__nodeClassRef__group="karpenter.k8s.aws/v1"),
    accepts("another provider's class", template__spec__nodeClassRef={"group": "x.y", "kind": "Z", "name": "z"}),
)

TIMES = (
    *(
        accepts(f"expireAfter {text}", template__spec__expireAfter=text)
        for text in ("0s", "30s", "1h30m", "720h", "Never")
    ),
    *(
        rejects(f"expireAfter {text!r}", "should match", template__spec__expireAfter=text)
        for text in ("-1s", "1d", "30", "never", "", "1.5h", "100ms", "1h Never")
    ),
    *(
        accepts(f"terminationGracePeriod {text}", template__spec__terminationGracePeriod=text)
        for text in ("0s", "30s", "24h", "1h30m5s")
    ),
    *(
        rejects(f"terminationGracePeriod {text!r}", "should match", template__spec__terminationGracePeriod=text)
        for text in ("Never", "-30s", "1d", "")
    ),
    *(
        accepts(f"consolidateAfter {text}", disruption={"consolidateAfter": text})
        for text in ("0s", "30s", "1h5m", "Never")
    ),
    *(
        rejects(f"consolidateAfter {text!r}", "should match", disruption={"consolidateAfter": text})
        for text in ("-1s", "1d", "never", "5", "")
    ),
    rejects("disruption without consolidateAfter", "consolidateAfter: Required", disruption={}),
    *(
        accepts(f"consolidationPolicy {text}", disruption={"consolidateAfter": "1m", "consolidationPolicy": text})
        for text in ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
    ),
    accepts("WhenEmpty and Never", disruption={"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"}),
    rejects(
        "the policy of older versions",
        "Unsupported value",
        disruption={"consolidateAfter": "1m", "consolidationPolicy": "WhenUnderutilized"},
    ),
)

WINDOW = {"schedule": "0 9 * * 1-5", "duration": "8h"}
BUDGETS = (
    accepts("no budgets", disruption={"consolidateAfter": "1m", "budgets": []}),
    accepts("a budget without nodes", disruption={"consolidateAfter": "1m", "budgets": [{}]}),
    accepts("50 budgets", disruption={"consolidateAfter": "1m", "budgets": [{"nodes": "1"}] * 50}),
    rejects("51 budgets", "at most 50", disruption={"consolidateAfter": "1m", "budgets": [{"nodes": "1"}] * 51}),
    *(
        accepts(f"nodes {text}", disruption=budget(nodes=text))
        for text in ("0", "10", "1000", "0%", "7%", "99%", "100%")
    ),
    *(
        rejects(f"nodes {text!r}", "should match", disruption=budget(nodes=text))
        for text in ("-10", "-10%", "101%", "1000%", "10 %", "", "half")
    ),
    rejects("nodes as a number", "must be of type string", disruption=budget(nodes=10)),
    *(
        accepts(f"schedule {text}", disruption=budget(schedule=text, duration="20m"))
        for text in (
            "* * * * *",
            "0 9 * * mon-fri",
            "@annually",
            "@yearly",
            "@monthly",
            "@weekly",
            "@daily",
            "@midnight",
            "@hourly",
            # The pattern binds the caret to the macros alone; Karpenter takes these, and so do we.
            "@hourly and then some",
            "a b c d e f g",
        )
    ),
    *(
        rejects(f"schedule {text!r}", "should match", disruption=budget(schedule=text, duration="20m"))
        for text in ("*", "* * * * ", "@every", "")
    ),
    *(
        accepts(f"duration {text}", disruption=budget(schedule="@daily", duration=text))
        for text in ("20m", "8h", "2h20m", "20m0s", "1h30m0s")
    ),
    *(
        rejects(f"duration {text!r}", "should match", disruption=budget(schedule="@daily", duration=text))
        for text in ("30s", "-20m", "1d", "20m1h", "1h30m5s", "Never", "")
    ),
    rejects("a schedule without duration", "add the missing one", disruption=budget(schedule="@daily")),
    rejects("a duration without schedule", "add the missing one", disruption=budget(duration="20m")),
    accepts(
        "one budget with a window and one without",
        disruption=budget() | {"budgets": [{"nodes": "1"}, {"nodes": "0", **WINDOW}]},
    ),
    rejects(
        "one of two budgets with a bad schedule",
        "should match",
        disruption=budget() | {"budgets": [{"nodes": "1", **WINDOW}, {"nodes": "0", **WINDOW, "schedule": "*"}]},
    ),
    *(accepts(f"reason {text}", disruption=budget(reasons=[text])) for text in ("Underutilized", "Empty", "Drifted")),
    accepts("all reasons", disruption=budget(reasons=["Underutilized", "Empty", "Drifted"])),
    accepts("an empty list of reasons", disruption=budget(reasons=[])),
    *(
        rejects(f"reason {text!r}", "Unsupported value", disruption=budget(reasons=[text]))
        for text in ("Expired", "empty", "")
    ),
    rejects("a reason twice", "Duplicate value", disruption=budget(reasons=["Empty", "Empty"])),
)

SIZE = (
    accepts("limits", limits={"cpu": "100", "memory": "1000Gi", "nvidia.com/gpu": "8", "nodes": "10"}),
    accepts("limits as numbers", limits={"cpu": 100}),
    accepts("no limits", limits={}),
    *(accepts(f"limit {text}", limits={"cpu": text}) for text in ("1500m", "1.5", "+1", "-1", "1e3", "2E", ".5", "1.")),
    *(rejects(f"limit {text!r}", "should match", limits={"cpu": text}) for text in ("many", "1 Gi", "1GB", "")),
    rejects("a limit with a fraction as number", "must be of type integer", limits={"cpu": 1.5}),
    accepts("weight 1", weight=1),
    accepts("weight 100", weight=100),
    rejects("weight 0", "greater than or equal to 1", weight=0),
    rejects("weight 101", "less than or equal to 100", weight=101),
    rejects("a weight that is no number", "must be of type integer", weight="10"),
    accepts("replicas 0", replicas=0),
    accepts("replicas 10", replicas=10),
    rejects("replicas -1", "greater than or equal to 0", replicas=-1),
    accepts("replicas with limits.nodes", replicas=1, limits={"nodes": "3"}),
    accepts("replicas with empty limits", replicas=1, limits={}),
    rejects("replicas with limits.cpu", "remove the other limits", replicas=1, limits={"cpu": "3"}),
    rejects("replicas with more limits", "remove the other limits", replicas=1, limits={"nodes": "3", "cpu": "3"}),
    rejects("replicas with weight", "'weight' means nothing", replicas=1, weight=10),
)

ROWS = (*TEMPLATE, *TAINTS, *KEYS, *REQUIREMENTS, *CLASS, *TIMES, *BUDGETS, *SIZE)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_the_api_server(row: Row, server: ApiServerClient) -> None:
    await assert_row(server, NODEPOOL, row)
