"""Which NodePools the API server takes, field by field, and what it says to the others."""

from typing import Any

import pytest

from tests.adapters.model.kinds.server import Server, assert_row
from tests.support.model.kinds.table import ABSENT, NODEPOOL, Row, no, ok

CLASS_REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def taint(**fields: Any) -> list[dict[str, Any]]:
    return [{"key": "team", "effect": "NoSchedule"} | fields]


def demand(key: str = "team", operator: str = "Exists", **fields: Any) -> list[dict[str, Any]]:
    return [{"key": key, "operator": operator} | fields]


def budget(**fields: Any) -> dict[str, Any]:
    return {"consolidateAfter": "30s", "budgets": [{"nodes": "1"} | fields]}


TEMPLATE = (
    ok("the smallest pool"),
    no("a pool without spec", "spec: Required", spec=ABSENT),
    no("a spec without template", "spec.template: Required", template=ABSENT),
    no("a template without spec", "spec.template.spec: Required", template={}),
    no("an unknown field", "unknown field", colour="blue"),
    ok("template labels", template__metadata={"labels": {"team": "a", "example.com/b": "c"}}),
    ok("an empty label value", template__metadata={"labels": {"team": ""}}),
    ok("a capacity-type label", template__metadata={"labels": {"karpenter.sh/capacity-type": "spot"}}),
    ok("labels of Kubernetes", template__metadata={"labels": {"kubernetes.io/x": "y", "node.kubernetes.io/z": "y"}}),
    ok("labels of kOps", template__metadata={"labels": {"kops.k8s.io/instancegroup": "a"}}),
    ok("restricted-node labels", template__metadata={"labels": {"node-restriction.kubernetes.io/x": "y"}}),
    ok("well-known AWS labels", template__metadata={"labels": {"karpenter.k8s.aws/instance-family": "m5"}}),
    ok("100 labels", template__metadata={"labels": {f"l{i}": "x" for i in range(100)}}),
    no("101 labels", "at most 100", template__metadata={"labels": {f"l{i}": "x" for i in range(101)}}),
    ok("a label value of 63", template__metadata={"labels": {"team": "a" * 63}}),
    no("a label value of 64", "63", template__metadata={"labels": {"team": "a" * 64}}),
    no("a label value with spaces", "should match", template__metadata={"labels": {"team": "a b"}}),
    no(
        "a label of karpenter.sh",
        "give your own label another domain",
        template__metadata={"labels": {"karpenter.sh/custom": "x"}},
    ),
    no(
        "a label of a subdomain of karpenter.sh",
        "give your own label another domain",
        template__metadata={"labels": {"sub.karpenter.sh/custom": "x"}},
    ),
    no(
        "a label of karpenter.k8s.aws that is not known",
        "give your own label another domain",
        template__metadata={"labels": {"karpenter.k8s.aws/custom": "x"}},
    ),
    no(
        "the pool's own label",
        "always this pool's own name: leave it out",
        template__metadata={"labels": {"karpenter.sh/nodepool": "x"}},
    ),
    no(
        "the hostname label",
        "kubernetes.io/hostname is set when the node starts",
        template__metadata={"labels": {"kubernetes.io/hostname": "x"}},
    ),
    ok("annotations of any kind", template__metadata={"annotations": {"karpenter.sh/x": "a b c", "y": ""}}),
    no("an annotation that is no text", "must be of type string", template__metadata={"annotations": {"a": 1}}),
)

