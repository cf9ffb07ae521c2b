"""Adoption checks: each finding names the object, the field and the fix."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.aws.nodeclass.instance_profiles import ProfileInUse
from tenure.cli.adopt.checks import check_adopted_objects, check_controllers, check_nodeclasses, check_nodes
from tenure.cli.adopt.preview import AdoptionReport, as_json, format_report
from tenure.controller.adoption_preview import AdoptedNodeClaim, AdoptionPreview
from tenure.kube.adapters.cluster import ObservedLease
from tenure.kube.adapters.workloads import DeploymentState
from tenure.model.errors import Finding, has_problem
from tenure.model.provider_results import ConditionPatch, ResolvedNodeClass
from tenure.policy.disruption.drift import Drift
from tenure.policy.lifecycle.adoption import decide_first_phase
from tenure.settings import load
from tests.support.controller.builders import Json, at, claim_fact, node_class, node_fact, pool
from tests.unit.policy.drift_builders import instance

TAGS = {labels.TAG_NODEPOOL: "general", labels.TAG_NODECLASS: "default", labels.TAG_EKS_CLUSTER_NAME: "demo"}
KARPENTER = DeploymentState(namespace="kube-system", name="karpenter", replicas=2, image="karpenter/controller:1.14.1")
PROFILE_IN_USE = ProfileInUse(name="demo_123", there=True, whose="Karpenter's")


def lease(seconds: float) -> ObservedLease:
    return ObservedLease(
        namespace="kube-system",
        name="karpenter-leader-election",
        holder="karpenter-7d9",
        renewed=at(-seconds),
        acquired=at(-seconds),
        duration=timedelta(seconds=15),
    )


def adopted_nodeclaim(
    drift: Drift | None = None, *, is_evaluated: bool = True, tagged: bool = True, **facts: Any
) -> AdoptedNodeClaim:
    claim = claim_fact(**{"launched": True, "registered": True, "initialized": True, **facts})
    there = instance(tags=TAGS) if claim.provider_id else None
    return AdoptedNodeClaim(claim, decide_first_phase(claim), node_fact(), there, tagged, drift, is_evaluated)


def make_preview(*claims: AdoptedNodeClaim, **more: Any) -> AdoptionPreview:
    fields: dict[str, Any] = {"at": at(0), "objects": {}, "unreadable": (), "claims": claims}
    return AdoptionPreview(**{**fields, **more})


def levels_and_subjects(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    assert all(one.todo for one in findings if one.level in ("advice", "problem", "unknown"))
    return [(one.level, one.subject) for one in findings if one.level != "ok"]


# --- controllers ---


def test_leader_with_known_deployment_is_ok() -> None:
    found = check_controllers([lease(5)], KARPENTER, "kube-system/karpenter", at(0))
    assert levels_and_subjects(found) == []
    assert "karpenter-7d9 leads, renewed 5 s ago" in found[0].message and "1.14.1" in found[-1].message


def test_leader_without_known_deployment_is_a_problem() -> None:
    found = check_controllers([lease(5)], None, "kube-system/karpenter", at(0))
    assert levels_and_subjects(found) == [("problem", "Deployment kube-system/karpenter")]
    assert levels_and_subjects(check_controllers([lease(60)], None, "kube-system/karpenter", at(0))) == []


# --- objects ---


def test_invalid_objects_are_problems() -> None:
    reserved, static, foreign = pool("reserved"), pool("static", replicas=2), pool("foreign")
    reserved["spec"]["template"]["metadata"] = {"labels": {"karpenter.sh/mine": "1"}}
    foreign["spec"]["template"]["spec"]["nodeClassRef"] = {"group": "x.io", "kind": "KwokNodeClass", "name": "a"}
    objects = {"nodepools": [pool(), reserved, static, foreign]}
    preview = make_preview(objects=objects, unreadable=(("EC2NodeClass", "odd", "spec.role: too long"),))
    assert levels_and_subjects(check_adopted_objects(preview, static=False)) == [
        ("problem", "EC2NodeClass odd"),
        ("problem", "NodePool reserved"),
        ("problem", "NodePool static"),
        ("advice", "NodePool foreign"),
    ]
    assert ("problem", "NodePool static") not in levels_and_subjects(check_adopted_objects(preview, static=True))


# --- classes ---


def make_nodeclass(profile: str = "demo_123", name: str = "default") -> Json:
    raw = node_class(name)
    raw["status"] = {"instanceProfile": profile}
    return raw


def check_one_nodeclass(
    resolution: ResolvedNodeClass | None, profile: ProfileInUse | str = PROFILE_IN_USE, raw: Json | None = None
) -> list[Finding]:
    return check_nodeclasses(
        {"default": resolution} if resolution else {}, {"default": profile}, [raw or make_nodeclass()]
    )


def test_nodeclass_with_profile_in_use_is_ok() -> None:
    (only,) = check_one_nodeclass(ResolvedNodeClass(status={}, conditions=()))
    assert only.level == "ok" and "demo_123 (Karpenter's) stays in use" in only.message


@pytest.mark.parametrize(
    ("resolution", "level"),
    [
        (None, "advice"),
        (
            ResolvedNodeClass(
                status={},
                conditions=(
                    ConditionPatch(type="SubnetsReady", status="True"),
                    ConditionPatch(type="AMIsReady", status="False", reason="AMINotFound"),
                ),
            ),
            "problem",
        ),
        (ResolvedNodeClass(status={}, conditions=(), failed_lookups=("SubnetsReady: throttled",)), "unknown"),
        (ResolvedNodeClass(status={}, conditions=(), ca_bundle=None), "unknown"),
    ],
    ids=["deleting", "selects nothing", "AWS unavailable", "no certificate"],
)
def test_unresolved_nodeclass_is_reported(resolution: ResolvedNodeClass | None, level: str) -> None:
    assert levels_and_subjects(check_one_nodeclass(resolution)) == [(level, "EC2NodeClass default")]


def test_other_profile_for_new_nodes_is_advice() -> None:
    other = ProfileInUse(name="demo_456", there=False, whose="Tenure's")
    assert levels_and_subjects(check_one_nodeclass(ResolvedNodeClass(status={}, conditions=()), other)) == [
        ("advice", "EC2NodeClass default")
    ]
    assert levels_and_subjects(check_one_nodeclass(ResolvedNodeClass(status={}, conditions=()), "not allowed")) == [
        ("unknown", "EC2NodeClass default")
    ]


# --- nodes ---


def test_unchanged_node_has_no_finding() -> None:
    (only,) = check_nodes(make_preview(adopted_nodeclaim()))
    assert only.message == "1 of 1 would be taken over as they are"


AMI = Drift(reason="AMIDrift", message="m5.large runs ami-old")


@pytest.mark.parametrize(
    ("one", "level", "text"),
    [
        (adopted_nodeclaim(AMI), "problem", "AMIDrift: m5.large runs ami-old"),
        (adopted_nodeclaim(AMI, drifted="AMIDrift"), "advice", "remains drifted"),
        (adopted_nodeclaim(is_evaluated=False), "problem", "drift is unknown"),
        (adopted_nodeclaim(deleting=True), "advice", "being deleted"),
        (adopted_nodeclaim(provider_id="", launched=False), "advice", "no instance yet"),
        (adopted_nodeclaim(tagged=False), "advice", "not found by its tags"),
        (adopted_nodeclaim(disruption="Underutilized"), "advice", "about to disrupt"),
        (adopted_nodeclaim(expire_after_seconds=10), "advice", "has expired"),
        (adopted_nodeclaim(expire_after_seconds=1000), "advice", "expires at 12:15 UTC"),
    ],
    ids=["drifts", "drifted", "unknown", "deleting", "launching", "untagged", "disrupted", "expired", "expires"],
)
def test_affected_node_is_reported(one: AdoptedNodeClaim, level: str, text: str) -> None:
    assert levels_and_subjects(check_nodes(make_preview(one))) == [(level, "NodeClaim c1")]
    assert text in check_nodes(make_preview(one))[-1].message


def test_node_drifted_only_for_karpenter_is_ok() -> None:
    found = check_nodes(make_preview(adopted_nodeclaim(drifted="AMIDrift")))
    assert not levels_and_subjects(found) and "Tenure would not" in found[-1].message


def test_unowned_instance_is_named() -> None:
    found = check_nodes(make_preview(unowned=(instance(instance_id="i-stray", zone="us-west-2a"),)))
    assert levels_and_subjects(found) == [("advice", "instance i-stray")]


# --- output ---


def make_report(*findings: Finding, **more: Any) -> AdoptionReport:
    return AdoptionReport(load(["--cluster-name=demo"]), findings, (lease(5),), KARPENTER, **more)


def test_json_and_text_reports_agree() -> None:
    preview = make_preview(adopted_nodeclaim(AMI), adopted_nodeclaim(drifted="AMIDrift"))
    found = make_report(*check_nodes(preview), preview=preview, profiles={"default": PROFILE_IN_USE})
    read = json.loads(json.dumps(as_json(found)))
    assert read["ready"] is False is not has_problem(found.findings)
    assert [one["drift"] and one["drift"]["reason"] for one in read["nodeClaims"]] == ["AMIDrift", None]
    assert read["instanceProfiles"]["default"]["name"] == "demo_123" and read["wouldLaunch"] is None
    output = "\n".join(map(str, format_report(found)))
    assert "AMIDrift" in output and "Not ready: " in output


def test_instance_that_ec2_does_not_show_is_not_reported_as_missing() -> None:
    unknown = replace(adopted_nodeclaim(), instance=None, fault="throttled")
    (found,) = [one for one in check_nodes(make_preview(unknown)) if one.level != "ok"]
    assert (found.level, "throttled" in found.message, "garbage collection" in found.todo) == ("unknown", True, False)
