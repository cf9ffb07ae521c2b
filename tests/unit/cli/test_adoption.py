"""What stands in the way of taking a cluster over: every finding names the object, the field, and what to do."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from _pytest.capture import CaptureFixture

from tenure.apis import labels
from tenure.aws.nodeclass.instance_profiles import ProfileInUse
from tenure.cli.adopt.checks import of_classes, of_controller, of_nodes, of_objects
from tenure.cli.adopt.preview import Report, as_json, as_tables
from tenure.cli.console import draw
from tenure.cli.main import main
from tenure.controller.adoption_preview import Foreseen, Taken
from tenure.kube.adapters.cluster import LeaseSeen
from tenure.kube.adapters.workloads import Deployed
from tenure.model.errors import Finding, has_problem
from tenure.model.provider_results import ConditionPatch, Resolved
from tenure.policy.disruption.drift import Drift
from tenure.policy.lifecycle.adoption import decide_first_phase
from tenure.settings import load
from tests.support.controller.builders import Json, at, claim_fact, node_class, node_fact, pool
from tests.unit.policy.drifting import instance

TAGS = {labels.TAG_NODEPOOL: "general", labels.TAG_NODECLASS: "default", labels.TAG_EKS_CLUSTER_NAME: "demo"}
KARPENTER = Deployed(namespace="kube-system", name="karpenter", replicas=2, image="karpenter/controller:1.14.1")
STAYS = ProfileInUse(name="demo_123", there=True, whose="Karpenter's")


def lease(seconds: float) -> LeaseSeen:
    return LeaseSeen(namespace="kube-system", holder="karpenter-7d9", renewed=at(-seconds), lasts=timedelta(seconds=15))


def taken(drift: Drift | None = None, *, judged: bool = True, tagged: bool = True, **facts: Any) -> Taken:
    claim = claim_fact(**{"launched": True, "registered": True, "initialized": True, **facts})
    there = instance(tags=TAGS) if claim.provider_id else None
    return Taken(claim, decide_first_phase(claim), node_fact(), there, tagged, drift, judged)


def foreseen(*claims: Taken, **more: Any) -> Foreseen:
    fields: dict[str, Any] = {"at": at(0), "objects": {}, "unreadable": (), "claims": claims}
    return Foreseen(**{**fields, **more})


def told(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    assert all(one.todo for one in findings if one.level in ("advice", "problem", "unknown"))
    return [(one.level, one.subject) for one in findings if one.level != "ok"]


# --- who is at work ---


def test_a_leader_whose_deployment_is_there_is_nothing_in_the_way() -> None:
    found = of_controller([lease(5)], KARPENTER, "kube-system/karpenter", at(0))
    assert told(found) == []
    assert "karpenter-7d9 leads, renewed 5 s ago" in found[0].said and "1.14.1" in found[-1].said


def test_a_leader_of_no_known_deployment_is() -> None:
    found = of_controller([lease(5)], None, "kube-system/karpenter", at(0))
    assert told(found) == [("problem", "Deployment kube-system/karpenter")]
    assert told(of_controller([lease(60)], None, "kube-system/karpenter", at(0))) == []


# --- objects ---


def test_objects_that_a_worker_would_refuse_are_problems() -> None:
    reserved, static, foreign = pool("reserved"), pool("static", replicas=2), pool("foreign")
    reserved["spec"]["template"]["metadata"] = {"labels": {"karpenter.sh/mine": "1"}}
    foreign["spec"]["template"]["spec"]["nodeClassRef"] = {"group": "x.io", "kind": "KwokNodeClass", "name": "a"}
    objects = {"nodepools": [pool(), reserved, static, foreign]}
    seen = foreseen(objects=objects, unreadable=(("EC2NodeClass", "odd", "spec.role: too long"),))
    assert told(of_objects(seen, static=False)) == [
        ("problem", "EC2NodeClass odd"),
        ("problem", "NodePool reserved"),
        ("problem", "NodePool static"),
        ("advice", "NodePool foreign"),
    ]
    assert ("problem", "NodePool static") not in told(of_objects(seen, static=True))


# --- classes ---


def a_class(profile: str = "demo_123", name: str = "default") -> Json:
    raw = node_class(name)
    raw["status"] = {"instanceProfile": profile}
    return raw


def classes(answer: Resolved | None, profile: ProfileInUse | str = STAYS, raw: Json | None = None) -> list[Finding]:
    return of_classes({"default": answer} if answer else {}, {"default": profile}, [raw or a_class()])


def test_a_class_whose_profile_stays_in_use_is_well() -> None:
    (only,) = classes(Resolved(status={}, conditions=()))
    assert only.level == "ok" and "demo_123 (Karpenter's) stays in use" in only.said


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        (None, "advice"),
        (
            Resolved(status={}, conditions=(ConditionPatch(type="AMIsReady", status="False", reason="AMINotFound"),)),
            "problem",
        ),
        (Resolved(status={}, conditions=(), unanswered=("SubnetsReady: throttled",)), "unknown"),
        (Resolved(status={}, conditions=(), ca_bundle=None), "unknown"),
    ],
    ids=["going", "selects nothing", "AWS silent", "no certificate"],
)
def test_what_a_class_does_not_resolve_to_is_said(answer: Resolved | None, level: str) -> None:
    assert told(classes(answer)) == [(level, "EC2NodeClass default")]


def test_another_profile_for_nodes_to_come_is_said_and_stops_nobody() -> None:
    other = ProfileInUse(name="demo_456", there=False, whose="Tenure's")
    assert told(classes(Resolved(status={}, conditions=()), other)) == [("advice", "EC2NodeClass default")]
    assert told(classes(Resolved(status={}, conditions=()), "not allowed")) == [("unknown", "EC2NodeClass default")]


# --- nodes ---


def test_a_node_that_goes_on_as_it_is_has_no_finding() -> None:
    (only,) = of_nodes(foreseen(taken()))
    assert only.said == "1 of 1 would be taken over as they are"


AMI = Drift(reason="AMIDrift", message="m5.large runs ami-old")


@pytest.mark.parametrize(
    ("one", "level", "words"),
    [
        (taken(AMI), "problem", "AMIDrift: m5.large runs ami-old"),
        (taken(AMI, drifted="AMIDrift"), "advice", "drifted already"),
        (taken(judged=False), "problem", "nobody can tell"),
        (taken(deleting=True), "advice", "being deleted"),
        (taken(provider_id="", launched=False), "advice", "no instance yet"),
        (taken(tagged=False), "advice", "not found by its tags"),
        (taken(disruption="Underutilized"), "advice", "about to disrupt"),
        (taken(expire_after_seconds=10), "advice", "has expired"),
        (taken(expire_after_seconds=1000), "advice", "expires at 12:15 UTC"),
    ],
    ids=["drifts", "drifted", "unknown", "going", "launching", "untagged", "disrupted", "expired", "expires"],
)
def test_what_would_become_of_a_node_is_said(one: Taken, level: str, words: str) -> None:
    assert told(of_nodes(foreseen(one))) == [(level, "NodeClaim c1")]
    assert words in of_nodes(foreseen(one))[-1].said


def test_one_that_only_karpenter_calls_drifted_is_well() -> None:
    found = of_nodes(foreseen(taken(drifted="AMIDrift")))
    assert not told(found) and "with Tenure it would not be" in found[-1].said


def test_an_instance_of_nobodys_is_named() -> None:
    found = of_nodes(foreseen(unowned=(instance(instance_id="i-stray", zone="us-west-2a"),)))
    assert told(found) == [("advice", "instance i-stray")]


# --- written ---


def a_report(*findings: Finding, **more: Any) -> Report:
    return Report(load(["--cluster-name=demo"]), findings, (lease(5),), KARPENTER, **more)


def test_scripts_read_the_same_as_people(capsys: CaptureFixture[str]) -> None:
    seen = foreseen(taken(AMI), taken(drifted="AMIDrift"))
    found = a_report(*of_nodes(seen), foreseen=seen, profiles={"default": STAYS})
    draw("json", as_json(found), *as_tables(found))
    read = json.loads(capsys.readouterr().out)
    assert read["ready"] is False is not has_problem(found.findings)
    assert [one["drift"] and one["drift"]["reason"] for one in read["nodeClaims"]] == ["AMIDrift", None]
    assert read["instanceProfiles"]["default"]["name"] == "demo_123" and read["wouldLaunch"] is None
    draw("table", as_json(found), *as_tables(found))
    shown = capsys.readouterr().out
    assert "AMIDrift" in shown and "Something stands in the way" in shown


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--dry-run", "--back"], "give one"),
        (["--karpenter", "karpenter"], "write namespace/name"),
        (["--within", "soon"], "--within"),
        (["--kubeconfig", "/no/such", "--yes"], "/no/such"),
        (["--kubeconfic", "x"], "not known"),
    ],
)
def test_a_wrong_option_is_one_line(wrong: list[str], words: str, capsys: CaptureFixture[str]) -> None:
    assert main(["adopt", *wrong]) == 2
    said = capsys.readouterr().err
    assert words in said and len(said.splitlines()) == 1
