"""Eviction blockers of pods: cause, arithmetic, and whether the blocker can clear on its own."""

from typing import Any

import pytest

from tenure.model.disruption.drain import EvictionBlocker
from tenure.model.disruption.pod_budgets import PodBudgetIndex
from tenure.model.facts import Expression, PodDisruptionBudgetFact, Selector, matches_selector
from tenure.model.provider_results import AttachedVolume, Eviction
from tenure.policy.drain import blockers
from tenure.policy.drain.blockers import budget_blocker
from tests.unit.policy.builders import NOW, after, before
from tests.unit.policy.drain.drain_builders import WEB, budget, pod

ONE_POD: dict[str, Any] = {"min_available": "", "expected": 1, "current": 0}
REJECTED = Eviction(pod="default/web", accepted=False, blocked_by="message of the API server")


def blocker_for(*budgets: PodDisruptionBudgetFact, **fields: Any) -> EvictionBlocker:
    return budget_blocker(pod(**fields), REJECTED, PodBudgetIndex(budgets))


def test_budget_blocker_contains_the_arithmetic() -> None:
    found = blocker_for(budget())
    assert (
        found.what
        == "PodDisruptionBudget default/web: minAvailable 2, 2 of 2 pods healthy, 2 needed, 0 disruptions allowed"
    )
    assert (found.subject, found.owner, found.cause) == ("default/web", "ReplicaSet web-5d9", "budget")


@pytest.mark.parametrize(
    ("found", "passes", "hint"),
    [
        (budget(), "never", "scale the workload up"),
        (budget(min_available="", max_unavailable="0"), "never", "allow one of them"),
        (budget(min_available="100%", expected=3, desired=3, current=3), "never", "needs all 3 pods"),
        (budget(expected=3, current=2), "can", "1 more of its pods must be Ready"),
        (budget(expected=4, desired=3, current=1), "can", "3 more of its pods must be Ready"),
        (budget(expected=3, current=3, allowed=1), "can", ""),
        (budget(counted=False), "can", "not observed its latest change"),
        (budget(sync_failed="no scale for Foo"), "never", "no scale for Foo"),
        (budget(expected=0, desired=0, current=0), "can", "1 more of its pods must be Ready"),
    ],
)
def test_budget_blocker_tells_whether_it_can_clear_on_its_own(
    found: PodDisruptionBudgetFact, passes: str, hint: str
) -> None:
    blocker = blocker_for(found)
    assert blocker.passes == passes and hint in blocker.hint and bool(blocker.hint) == bool(hint)


ALWAYS_ALLOW = "set unhealthyPodEvictionPolicy: AlwaysAllow"


@pytest.mark.parametrize(
    ("fields", "passes", "hint"),
    [
        (ONE_POD | {"max_unavailable": "1", "desired": 0}, "can", f"this pod is not Ready: fix it, or {ALWAYS_ALLOW}"),
        (ONE_POD | {"min_available": "1", "desired": 1}, "never", f"this pod is not Ready: {ALWAYS_ALLOW}"),
        ({"current": 1}, "never", f"this pod is not Ready: {ALWAYS_ALLOW}"),
        ({"expected": 3, "current": 1}, "can", f"nor enough other pods are Ready: fix them, or {ALWAYS_ALLOW}"),
        ({"sync_failed": "no scale for Foo"}, "never", f"this pod is not Ready: {ALWAYS_ALLOW}"),
        ({"counted": False}, "can", ALWAYS_ALLOW),
    ],
    ids=["maxUnavailable", "minAvailable", "all needed", "others", "not counted by its controller", "outdated"],
)
def test_hint_for_an_unready_pod_names_always_allow(fields: dict[str, Any], passes: str, hint: str) -> None:
    found = blocker_for(budget(**fields), ready=False)
    assert found.passes == passes and hint in found.hint
    allowed = blocker_for(budget(**fields, always_allow_unhealthy=True), ready=False)
    assert allowed.passes == passes and "AlwaysAllow" not in allowed.hint