TAINTS = tuple(
    row
    for where in ("template__spec__taints", "template__spec__startupTaints")
    for row in (
        ok(f"{where}: none", **{where: []}),
        ok(f"{where}: a key alone", **{where: taint()}),
        ok(f"{where}: a value", **{where: taint(value="a")}),
        ok(f"{where}: a value with a prefix", **{where: taint(value="example.com/A_b.c")}),
        ok(f"{where}: a key with a domain", **{where: taint(key="example.com/Team")}),
        ok(f"{where}: PreferNoSchedule", **{where: taint(effect="PreferNoSchedule")}),
        ok(f"{where}: NoExecute", **{where: taint(effect="NoExecute")}),
        ok(f"{where}: a time", **{where: taint(timeAdded="2025-01-01T00:00:00Z")}),
        ok(f"{where}: the same key twice", **{where: taint() + taint(effect="NoExecute")}),
        no(f"{where}: no key", "key: Required", **{where: [{"effect": "NoSchedule"}]}),
        no(f"{where}: an empty key", "at least 1 char", **{where: taint(key="")}),
        no(f"{where}: no effect", "effect: Required", **{where: [{"key": "a"}]}),
        no(f"{where}: another effect", "Unsupported value", **{where: taint(effect="NoAdmit")}),
        no(f"{where}: a brace in the key", "should match", **{where: taint(key="test.com.com}")}),
        no(f"{where}: a capital in the domain", "should match", **{where: taint(key="Test.com/test")}),
        no(f"{where}: two slashes", "should match", **{where: taint(key="test/test/test")}),
        no(f"{where}: nothing after the slash", "should match", **{where: taint(key="test/")}),
        no(f"{where}: nothing before the slash", "should match", **{where: taint(key="/test")}),
        no(f"{where}: question marks as value", "should match", **{where: taint(value="???")}),
        no(f"{where}: a written empty value", "should match", **{where: taint(value="")}),
    )
)

KEYS = tuple(
    row
    for where in ("template__spec__requirements",)
    for row in (
        *(
            ok(f"key {key}", **{where: demand(key)})
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
            no(f"key {key}", "should match", **{where: demand(key)})
            for key in ("test.com.com}", "Test.com/test", "test/test/test", "test/", "/test", "")
        ),
        no("a key of 317", "Too long", **{where: demand("a" * 253 + "/" + "b" * 63)}),
        no("no key", "key: Required", **{where: [{"operator": "Exists"}]}),
        no("key karpenter.sh/nodepool", "leave it out", **{where: demand("karpenter.sh/nodepool")}),
        no("key kubernetes.io/hostname", "leave it out", **{where: demand("kubernetes.io/hostname")}),
        no("key karpenter.sh/registered", "another domain", **{where: demand("karpenter.sh/registered")}),
        no("key in a subdomain", "another domain", **{where: demand("sub.karpenter.sh/x")}),
        no("key in a domain that ends alike", "another domain", **{where: demand("mykarpenter.sh/x")}),
        no("key karpenter.k8s.aws/custom", "another domain", **{where: demand("karpenter.k8s.aws/custom")}),
    )
)

MANY = [f"t{i}" for i in range(90)]
REQUIREMENTS = tuple(
    row
    for where in ("template__spec__requirements",)
    for row in (
        no("no requirements at all", "requirements: Required", **{where: ABSENT}),
        ok("100 requirements", **{where: demand() * 100}),
        no("101 requirements", "at most 100", **{where: demand() * 101}),
        ok("In", **{where: demand(operator="In", values=["a"])}),
        ok("In with a value that is no label value", **{where: demand(operator="In", values=["a b/c"])}),
        ok("In with 90 values", **{where: demand(operator="In", values=MANY)}),
        no("In without values", "write operator: Exists", **{where: demand(operator="In")}),
        no("In with an empty list", "write operator: Exists", **{where: demand(operator="In", values=[])}),
        ok("NotIn", **{where: demand(operator="NotIn", values=["a"])}),
        ok("NotIn without values", **{where: demand(operator="NotIn")}),
        ok("Exists", **{where: demand()}),
        ok("Exists with values", **{where: demand(values=["a"])}),
        ok("DoesNotExist", **{where: demand(operator="DoesNotExist")}),
        no("another operator", "Unsupported value", **{where: demand(operator="unknown")}),
        no("no operator", "operator: Required", **{where: [{"key": "a"}]}),
        no("a value that is no text", "must be of type string", **{where: demand(operator="In", values=[1])}),
        *(
            row
            for operator in ("Gt", "Lt", "Gte", "Lte")
            for row in (
                ok(f"{operator} 1", **{where: demand(operator=operator, values=["1"])}),
                ok(f"{operator} 0", **{where: demand(operator=operator, values=["0"])}),
                ok(f"{operator} +5", **{where: demand(operator=operator, values=["+5"])}),
                no(f"{operator} -1", "write exactly one", **{where: demand(operator=operator, values=["-1"])}),
                no(f"{operator} a", "write exactly one", **{where: demand(operator=operator, values=["a"])}),
                no(f"{operator} 1.5", "write exactly one", **{where: demand(operator=operator, values=["1.5"])}),
                no(f"{operator} [1, 2]", "write exactly one", **{where: demand(operator=operator, values=["1", "2"])}),
                no(f"{operator} []", "write exactly one", **{where: demand(operator=operator, values=[])}),
                no(f"{operator} nothing", "write exactly one", **{where: demand(operator=operator)}),
                no(f"{operator} 2^63", "write exactly one", **{where: demand(operator=operator, values=[str(2**63)])}),
            )
        ),
        ok("minValues 1", **{where: demand(operator="In", values=["a"], minValues=1)}),
        ok("minValues 50", **{where: demand(minValues=50)}),
        ok("minValues with Exists and no values", **{where: demand(minValues=2)}),
        ok("minValues above the values of NotIn", **{where: demand(operator="NotIn", values=["a"], minValues=2)}),
        no("minValues 0", "greater than or equal to 1", **{where: demand(minValues=0)}),
        no("minValues -1", "greater than or equal to 1", **{where: demand(minValues=-1)}),
        no("minValues 51", "less than or equal to 50", **{where: demand(minValues=51)}),
        no(
            "minValues above the values of In",
            "add values",
            **{where: demand(operator="In", values=["a"], minValues=2)},
        ),
    )
)

