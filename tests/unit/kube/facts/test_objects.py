"""Conversion of raw objects to facts: pod requests, and every field that planning and digests read."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from tenure.apis import labels
from tenure.apis.labels import NODE_NAME_FIELD
from tenure.kube.facts.objects import is_ours, node_fact, nodeclaim_fact, nodepool_fact
from tenure.kube.facts.pod_requests import pod_requests
from tenure.kube.facts.pods import daemonset_fact, pod_fact
from tenure.model.facts import Expression, Taint, Toleration
from tests.support.kube.builders import claim_json, node_json, pod_json, pool_json

CREATED = "2026-01-01T12:00:00Z"


def container(name: str = "c", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


def sidecar(name: str, **requests: str) -> dict[str, Any]:
    return {**container(name, **requests), "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param({"containers": [container(cpu="1"), container(cpu="500m")]}, 1500, id="sum of containers"),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container("i", cpu="3")]},
            3000,
            id="largest init container if larger than the containers",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [sidecar("s", cpu="1"), container("i", cpu="3")]},
            4000,
            id="init container plus the sidecars before it",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container("i", cpu="3"), sidecar("s", cpu="1")]},
            3000,
            id="init container without the sidecars after it",
        ),
        pytest.param(
            {"containers": [container(cpu="2")], "initContainers": [sidecar("s", cpu="1"), sidecar("t", cpu="1")]},
            4000,
            id="containers plus sidecars",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, 1250, id="overhead of the RuntimeClass"
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "5"}}},
            5000,
            id="pod-level requests",
        ),
    ],
)
def test_pod_requests_match_the_scheduler(spec: dict[str, Any], cpu: int) -> None:
    assert pod_requests(spec) == {"cpu": cpu, "pods": 1}


def test_larger_amount_counts_during_a_resize() -> None:
    spec = {"containers": [container(cpu="1")]}
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}, "resources": {}}]}
    assert pod_requests(spec, status)["cpu"] == 3000


ONE_CPU = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
POD_LEVEL = {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "8"}}}


@pytest.mark.parametrize(
    ("spec", "reason", "status", "cpu"),
    [
        ({"containers": [container(cpu="100")]}, "Infeasible", ONE_CPU, 1000),
        ({"containers": [container(cpu="100")]}, "Deferred", ONE_CPU, 100_000),
        ({"containers": [container(cpu="100")]}, "Infeasible", {}, 100_000),
        (POD_LEVEL, "Infeasible", {"allocatedResources": {"cpu": "2"}}, 2000),
        (POD_LEVEL, "Deferred", {"resources": {"requests": {"cpu": "2"}}}, 8000),
        (POD_LEVEL, "Deferred", {"allocatedResources": {"cpu": "9"}}, 9000),
    ],
)
def test_resize_that_never_fits_the_node_does_not_count(
    spec: dict[str, Any], reason: str, status: dict[str, Any], cpu: int
) -> None:
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    assert pod_requests(spec, {**status, "conditions": [pending]})["cpu"] == cpu


def test_limits_of_a_daemonset_are_its_default_requests() -> None:
    template = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}
    fact = daemonset_fact(
        {
            "metadata": {"uid": "u", "namespace": "kube-system", "name": "agent", "creationTimestamp": CREATED},
            "spec": {"template": {"spec": {**template, "tolerations": [{"operator": "Exists"}]}}},
        }
    )
    assert fact.pod.requests == {"cpu": 1000, "memory": 2**30, "pods": 1}
    assert fact.pod.daemonset and fact.pod.tolerations == (Toleration(operator="Exists"),)


def test_topology_terms_of_a_daemonset_template_that_affect_other_pods_are_read() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    spec = {"containers": [], "affinity": {"podAffinity": terms, "podAntiAffinity": terms}}
    fact = daemonset_fact(
        {
            "metadata": {"uid": "u", "namespace": "kube-system", "name": "agent", "creationTimestamp": CREATED},
            "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec}},
        }
    )
    assert fact.pod.labels == {"app": "agent"} and not fact.pod.affinity
    assert [one.key for one in fact.pod.anti_affinity] == ["kubernetes.io/hostname"]


def pod(**more: Any) -> dict[str, Any]:
    raw = pod_json("web", **more)
    raw["metadata"] |= {"uid": "u1", "creationTimestamp": CREATED}
    return raw


def test_unschedulable_pod_is_read_with_its_constraints() -> None:
    raw = pod(
        nodeSelector={"disk": "ssd"},
        tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 5}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "In", "values": ["1"]}]}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 9, "preference": {"matchExpressions": [{"key": "y", "operator": "Exists"}]}}
                ],
            }
        },
    )
    raw["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    fact = pod_fact(raw)
    assert fact.unschedulable and not fact.node_name and fact.created == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert fact.node_selector == {"disk": "ssd"}
    assert fact.required_terms == ((Expression(key="z", operator="In", values=("1",)),),)
    assert fact.preferred_terms[0].weight == 9
    assert fact.tolerations == (Toleration(key="a", operator="Exists", seconds=5),)


def test_owners_distinguish_daemonset_and_static_pods() -> None:
    owned = pod(metadata={"ownerReferences": [{"kind": "DaemonSet", "uid": "d", "controller": True}]})
    assert pod_fact(owned).daemonset and pod_fact(owned).owner_uid == "d"
    static = pod(metadata={"ownerReferences": [{"kind": "Node", "uid": "n", "controller": True}]})
    assert pod_fact(static).mirror
    mirror = pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    assert pod_fact(mirror).mirror


@pytest.mark.parametrize(
    ("spec", "status", "untried"),
    [
        ({}, {}, True),
        ({}, {"conditions": [{"type": "Ready", "status": "False"}]}, True),
        ({}, {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, False),
        ({}, {"conditions": [{"type": "PodScheduled", "status": "True"}]}, False),
        ({"schedulingGates": [{"name": "wait"}]}, {}, False),
    ],
)
def test_pod_without_scheduler_verdict_is_untried(spec: dict[str, Any], status: dict[str, Any], untried: bool) -> None:
    assert pod_fact({**pod(**spec), "status": status}).untried is untried


@pytest.mark.parametrize(
    ("conditions", "expected", "nominated"),
    [
        ([], "", "n1"),
        ([{"type": "tenure.sh/Nominated", "status": "True", "message": "n1"}], "n1", ""),
        ([{"type": "tenure.sh/Nominated", "status": "True", "message": "n2"}], "", "n1"),
    ],
    ids=["by preemption", "by Tenure", "by preemption after Tenure"],
)
def test_nominated_node_is_told_apart_from_the_expected_node(
    conditions: list[dict[str, str]], expected: str, nominated: str
) -> None:
    fact = pod_fact({**pod(), "status": {"nominatedNodeName": "n1", "conditions": conditions}})
    assert (fact.expected_on, fact.nominated_node) == (expected, nominated)


def test_match_fields_are_expressions_on_the_node_name() -> None:
    term = {
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}],
        "matchExpressions": [{"key": "z", "operator": "Exists"}],
    }
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}],
    }
    fact = pod_fact(pod(affinity={"nodeAffinity": affinity}))
    expected = (
        Expression(key="z", operator="Exists"),
        Expression(key=NODE_NAME_FIELD, operator="NotIn", values=("n",)),
    )
    assert fact.required_terms == (expected, ()) and fact.preferred_terms[0].expressions == expected


def test_node_is_read() -> None:
    raw = node_json(
        "n1", taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}], uid="u", creationTimestamp=CREATED
    )
    raw["status"] = {
        "capacity": {"cpu": "2", "memory": "1Gi"},
        "allocatable": {"cpu": "1900m"},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}],
        "nodeInfo": {"bootID": "boot-1"},
    }
    fact = node_fact(raw)
    assert fact.provider_id == "aws:///us-west-2a/i-n1" and fact.ready and fact.boot_id == "boot-1"
    assert fact.taints == (Taint(key="a", value="b", effect="NoSchedule"),)
    assert fact.capacity == {"cpu": 2000, "memory": 2**30} and fact.allocatable == {"cpu": 1900}
    assert fact.ready_changed == datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_initialized_and_deleting_nodeclaim_is_read() -> None:
    taints = [{"key": "cni", "effect": "NoExecute"}]
    raw = claim_json("c1", expireAfter="Never", terminationGracePeriod="1h", startupTaints=taints)
    raw["metadata"] |= {"uid": "u", "creationTimestamp": CREATED, "deletionTimestamp": CREATED}
    raw["status"] = {
        "providerID": "aws:///us-west-2a/i-1",
        "nodeName": "n1",
        "capacity": {"cpu": "2"},
        "lastPodEventTime": CREATED,
        "conditions": [
            {"type": "Launched", "status": "True", "lastTransitionTime": CREATED},
            {"type": "Registered", "status": "True", "lastTransitionTime": CREATED},
            {"type": "Initialized", "status": "True", "lastTransitionTime": CREATED},
        ],
    }
    fact = nodeclaim_fact(raw)
    assert (fact.pool, fact.node_class, fact.provider_id, fact.node_name) == (
        "general",
        "default",
        "aws:///us-west-2a/i-1",
        "n1",
    )
    assert fact.launched and fact.registered and fact.initialized and fact.deleting
    assert fact.initialized_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert fact.expire_after_seconds is None and fact.requests == {"cpu": 1000, "memory": 2**30}
    assert fact.last_pod_event == fact.initialized_at and fact.termination_grace_period == "1h"
    assert fact.startup_taints == (Taint(key="cni", effect="NoExecute"),)


def test_disruption_reason_is_read_only_while_its_condition_is_true() -> None:
    condition = {"type": "DisruptionReason", "status": "True", "reason": "Underutilized", "lastTransitionTime": CREATED}
    raw = claim_json("c1")
    raw["metadata"] |= {"uid": "u", "creationTimestamp": CREATED}
    raw["status"] = {"conditions": [condition]}
    assert nodeclaim_fact(raw).disruption == "Underutilized"
    raw["status"] = {"conditions": [{**condition, "status": "False"}]}
    assert nodeclaim_fact(raw).disruption == ""


def test_drift_is_read_only_while_its_condition_is_true() -> None:
    raw = claim_json("c1")
    raw["metadata"] |= {"uid": "u", "creationTimestamp": CREATED}
    condition = {
        "type": "Drifted",
        "status": "True",
        "reason": "AMIDrift",
        "message": "old",
        "lastTransitionTime": CREATED,
    }
    raw["status"] = {"conditions": [condition]}
    assert (nodeclaim_fact(raw).drifted, nodeclaim_fact(raw).drifted_message) == ("AMIDrift", "old")
    assert nodeclaim_fact(raw).drifted_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
    condition["status"] = "False"
    assert (nodeclaim_fact(raw).drifted, nodeclaim_fact(raw).drifted_message) == ("", "")
    assert nodeclaim_fact(raw).drifted_at is None


def test_uninitialized_nodeclaim_has_no_initialization_time() -> None:
    raw = claim_json("c1")
    raw["metadata"] |= {"uid": "u", "creationTimestamp": CREATED}
    raw["status"] = {"conditions": [{"type": "Initialized", "status": "Unknown", "lastTransitionTime": CREATED}]}
    fact = nodeclaim_fact(raw)
    assert fact.initialized_at is None and fact.expire_after_seconds == 720 * 3600


def test_nodepool_is_read() -> None:
    raw = pool_json("general", limits={"cpu": "10"}, weight=7)
    raw["metadata"] |= {"uid": "u", "generation": 3, "annotations": {"karpenter.sh/nodepool-hash": "h"}}
    raw["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    fact = nodepool_fact(raw)
    assert (fact.weight, fact.generation, fact.ready, fact.limits) == (7, 3, True, {"cpu": 10000})
    assert fact.hash == "h" and not fact.static and fact.node_class == "default"
    assert nodepool_fact(static_pool_json()).static
    assert (fact.consolidate_after, fact.consolidation_policy) == ("0s", "WhenEmptyOrUnderutilized"), "the defaults"


def test_consolidation_settings_of_a_nodepool_are_read() -> None:
    raw = pool_json("general", disruption={"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"})
    raw["metadata"]["uid"] = "u"
    fact = nodepool_fact(raw)
    assert (fact.consolidate_after, fact.consolidation_policy) == ("Never", "WhenEmpty")


@pytest.mark.parametrize(
    ("disruption_cost", "deletion_cost", "read"),
    [
        (None, None, 0),
        (None, "-5", -5),
        (None, "much", 0),
        (None, "2147483648", 0),
        (None, "9" * 4301, 0),
        ("7", "-5", 7),
        ("much", "-5", 0),
        ("-2147483648", None, -(2**31)),
    ],
)
def test_disruption_cost_of_a_pod_precedes_its_deletion_cost(
    disruption_cost: str | None, deletion_cost: str | None, read: int
) -> None:
    written = {labels.DISRUPTION_COST: disruption_cost, labels.POD_DELETION_COST: deletion_cost}
    annotations = {key: value for key, value in written.items() if value is not None}
    assert pod_fact(pod(metadata={"annotations": annotations})).deletion_cost == read


@pytest.mark.parametrize(
    ("deletion_cost", "copy", "read"),
    [
        (None, None, (0, None, False)),
        ("-5", None, (-5, None, True)),
        ("-5", "-5", (0, -5, False)),
        ("-5", "-6", (-5, None, True)),
        (None, "-5", (0, None, False)),
        ("", "", (0, None, False)),
    ],
)
def test_deletion_cost_of_tenure_is_not_the_users(
    deletion_cost: str | None, copy: str | None, read: tuple[int, int | None, bool]
) -> None:
    written = {labels.POD_DELETION_COST: deletion_cost, labels.OWN_DELETION_COST: copy}
    annotations = {key: value for key, value in written.items() if value is not None}
    fact = pod_fact(pod(metadata={"annotations": annotations}))
    assert (fact.deletion_cost, fact.written_cost, fact.has_foreign_cost) == read


def test_readiness_and_start_of_a_pod_are_read() -> None:
    raw = pod()
    assert pod_fact(raw).ready is None and pod_fact(raw).started is None
    raw["status"] = {"startTime": CREATED, "conditions": [{"type": "Ready", "status": "False"}]}
    fact = pod_fact(raw)
    assert (fact.ready, fact.started) == (False, datetime(2026, 1, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    ("status", "changed", "bound", "unscheduled"),
    [
        ("True", CREATED, datetime(2026, 1, 1, 12, tzinfo=UTC), None),
        ("False", CREATED, None, datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ("False", None, None, None),
    ],
)
def test_pod_is_bound_or_unscheduled_since_pod_scheduled_changed(
    status: str, changed: str | None, bound: datetime | None, unscheduled: datetime | None
) -> None:
    raw = pod()
    raw["status"] = {"conditions": [{"type": "PodScheduled", "status": status, "lastTransitionTime": changed}]}
    assert (pod_fact(raw).bound, pod_fact(raw).unscheduled_since) == (bound, unscheduled)


def static_pool_json() -> dict[str, Any]:
    raw = pool_json("static", replicas=0)
    raw["metadata"]["uid"] = "u"
    return raw


def test_only_ec2nodeclass_is_ours() -> None:
    assert is_ours({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"})
    assert not is_ours({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass"})


@pytest.mark.parametrize(
    ("more", "location"),
    [
        ({"metadata": {"labels": {"version": 1}}}, ("labels", "version")),
        ({"tolerations": [{"key": 1}]}, ("tolerations", 0, "key")),
        ({"tolerations": [{"key": ["a"]}]}, ("tolerations", 0, "key")),
        ({"tolerations": [{"tolerationSeconds": "soon"}]}, ("tolerations", 0, "seconds")),
        ({"node": 5}, ("node_name",)),
    ],
)
def test_value_of_a_wrong_type_is_reported_with_its_location(
    more: dict[str, Any], location: tuple[str | int, ...]
) -> None:
    """A manifest that the API server has not validated may contain such values."""
    metadata = {"uid": "u", "creationTimestamp": CREATED, **more.pop("metadata", {})}
    with pytest.raises(ValidationError) as raised:
        pod_fact(pod_json("a", metadata=metadata, **more))
    assert [error["loc"] for error in raised.value.errors()] == [location]