def test_two_budgets_of_one_pod_never_clear() -> None:
    found = blocker_for(budget("b"), budget("a"))
    assert found.cause == "budgets" and found.passes == "never" and "a, b" in found.what
    rejected_by_server = budget_blocker(pod(), REJECTED.model_copy(update={"multiple_budgets": True}), PodBudgetIndex())
    assert rejected_by_server.cause == "budgets" and rejected_by_server.passes == "never"


def test_budgets_of_other_pods_and_namespaces_are_ignored() -> None:
    others = (budget("x", namespace="other"), budget("y", selector=None))
    assert blocker_for(*others).what == "message of the API server"
    assert "default/web" in blocker_for(*others, budget()).what


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ((), True),
        (WEB, True),
        ((Expression(key="app", operator="NotIn", values=("db",)),), True),
        ((Expression(key="tier", operator="NotIn", values=("db",)),), True),
        ((Expression(key="app", operator="Exists"),), True),
        ((Expression(key="app", operator="DoesNotExist"),), False),
        ((*WEB, Expression(key="tier", operator="Exists")), False),
        ((Expression(key="app", operator="In", values=("web", "db")), *WEB), True),
        ((Expression(key="app", operator="In", values=("db",)), *WEB), False),
        ((Expression(key="app", operator="Exists"), Expression(key="app", operator="In", values=("db",))), False),
        ((*WEB, Expression(key="app", operator="NotIn", values=("web",))), False),
        ((*WEB, Expression(key="app", operator="DoesNotExist")), False),
    ],
)
def test_selector_matches_labels(selector: Selector | None, selected: bool) -> None:
    assert matches_selector(selector, {"app": "web"}) is selected
    assert bool(PodBudgetIndex([budget(selector=selector)]).selecting_budgets(pod())) is selected


def test_do_not_disrupt_clears_at_its_end_or_never() -> None:
    permanent = blockers.do_not_disrupt_blocker(pod(why_not="annotation karpenter.sh/do-not-disrupt=true"))
    assert permanent.passes == "never" and "remove the annotation" in permanent.hint
    temporary = blockers.do_not_disrupt_blocker(pod(why_not="...=1h", protected_until=after(minutes=5)))
    assert (temporary.passes, temporary.passes_at) == ("at", after(minutes=5))
    assert "passes at 2026-06-01T12:05:00+00:00" in temporary.description


def test_terminating_pod_has_start_and_end_of_its_termination() -> None:
    found = blockers.terminating_blocker(pod(grace_seconds=300, deletion=after(seconds=200)))
    assert (found.since, found.passes_at) == (before(seconds=100), after(seconds=260))
    assert "grace period of 300 s" in found.what


VOLUME = AttachedVolume(attachment="csi-1", driver="ebs.csi.aws.com", volume="pvc-1", claim="default/data")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "from NodeClaim web-1; may clear on its own: kube-controller-manager has not deleted it"),
        (
            {"detaching": True},
            "from NodeClaim web-1; may clear on its own: check that the controller of ebs.csi.aws.com",
        ),
        ({"detaching": True, "error": "denied"}, "NodeClaim web-1: denied; may clear on its own: fix the error of ebs"),
    ],
)
def test_volume_is_named_with_the_remedy_for_its_cause(fields: dict[str, Any], expected: str) -> None:
    found = blockers.volume_blocker(VOLUME.model_copy(update=fields), "web-1").description
    assert found.startswith(
        "VolumeAttachment csi-1: ebs.csi.aws.com has not detached PersistentVolume pvc-1 "
        "of PersistentVolumeClaim default/data from NodeClaim web-1"
    )
    assert expected in found


def test_other_blockers_name_their_object_or_give_a_hint() -> None:
    assert "webhook" in blockers.rejection_blocker(pod(), "denied by x").hint
    surge = blockers.surge_blocker(pod(), "web", after(minutes=10))
    assert surge.passes_at == after(minutes=10) and "Deployment web" in surge.summary
    assert blockers.terminating_blocker(pod(deletion=NOW)).describe_prospect.startswith("passes at")