CLASS = (
    no("no nodeClassRef", "nodeClassRef: Required", template__spec__nodeClassRef=ABSENT),
    *(
        row
        for name in ("group", "kind", "name")
        for row in (
            no(f"no {name}", f"{name}: Required", **{f"template__spec__nodeClassRef__{name}": ABSENT}),
            no(f"an empty {name}", f"{name} may not be empty: write", **{f"template__spec__nodeClassRef__{name}": ""}),
        )
    ),
    no("a group with version", "should match", template__spec__nodeClassRef__group="karpenter.k8s.aws/v1"),
    ok("another provider's class", template__spec__nodeClassRef={"group": "x.y", "kind": "Z", "name": "z"}),
)

TIMES = (
    *(ok(f"expireAfter {text}", template__spec__expireAfter=text) for text in ("0s", "30s", "1h30m", "720h", "Never")),
    *(
        no(f"expireAfter {text!r}", "should match", template__spec__expireAfter=text)
        for text in ("-1s", "1d", "30", "never", "", "1.5h", "100ms", "1h Never")
    ),
    *(
        ok(f"terminationGracePeriod {text}", template__spec__terminationGracePeriod=text)
        for text in ("0s", "30s", "24h", "1h30m5s")
    ),
    *(
        no(f"terminationGracePeriod {text!r}", "should match", template__spec__terminationGracePeriod=text)
        for text in ("Never", "-30s", "1d", "")
    ),
    *(ok(f"consolidateAfter {text}", disruption={"consolidateAfter": text}) for text in ("0s", "30s", "1h5m", "Never")),
    *(
        no(f"consolidateAfter {text!r}", "should match", disruption={"consolidateAfter": text})
        for text in ("-1s", "1d", "never", "5", "")
    ),
    no("disruption without consolidateAfter", "consolidateAfter: Required", disruption={}),
    *(
        ok(f"consolidationPolicy {text}", disruption={"consolidateAfter": "1m", "consolidationPolicy": text})
        for text in ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
    ),
    ok("WhenEmpty and Never", disruption={"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"}),
    no(
        "the policy of older versions",
        "Unsupported value",
        disruption={"consolidateAfter": "1m", "consolidationPolicy": "WhenUnderutilized"},
    ),
)

