"""Tolerations as in kube-scheduler, and taints that planning ignores."""

import pytest

from tenure.model.facts import Taint, Toleration
from tenure.scheduling.taints import (
    first_untolerated,
    format_taint,
    tolerates,
    without_startup_taints,
    without_transient,
)
from tests.unit.scheduling.builders import taint

GPU = taint("gpu", "yes")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="gpu", value="yes"), True),
        (Toleration(key="gpu", value="yes", operator=""), True),
        (Toleration(key="gpu", value="no"), False),
        (Toleration(key="gpu"), False),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(value="yes"), False),
    ],
)
def test_toleration_covers_a_taint(toleration: Toleration, covers: bool) -> None:
    assert tolerates(toleration, GPU) is covers


def test_first_untolerated_taint_is_returned() -> None:
    found = first_untolerated([Toleration(key="a", operator="Exists")], [taint("a"), taint("b"), taint("c")])
    assert found is not None
    assert format_taint(found) == "b:NoSchedule"
    assert format_taint(GPU) == "gpu=yes:NoSchedule"


def test_prefer_no_schedule_taints_count_until_preferences_are_dropped() -> None:
    soft = taint("soft", effect="PreferNoSchedule")
    assert first_untolerated([], [soft]) == soft
    assert first_untolerated([], [soft], tolerate_preferences=True) is None


@pytest.mark.parametrize(
    ("one", "is_transient"),
    [
        (taint("node.kubernetes.io/not-ready"), True),
        (taint("node.kubernetes.io/not-ready", effect="NoExecute"), True),
        (taint("node.kubernetes.io/unreachable"), True),
        (taint("node.kubernetes.io/unreachable", effect="NoExecute"), False),
        (taint("node.cloudprovider.kubernetes.io/uninitialized", "true"), True),
        (taint("karpenter.sh/unregistered", effect="NoExecute"), True),
        (taint("readiness.k8s.io/gpu-driver"), True),
        (taint("startup.example.com/agent", "other"), True),
        (taint("startup.example.com/agent", effect="NoExecute"), False),
        (taint("node.kubernetes.io/memory-pressure"), False),
        (taint("team", "red"), False),
    ],
)
def test_startup_taints_are_ignored_on_starting_nodes(one: Taint, is_transient: bool) -> None:
    remaining = without_startup_taints([one], [taint("startup.example.com/agent", "value")])
    assert (not remaining) is is_transient


@pytest.mark.parametrize(
    ("one", "passes"),
    [
        (taint("node.kubernetes.io/not-ready"), True),
        (taint("node.kubernetes.io/unreachable", effect="NoExecute"), True),
        (taint("node.kubernetes.io/network-unavailable"), True),
        (taint("node.cloudprovider.kubernetes.io/uninitialized", "true"), True),
        (taint("readiness.k8s.io/gpu-driver"), True),
        (taint("cni.example.com/agent", "other", effect="NoExecute"), True),
        (taint("cni.example.com/agent"), False),
        (taint("node.kubernetes.io/memory-pressure"), False),
        (taint("node.kubernetes.io/unschedulable"), False),
        (taint("karpenter.sh/disrupted"), False),
        (taint("team"), False),
    ],
)
def test_transient_taints_are_ignored_on_expected_nodes(one: Taint, passes: bool) -> None:
    remaining = without_transient([one], [taint("cni.example.com/agent", "value", effect="NoExecute")])
    assert (not remaining) is passes
