"""Karpenter's settings by variable: the equivalent setting of Tenure, and settings without an equivalent."""

import pytest

from tenure.cli.adopt.karpenter_settings import SettingComparison, check_settings, compare_settings, inherit_settings
from tenure.kube.adapters.workloads import DeploymentState

CHART = {
    "CLUSTER_NAME": "demo",
    "KARPENTER_SERVICE": "karpenter",
    "BATCH_IDLE_DURATION": "1s",
    "VM_MEMORY_OVERHEAD_PERCENT": "0.075",
    "FEATURE_GATES": "ReservedCapacity=true,SpotToSpotConsolidation=true,SomethingOld=true",
    "INTERRUPTION_QUEUE": "demo",
    "METRICS_PORT": "8080",
}


def make_deployment_state(environment: dict[str, str], name: str = "karpenter", **more: object) -> DeploymentState:
    return DeploymentState.model_validate(
        {"namespace": "kube-system", "name": name, "replicas": 2, "environment": environment, **more}
    )


def compare_by_variable(
    environment: dict[str, str], tenure: dict[str, str] | None = None
) -> dict[str, SettingComparison]:
    ours = make_deployment_state(tenure, "tenure") if tenure is not None else None
    return {one.variable: one for one in compare_settings(make_deployment_state(environment), ours)}


def test_settings_for_new_installation_are_listed() -> None:
    found = compare_by_variable(CHART)
    assert (found["CLUSTER_NAME"].outcome, found["CLUSTER_NAME"].tenure) == ("set", "demo")
    assert found["FEATURE_GATES"].tenure == "ReservedCapacity=true,SpotToSpotConsolidation=true"
    assert found["KARPENTER_SERVICE"].todo.startswith("nothing")
    assert found["METRICS_PORT"].todo == "nothing: Tenure's chart sets its own"
    assert {one.level for one in check_settings(list(found.values()))} == {"ok"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("FEATURE_GATES", "NodeRepair=true,TerminateFirstRepair=true"),
        ("FEATURE_GATES", "PodDeletionCostManagement=true"),
        ("AWS_FEATURE_GATES", "DRANVIDIAGPU=true,RebootForRepair=True"),
        ("LEGACY_NODE_REPAIR", "false"),
        ("SECURITY_GROUP_REFRESH_INTERVAL", "1m"),
    ],
)
def test_gates_and_settings_of_karpenter_1_15_are_copied(variable: str, value: str) -> None:
    [row] = compare_settings(make_deployment_state({variable: value}), None)
    assert (row.tenure, row.outcome, row.to_finding()) == (value, "set", None)


@pytest.mark.parametrize(("ours", "outcome"), [("60m", "same"), ("1h", "same"), ("2h", "differs"), (None, "differs")])
def test_values_are_compared_by_meaning(ours: str | None, outcome: str) -> None:
    tenure = {"CLUSTER_NAME": "demo"} | ({"AMI_REFRESH_INTERVAL": ours} if ours else {})
    assert (
        compare_by_variable({"CLUSTER_NAME": "demo", "AMI_REFRESH_INTERVAL": "1h"}, tenure)[
            "AMI_REFRESH_INTERVAL"
        ].outcome
        == outcome
    )


def test_karpenter_default_needs_no_setting() -> None:
    assert compare_by_variable({"BATCH_IDLE_DURATION": "1s"}, {})["BATCH_IDLE_DURATION"].outcome == "same"


@pytest.mark.parametrize(
    ("variable", "value", "level"),
    [
        ("CLUSTER_NAME", "other", "problem"),
        ("LEADER_ELECTION_NAME", "mine", "problem"),
        ("INTERRUPTION_QUEUE", "queue", "advice"),
        ("VM_MEMORY_OVERHEAD_PERCENT", "seven", "problem"),
        ("DISABLE_LEADER_ELECTION", "true", "advice"),
        ("HTTPS_PROXY", "http://proxy:3128", "advice"),
    ],
)
def test_different_value_is_reported_with_fix(variable: str, value: str, level: str) -> None:
    found = compare_by_variable({variable: value}, {"CLUSTER_NAME": "demo"})[variable].to_finding()
    assert found is not None and found.level == level and found.todo and value in found.subject


def test_value_from_other_object_needs_manual_check() -> None:
    karpenter = make_deployment_state({}, external_variables=("MEMORY_LIMIT", "ConfigMap more"))
    (row,) = compare_settings(karpenter, None)
    assert (row.variable, row.outcome) == ("ConfigMap more", "elsewhere")


def test_settings_of_tenure_deployment_take_precedence() -> None:
    found = inherit_settings(
        make_deployment_state(CHART),
        make_deployment_state({"BATCH_IDLE_DURATION": "3s", "TEMPORAL_ADDRESS": "in-cluster:7233"}, "tenure"),
    )
    assert (found["CLUSTER_NAME"], found["BATCH_IDLE_DURATION"]) == ("demo", "3s")
    assert found["SYSTEM_NAMESPACE"] == "kube-system"
    assert not {"TEMPORAL_ADDRESS", "METRICS_PORT", "KARPENTER_SERVICE"} & found.keys()


def test_invalid_karpenter_value_is_not_inherited() -> None:
    assert "VM_MEMORY_OVERHEAD_PERCENT" not in inherit_settings(
        make_deployment_state({"VM_MEMORY_OVERHEAD_PERCENT": "seven"}), None
    )


def test_gates_may_have_spaces_as_in_karpenter() -> None:
    (row,) = compare_settings(make_deployment_state({"FEATURE_GATES": "NodeRepair = true"}), None)
    assert row.tenure == "NodeRepair = true"