WINDOW = {"schedule": "0 9 * * 1-5", "duration": "8h"}
BUDGETS = (
    ok("no budgets", disruption={"consolidateAfter": "1m", "budgets": []}),
    ok("a budget without nodes", disruption={"consolidateAfter": "1m", "budgets": [{}]}),
    ok("50 budgets", disruption={"consolidateAfter": "1m", "budgets": [{"nodes": "1"}] * 50}),
    no("51 budgets", "at most 50", disruption={"consolidateAfter": "1m", "budgets": [{"nodes": "1"}] * 51}),
    *(ok(f"nodes {text}", disruption=budget(nodes=text)) for text in ("0", "10", "1000", "0%", "7%", "99%", "100%")),
    *(
        no(f"nodes {text!r}", "should match", disruption=budget(nodes=text))
        for text in ("-10", "-10%", "101%", "1000%", "10 %", "", "half")
    ),
    no("nodes as a number", "must be of type string", disruption=budget(nodes=10)),
    *(
        ok(f"schedule {text}", disruption=budget(schedule=text, duration="20m"))
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
        no(f"schedule {text!r}", "should match", disruption=budget(schedule=text, duration="20m"))
        for text in ("*", "* * * * ", "@every", "")
    ),
    *(
        ok(f"duration {text}", disruption=budget(schedule="@daily", duration=text))
        for text in ("20m", "8h", "2h20m", "20m0s", "1h30m0s")
    ),
    *(
        no(f"duration {text!r}", "should match", disruption=budget(schedule="@daily", duration=text))
        for text in ("30s", "-20m", "1d", "20m1h", "1h30m5s", "Never", "")
    ),
    no("a schedule without duration", "add the missing one", disruption=budget(schedule="@daily")),
    no("a duration without schedule", "add the missing one", disruption=budget(duration="20m")),
    ok(
        "one budget with a window and one without",
        disruption=budget() | {"budgets": [{"nodes": "1"}, {"nodes": "0", **WINDOW}]},
    ),
    no(
        "one of two budgets with a bad schedule",
        "should match",
        disruption=budget() | {"budgets": [{"nodes": "1", **WINDOW}, {"nodes": "0", **WINDOW, "schedule": "*"}]},
    ),
    *(ok(f"reason {text}", disruption=budget(reasons=[text])) for text in ("Underutilized", "Empty", "Drifted")),
    ok("all reasons", disruption=budget(reasons=["Underutilized", "Empty", "Drifted"])),
    ok("an empty list of reasons", disruption=budget(reasons=[])),
    *(
        no(f"reason {text!r}", "Unsupported value", disruption=budget(reasons=[text]))
        for text in ("Expired", "empty", "")
    ),
    no("a reason twice", "Duplicate value", disruption=budget(reasons=["Empty", "Empty"])),
)

SIZE = (
    ok("limits", limits={"cpu": "100", "memory": "1000Gi", "nvidia.com/gpu": "8", "nodes": "10"}),
    ok("limits as numbers", limits={"cpu": 100}),
    ok("no limits", limits={}),
    *(ok(f"limit {text}", limits={"cpu": text}) for text in ("1500m", "1.5", "+1", "-1", "1e3", "2E", ".5", "1.")),
    *(no(f"limit {text!r}", "should match", limits={"cpu": text}) for text in ("many", "1 Gi", "1GB", "")),
    no("a limit with a fraction as number", "must be of type integer", limits={"cpu": 1.5}),
    ok("weight 1", weight=1),
    ok("weight 100", weight=100),
    no("weight 0", "greater than or equal to 1", weight=0),
    no("weight 101", "less than or equal to 100", weight=101),
    no("a weight that is no number", "must be of type integer", weight="10"),
    ok("replicas 0", replicas=0),
    ok("replicas 10", replicas=10),
    no("replicas -1", "greater than or equal to 0", replicas=-1),
    ok("replicas with limits.nodes", replicas=1, limits={"nodes": "3"}),
    ok("replicas with empty limits", replicas=1, limits={}),
    no("replicas with limits.cpu", "remove the other limits", replicas=1, limits={"cpu": "3"}),
    no("replicas with more limits", "remove the other limits", replicas=1, limits={"nodes": "3", "cpu": "3"}),
    no("replicas with weight", "'weight' means nothing", replicas=1, weight=10),
)

ROWS = (*TEMPLATE, *TAINTS, *KEYS, *REQUIREMENTS, *CLASS, *TIMES, *BUDGETS, *SIZE)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_the_api_server(row: Row, server: Server) -> None:
    await assert_row(server, NODEPOOL, row)
