"""The CustomResourceDefinition of NodeClaims accepts every NodeClaim that a plan creates."""

from datetime import timedelta
from typing import Final

import pytest

from tenure.apis.labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_CPU,
    INSTANCE_TYPE,
    NODECLASS,
    NODEPOOL,
    NORMALIZED,
    WELL_KNOWN,
    ZONE,
)
from tenure.cli.validate.crd import custom_resource
from tenure.model.facts import PodFact
from tenure.model.instance_types import UnavailableOffering
from tenure.model.plan import Plan, PlannedNodeClaim
from tenure.model.requirements import Requirements
from tenure.scheduling.nodeclaim_template import build_nodeclaim, plan_static_nodeclaim
from tenure.scheduling.settings import PlanSettings
from tests.unit.scheduling.builders import NOW, Cluster, expressions, instance_type, pod, pool, reasons

RESTRICTED: Final = (
    HOSTNAME,
    NODECLASS,
    "karpenter.sh/registered",
    "karpenter.sh/initialized",
    "karpenter.sh/provisioner-name",
    "karpenter.sh/do-not-sync-taints",
    "karpenter.sh",
    "sub.karpenter.sh/custom",
    "mykarpenter.sh/custom",
    "karpenter.k8s.aws/custom",
    "sub.karpenter.k8s.aws/custom",
)
CUSTOM: Final = (
    "team",
    "size",
    "kubernetes.io/custom",
    "node-restriction.kubernetes.io/a",
    f"{'a.' * 126}a/{'n' * 63}",
)
VALUES: Final = {
    NODEPOOL: "default",
    NODECLASS: "default",
    ZONE: "a",
    CAPACITY_TYPE: "spot",
    INSTANCE_TYPE: "m.large",
    INSTANCE_CPU: "4",
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "karpenter.sh/registered": "true",
    "size": "4",
}
BIG: Final = 2**63 - 1


def expressions_for(key: str) -> list[str]:
    value = VALUES.get(key, "a")
    bounds = [f"{operator} {number}" for operator in ("Gt", "Lt", "Gte", "Lte") for number in (-5, 0, 3, BIG)]
    return [
        *(f"{key} {one}" for one in ("Exists", "DoesNotExist", f"In {value}", f"In {value} -x", "In -5 other!")),
        *(f"{key} {one}" for one in (f"NotIn {value}", "NotIn -5 other! 0", *bounds)),
    ]


def assert_accepted(planned: PlannedNodeClaim) -> None:
    resource = custom_resource("NodeClaim")
    assert resource
    stored, findings = resource.validate(build_nodeclaim(planned, name="default-x", plan_id="p").to_object())
    assert not [f"{one.field}: {one.problem}" for one in findings], stored["spec"]["requirements"]


def assert_scheduled_or_explained(plan: Plan, pods: list[PodFact]) -> None:
    """Every pod is on a NodeClaim that the API server accepts, or has a reason."""
    for planned in plan.claims:
        assert_accepted(planned)
    scheduled = {uid for planned in plan.claims for uid in planned.pods}
    explained = {one.pod_uid for one in plan.unschedulable if one.reason and one.code}
    assert scheduled | explained == {one.uid for one in pods} and not scheduled & explained


@pytest.mark.parametrize("key", [*sorted(WELL_KNOWN), *sorted(NORMALIZED), *RESTRICTED, *CUSTOM])
def test_every_requirement_of_a_pod_is_accepted_or_explained(key: str) -> None:
    pools = pool("default", "size Exists", "kubernetes.io/custom In a b")
    # Pods that exclude all NodePools are not planned, and have their own verdict.
    written = [text for text in expressions_for(key) if text != f"{NODEPOOL} DoesNotExist"]
    required = [pod(f"r-{text}", cpu=0.1, terms=(expressions(text),)) for text in written]
    preferred = [pod(f"p-{text}", cpu=0.1, preferred={text: 1}) for text in written]
    for settings in (PlanSettings(), PlanSettings(preference_policy="Ignore")):
        plan = Cluster(pools, *required, *preferred, settings=settings).plan()
        assert_scheduled_or_explained(plan, [*required, *preferred])
        scheduled = {uid for planned in plan.claims for uid in planned.pods}
        assert {one.uid for one in preferred} <= scheduled, "a preference never makes a pod unschedulable"


