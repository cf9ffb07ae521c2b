"""Validation of NodePools, and their conditions."""

from datetime import datetime
from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import Registrations, StartupOutcome
from tenure.policy.nodepool import (
    add_outcomes,
    counts_as_failure,
    decide_healthy,
    decide_nodeclass_ready,
    refresh_registrations,
    registered_outcomes,
    reject_static,
    validate_nodepool,
)
from tests.unit.policy.builders import NOW, after, before


def pool(labels: dict[str, str] | None = None, **spec: Any) -> NodePool:
    template = {"metadata": {"labels": labels or {}}, "spec": spec}
    return NodePool.model_validate({"metadata": {"name": "default"}, "spec": {"template": template}})


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"requirements": [{"key": key, "operator": operator, "values": list(values)}]}


TAINT = {"key": "team", "effect": "NoSchedule", "value": "ml"}


@pytest.mark.parametrize(
    "valid",
    [
        pool(),
        pool({"team": "ml"}),
        pool(nodeClassRef={"name": "team-a.default"}),
        pool(**requirement("karpenter.sh/capacity-type", "In", "spot", "on-demand")),
        pool(**requirement("karpenter.sh/capacity-type", "In", "spot", "unknown-type")),
        pool(**requirement("kubernetes.io/arch", "NotIn", "arm64")),
        pool(**requirement("node.kubernetes.io/instance-type", "In", "m5.large")),
        pool(**requirement("team", "Exists")),
        pool(taints=[TAINT], startupTaints=[{**TAINT, "effect": "NoExecute"}]),
        pool({f"{'a' * 253}/{'b' * 63}": "c" * 63, "empty": ""}),
    ],
)
def test_valid_nodepool_has_no_errors(valid: NodePool) -> None:
    assert validate_nodepool(valid) == ()


@pytest.mark.parametrize(
    ("invalid", "expected"),
    [
        (pool({"karpenter.sh/nodepool": "other"}), "karpenter.sh/nodepool"),
        (pool({"karpenter.sh/custom": "x"}), "expected another domain"),
        (pool({"kubernetes.io/hostname": "x"}), "kubernetes.io/hostname"),
        (pool(**requirement("karpenter.sh/nodepool", "In", "other")), "remove it"),
        (pool(**requirement("kubernetes.io/hostname", "In", "a")), "remove it"),
        (
            pool(**requirement("karpenter.sh/capacity-type", "In", "cheap")),
            "never matches; expected ['on-demand', 'reserved', ",
        ),
        (pool(taints=[TAINT, {**TAINT, "value": "web"}]), "team:NoSchedule is in taints and in startupTaints"),
        (pool(taints=[TAINT], startupTaints=[TAINT]), "remove one of them"),
        (pool(nodeClassRef={"name": " \t\n" * 5_000}), "nodeClassRef.name: no object can be named ' \\t\\n "),
        (pool({"": "x"}), "metadata.labels: '': invalid key, expected e.g. example.com/team"),
        (pool({"my team": "x"}), "metadata.labels: 'my team': invalid key"),
        (pool({"a" * 64: "x"}), "metadata.labels: 'aaa"),
        (pool({f"{'a' * 254}/b": "x"}), "metadata.labels: 'aaa"),
        (pool({"team": "m l"}), "metadata.labels: 'm l': invalid value, expected at most 63 letters"),
        (pool(taints=[{**TAINT, "key": "a" * 64}]), "spec.taints: 'aaa"),
        (pool(startupTaints=[{**TAINT, "value": "a/b"}]), "spec.taints: 'a/b': invalid value"),
        (pool(**requirement("a" * 64, "Exists")), "spec.requirements: 'aaa"),
        (pool(**requirement("team", "In", "ml", "m l")), "spec.requirements: 'm l': invalid value"),
        (pool(**requirement("team", "NotIn", "x" * 64)), "spec.requirements: 'xxx"),
        (pool(nodeClassRef={"name": ".."}), "expected the name of an EC2NodeClass"),
        (pool(expireAfter="9" * 65 + "h"), "expireAfter: '999"),
        (pool(terminationGracePeriod="9" * 65 + "h"), "terminationGracePeriod: '999"),
    ],
)
def test_validation_error_names_field_and_expected_form(invalid: NodePool, expected: str) -> None:
    errors = validate_nodepool(invalid)
    assert len(errors) == 1 and expected in errors[0] and errors[0].startswith("spec.template.")


def test_invalid_annotation_key_is_an_error() -> None:
    """The API server ignores case in the keys of annotations."""
    template = {"metadata": {"annotations": {"Example.com/Owner": "x", "my owner": "x"}}}
    (error,) = validate_nodepool(NodePool.model_validate({"spec": {"template": template}}))
    assert error.startswith("spec.template.metadata.annotations: 'my owner': invalid key")


LONG = "1" * 100
DAILY = {"nodes": "1", "schedule": "@dailyx", "duration": "8h"}
BUDGET = "spec.disruption.budgets[1]: budget '1' cannot be read: schedule '@dailyx': expected five cron fields"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"limits": {"cpu": "1e1.5"}}, "spec.limits.cpu: '1e1.5' is not a quantity: write a number"),
        ({"limits": {"memory": LONG}}, "spec.limits.memory: "),
        ({"limits": {"example.com/fuse": f"1e{LONG}"}}, "spec.limits.example.com/fuse: "),
        ({"disruption": {"budgets": [{"nodes": "1"}, DAILY]}}, BUDGET),
        ({"disruption": {"budgets": [{"nodes": "1"}, {"nodes": LONG * 50}]}}, "spec.disruption.budgets[1]: "),
        ({"disruption": {"consolidateAfter": f"{LONG}h"}}, "spec.disruption.consolidateAfter: "),
        (
            {
                "template": {
                    "spec": {
                        "requirements": [
                            {"key": "team", "operator": "In", "values": ["a"]},
                            {"key": "team", "operator": "NotIn", "values": ["a"]},
                        ]
                    }
                }
            },
            "spec.template.spec.requirements: the requirements for team exclude each other",
        ),
        (
            {"template": {"spec": {"requirements": [{"key": "size", "operator": "Lt", "values": ["0"]}]}}},
            "spec.template.spec.requirements: no label value satisfies size Lte [-1]; expected a bound of 0 or more",
        ),
        (
            {"template": {"spec": {"requirements": [{"key": "team", "operator": "Gt", "values": [LONG]}]}}},
            "spec.template.spec.requirements: ",
        ),
    ],
)
def test_values_that_the_crd_accepts_and_no_plan_can_use_are_errors(spec: dict[str, Any], expected: str) -> None:
    (error,) = validate_nodepool(NodePool.model_validate({"metadata": {"name": "default"}, "spec": spec}))
    assert error.startswith(expected)


def test_all_errors_are_reported_together() -> None:
    invalid = pool(
        {"karpenter.sh/custom": "x"}, taints=[TAINT, TAINT], **requirement("kubernetes.io/hostname", "In", "a")
    )
    assert len(validate_nodepool(invalid)) == 3


def node_class(*conditions: dict[str, str], deleting: bool = False) -> EC2NodeClass:
    meta = {"name": "default", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})}
    return EC2NodeClass.model_validate({"metadata": meta, "status": {"conditions": list(conditions)}})


READY = {"type": "Ready", "status": "True", "reason": "Ready"}
FALSE = {"type": "Ready", "status": "False", "reason": "UnhealthyDependents", "message": "SubnetsReady=False"}


@pytest.mark.parametrize(
    ("found", "status", "reason", "expected"),
    [
        (None, "False", "NodeClassNotFound", "does not exist; create it"),
        (node_class(READY, deleting=True), "False", "NodeClassTerminating", "is being deleted"),
        (node_class(), "Unknown", "NodeClassReadinessUnknown", "not resolved yet"),
        (node_class({**READY, "status": "Unknown"}), "Unknown", "NodeClassReadinessUnknown", "not resolved yet"),
        (node_class(FALSE), "False", "UnhealthyDependents", "SubnetsReady=False"),
        (node_class(READY), "True", "", ""),
    ],
)
def test_nodeclass_readiness(found: EC2NodeClass | None, status: str, reason: str, expected: str) -> None:
    result = decide_nodeclass_ready("default", found)
    assert result[:2] == (status, reason) and expected in result[2]


def test_static_nodepool_without_feature_gate_is_rejected_with_advice() -> None:
    static = NodePool.model_validate({"spec": {"replicas": 0}})
    (error,) = reject_static(static)
    assert error.startswith("spec.replicas: 0: ") and "FEATURE_GATES=StaticCapacity=true" in error
    assert reject_static(NodePool()) == ()


REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def observed_pool(generation: int = 1, **status: Any) -> NodePool:
    metadata = {"name": "default", "uid": "uid", "generation": generation, "creationTimestamp": before(days=9)}
    template = {"spec": {"nodeClassRef": REFERENCE}}
    return NodePool.model_validate({"metadata": metadata, "spec": {"template": template}, "status": status})


def outcomes_of(pattern: str) -> list[StartupOutcome]:
    """Outcomes one minute apart: `+` registered, `-` failed."""
    return [
        StartupOutcome(
            uid=f"uid-{number}", at=after(minutes=number), registered=one == "+", reason="RegistrationFailed"
        )
        for number, one in enumerate(pattern)
    ]