@pytest.mark.parametrize(
    ("expression", "schedulable"),
    [
        (f"{HOSTNAME} NotIn bad-node", True),
        (f"{HOSTNAME} Exists", True),
        (f"{HOSTNAME} DoesNotExist", False),
        (f"{HOSTNAME} In node-1", False),
        (f"{HOSTNAME} Gt 1", False),
        ("karpenter.sh/provisioner-name DoesNotExist", True),
        ("karpenter.sh/provisioner-name NotIn default", True),
        ("karpenter.sh/provisioner-name Exists", False),
        ("karpenter.sh/registered NotIn false", True),
        ("karpenter.sh/registered In false", False),
        ("karpenter.k8s.aws/custom NotIn a", True),
        (f"{NODECLASS} DoesNotExist", False),
        (f"{INSTANCE_CPU} Gt -5", True),
        (f"{INSTANCE_CPU} Lt 0", False),
    ],
)
def test_new_node_satisfies_requirement(expression: str, schedulable: bool) -> None:
    plan = Cluster(pool(), pod("p", terms=(expressions(expression),))).plan()
    assert [one.pods for one in plan.claims] == ([("p",)] if schedulable else [])
    assert schedulable or expression.split()[0] in reasons(plan)[0]


def test_pods_that_exclude_a_hostname_share_a_node_with_others() -> None:
    avoiding = pod("avoiding", terms=(expressions(f"{HOSTNAME} NotIn bad-node"),))
    (planned,) = Cluster(pool(), avoiding, pod("other")).plan().claims
    assert sorted(planned.pods) == ["avoiding", "other"] and HOSTNAME not in planned.labels


@pytest.mark.parametrize(
    ("requirement", "expression", "label"),
    [
        ("size Exists", "size Gt -5", "0"),
        ("size Exists", "size Gt 3", "4"),
        ("size Exists", "size Lt -5", None),
        ("size Exists", f"size Gt {BIG}", None),
        ("size Exists", "size In -5 7", "7"),
        ("size Exists", "size In -5 +3", None),
        ("size Lt 0", "size Exists", None),
        ("size Exists", "size NotIn 0", "1"),
    ],
)
def test_custom_label_has_a_valid_value(requirement: str, expression: str, label: str | None) -> None:
    plan = Cluster(pool("default", requirement), pod("p", terms=(expressions(expression),))).plan()
    assert [planned.labels.get("size") for planned in plan.claims] == ([] if label is None else [label])
    assert label is not None or "size" in reasons(plan)[0]
    assert_scheduled_or_explained(plan, [pod("p")])


def test_custom_labels_are_left_out_of_too_many_requirements() -> None:
    keys = [f"example.com/k{number}" for number in range(99)]
    pools = pool("default", *(f"{key} In a b" for key in keys), template_labels={f"l{n}": "x" for n in range(100)})
    excluded = (f"example.com/n{number} NotIn x" for number in range(100))
    selected = f"{keys[0]} In b", f"{INSTANCE_CPU} Gt 2", f"{ZONE} In a"
    (planned,) = Cluster(pools, pod("p", terms=(expressions(*excluded, *selected),))).plan().claims
    assert_accepted(planned)
    assert planned.labels[keys[0]] == "b" and planned.labels["l7"] == "x" and len(planned.requirements) < 20
    left = Requirements.from_expressions(planned.requirements)
    assert left.implies(Requirements.from_expressions(expressions(f"{INSTANCE_CPU} Gt 2", f"{ZONE} In a")))


@pytest.mark.parametrize("policy", ["Strict", "BestEffort"])
@pytest.mark.parametrize("operator", ["In spot on-demand", "Exists"])
def test_min_values_of_capacity_types_without_capacity_are_accepted(policy: str, operator: str) -> None:
    types = (instance_type("m.large", capacity_types=("spot", "on-demand")),)
    missing = UnavailableOffering(instance_type="*", zone="*", capacity_type="spot", until=NOW + timedelta(minutes=3))
    cluster = Cluster(
        pool("default", f"{CAPACITY_TYPE} {operator} minValues=2"),
        pod("p"),
        instance_types=types,
        settings=PlanSettings(min_values_policy=policy),
    )
    plan = cluster.plan(unavailable=(missing,))
    assert plan.claims
    assert_scheduled_or_explained(plan, [pod("p")])


def test_relaxed_min_values_of_a_custom_label_are_accepted() -> None:
    best_effort = PlanSettings(min_values_policy="BestEffort")
    (planned,) = Cluster(pool("default", "size In 1 2 minValues=2"), pod("p"), settings=best_effort).plan().claims
    assert_accepted(planned)


@pytest.mark.parametrize("requirement", ["size Lt 0", "size Exists", f"{INSTANCE_CPU} Gt 3", "size Gt 3"])
def test_nodeclaim_of_a_static_nodepool_is_accepted(requirement: str) -> None:
    assert_accepted(plan_static_nodeclaim(pool("default", requirement, static=True), "one of spec.replicas=1"))


def test_node_has_no_labels_whose_values_its_pods_only_exclude() -> None:
    """Otherwise, one pod makes the user data too large for EC2, and the other pods of the node get none either."""
    excluding = pod("excluding", terms=(expressions(*(f"example.com/k{number} NotIn x" for number in range(500))),))
    [planned] = Cluster(pool(), excluding, pod("other")).plan().claims
    assert set(planned.pods) == {"excluding", "other"} and planned.labels.keys() == {NODEPOOL, NODECLASS}