@pytest.mark.parametrize(
    ("pattern", "status"),
    [
        ("", "Unknown"),
        ("+", "True"),
        ("-", "True"),
        ("--", "False"),
        ("-+-", "False"),
        ("-+++", "True"),
        ("--++", "False"),
        ("--+++", "True"),
        ("--++++-", "True"),
        ("+++---+", "False"),
    ],
)
def test_two_failures_among_the_last_four_starts_are_unhealthy(pattern: str, status: str) -> None:
    assert decide_healthy(add_outcomes(Registrations(), outcomes_of(pattern)))[0] == status


def test_last_failure_is_the_reason() -> None:
    failed = [
        StartupOutcome(uid="a", at=NOW, reason="RegistrationFailed", message="no Node joined"),
        StartupOutcome(uid="b", at=after(minutes=1), reason="UnauthorizedOperation", message="b: not allowed"),
    ]
    status, reason, message = decide_healthy(add_outcomes(Registrations(), failed))
    assert (status, reason) == ("False", "UnauthorizedOperation")
    assert message == "2 of the last 2 NodeClaims failed to start, the last: b: not allowed"


def test_duplicate_and_unordered_outcomes_count_once_in_order() -> None:
    outcomes = outcomes_of("-+++-")
    twice = add_outcomes(add_outcomes(Registrations(), reversed(outcomes)), outcomes)
    assert twice == add_outcomes(Registrations(), outcomes) and [one.uid for one in twice.outcomes] == [
        "uid-1",
        "uid-2",
        "uid-3",
        "uid-4",
    ]


@pytest.mark.parametrize(("generation", "class_generation"), [(2, 1), (1, 2)])
def test_change_of_nodepool_or_nodeclass_resets_registrations(generation: int, class_generation: int) -> None:
    known = add_outcomes(Registrations(generation=1, class_generation=1), outcomes_of("--"))
    assert refresh_registrations(known, observed_pool(1), 1, after(hours=1)) == known
    reset = refresh_registrations(known, observed_pool(generation), class_generation, after(hours=1))
    assert decide_healthy(reset)[0] == "Unknown"
    assert decide_healthy(add_outcomes(reset, outcomes_of("--")))[0] == "Unknown"
    later = [one.model_copy(update={"at": after(hours=2)}) for one in outcomes_of("++")]
    assert decide_healthy(add_outcomes(reset, later))[0] == "True"


@pytest.mark.parametrize(
    ("status", "observed", "seeded"),
    [("True", 1, "True"), ("False", 1, "False"), ("Unknown", 1, "Unknown"), ("False", 7, "Unknown")],
)
def test_new_workflow_continues_from_the_condition_of_the_nodepool(status: str, observed: int, seeded: str) -> None:
    condition = {
        "type": "NodeRegistrationHealthy",
        "status": status,
        "reason": "RegistrationFailed",
        "observedGeneration": observed,
        "lastTransitionTime": before(hours=1),
    }
    known = refresh_registrations(
        Registrations(), observed_pool(conditions=[condition], nodeClassObservedGeneration=3), 3, NOW
    )
    assert decide_healthy(known)[0] == seeded
    assert (known.generation, known.class_generation) == (1, 3)


def test_registered_nodeclaims_of_this_nodepool_are_outcomes() -> None:
    def claim(name: str, created: datetime, status: str) -> NodeClaim:
        registered_at = {"type": "Registered", "status": status, "reason": "x", "lastTransitionTime": NOW}
        return NodeClaim.model_validate(
            {
                "metadata": {"name": name, "uid": name, "creationTimestamp": created},
                "spec": {"nodeClassRef": REFERENCE},
                "status": {"conditions": [registered_at]},
            }
        )

    claims = [
        claim("a", before(hours=1), "True"),
        claim("b", before(hours=1), "Unknown"),
        claim("c", before(days=10), "True"),
    ]
    assert registered_outcomes(observed_pool(), claims) == [StartupOutcome(uid="a", at=NOW, registered=True)]


@pytest.mark.parametrize(
    ("phase", "reason", "rejection", "counted"),
    [
        (Phase.REGISTRATION, "RegistrationTimeout", "", True),
        (Phase.REGISTRATION, "GarbageCollected", "", False),
        (Phase.LAUNCH, "LaunchTimeout", "", True),
        (Phase.LAUNCH, "LaunchTimeout", "UnauthorizedOperation", True),
        (Phase.LAUNCH, "LaunchTimeout", "InsufficientCapacity", False),
        (Phase.LAUNCH, "InsufficientCapacity", "InsufficientCapacity", False),
        (Phase.LAUNCH, "NodeClassNotReady", "NodeClassNotReady", False),
        (Phase.INITIALIZATION, "InitializationTimeout", "", False),
        (Phase.READY, "GarbageCollected", "", False),
    ],
)
def test_failures_that_count_against_a_nodepool(phase: Phase, reason: str, rejection: str, counted: bool) -> None:
    assert counts_as_failure(phase, reason, rejection) is counted
