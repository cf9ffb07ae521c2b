"""Karpenter's settings, variable by variable: the value for Tenure, or what to do about one that it does not have.

Pure, over the environments of both Deployments. `adopt.py` shows the rows, and takes from here what nobody told it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tenure.apis.durations import DurationError
from tenure.kube.adapters.workloads import DeploymentState
from tenure.model.errors import Finding, advice_finding, ok_finding, problem_finding
from tenure.settings import AWS_GATES, GATES, Settings, SettingsError, load

AREA: Final = "settings"
Verdict = Literal["same", "set", "differs", "none", "elsewhere", "wrong"]
_SET_BY_CHART: Final = frozenset({"SYSTEM_NAMESPACE", "METRICS_PORT", "HEALTH_PROBE_PORT", "KUBECONFIG"})
"""Each chart sets them for its own pods."""
_GATED: Final = {"FEATURE_GATES": GATES, "AWS_FEATURE_GATES": AWS_GATES}
_MUST_AGREE: Final = ("CLUSTER_NAME", "LEADER_ELECTION_NAME")
"""By the first instances are found, by the second Karpenter is."""
_CONFIGURED_ELSEWHERE: Final = {
    "KARPENTER_SERVICE": "nothing: the chart names the Service",
    "KUBERNETES_MIN_VERSION": "nothing",
    "LOG_OUTPUT_PATHS": "nothing: logs go to stdout",
    "LOG_ERROR_OUTPUT_PATHS": "nothing: logs go to stdout",
    "CPU_REQUESTS": "nothing: `resources` of the chart",
    "MEMORY_LIMIT": "nothing: `resources` of the chart",
    "ENABLE_PROFILING": "nothing",
    "DISABLE_CONTROLLER_WARMUP": "nothing: there is no leader to warm up for",
    "LEADER_ELECTION_NAMESPACE": "nothing: the lease is looked for in every namespace",
    "DISABLE_CLUSTER_STATE_OBSERVABILITY": "nothing",
    "EKS_CONTROL_PLANE": "nothing",
}
_UNSUPPORTED: Final = {
    "IGNORE_DRA_REQUESTS": ("true", "Tenure does not plan for ResourceClaims: keep such pods on nodes of their own"),
    "SCHEDULER_CONFIG": ("", "write its default constraints into the pods as topologySpreadConstraints"),
    "DISABLE_LEADER_ELECTION": (
        "false",
        "no lease tells that Karpenter runs: see to it yourself that it does not when a worker starts",
    ),
}
"""What Tenure has nothing for, with the value at which nothing is missed."""


@dataclass(frozen=True)
class SettingComparison:
    variable: str
    karpenter: str
    tenure: str
    """What its Deployment says; where there is none, what is to be set."""
    verdict: Verdict
    todo: str = ""

    def to_finding(self) -> Finding | None:
        subject = f"{self.variable}={self.karpenter!r}"
        match self.verdict:
            case "wrong":
                return problem_finding(AREA, subject, "Tenure does not take this value", self.todo)
            case "differs" if self.variable in _MUST_AGREE:
                return problem_finding(AREA, subject, f"Tenure's Deployment has {self.tenure!r}", self.todo)
            case "differs":
                return advice_finding(AREA, subject, f"Tenure's Deployment has {self.tenure!r}", self.todo)
            case "elsewhere":
                return advice_finding(AREA, self.variable, "its value does not stand in the Deployment", self.todo)
            case "none" if self.todo and not self.todo.startswith("nothing"):
                return advice_finding(AREA, subject, "Tenure has no setting of this meaning", self.todo)
            case _:
                return None


def compare_settings(karpenter: DeploymentState, tenure: DeploymentState | None) -> list[SettingComparison]:
    """By variable, in order."""
    rows = [_compare_variable(name, value, tenure) for name, value in sorted(karpenter.environment.items())]
    unread = [
        one for one in karpenter.external_variables if one not in _CONFIGURED_ELSEWHERE and one not in _SET_BY_CHART
    ]
    rows += [
        SettingComparison(one, "", "", "elsewhere", "look there, and set what it says for Tenure") for one in unread
    ]
    return rows


def check_settings(rows: list[SettingComparison]) -> list[Finding]:
    found = [one for one in (row.to_finding() for row in rows) if one is not None]
    fine = sum(row.verdict in ("same", "set") for row in rows)
    return [ok_finding(AREA, "Karpenter's Deployment", f"{fine} of its settings mean the same to Tenure"), *found]


def inherit_settings(karpenter: DeploymentState | None, tenure: DeploymentState | None) -> dict[str, str]:
    """What the settings are, by variable, as far as the Deployments say: Tenure's own first. What says where things
    are, and not how nodes are judged, is left to whoever asks."""
    found: dict[str, str] = {}
    for one in (karpenter, tenure):
        environment = one.environment if one else {}
        shared = {name: value for name, value in environment.items() if _is_shared(name)}
        found |= {name: _known_gates(name, value) for name, value in shared.items() if _read(name, value) is not None}
    if tenure is not None and "SYSTEM_NAMESPACE" not in found:
        found["SYSTEM_NAMESPACE"] = tenure.namespace
    return found


def _compare_variable(name: str, value: str, tenure: DeploymentState | None) -> SettingComparison:
    if name in _SET_BY_CHART:
        return SettingComparison(name, value, "", "none", "nothing: Tenure's chart sets its own")
    if name in _UNSUPPORTED:
        harmless, todo = _UNSUPPORTED[name]
        return SettingComparison(name, value, "", "none", "nothing" if value in ("", harmless) else todo)
    if not _is_shared(name):
        return SettingComparison(
            name, value, "", "none", _CONFIGURED_ELSEWHERE.get(name, "see whether the worker needs it too: `env`")
        )
    expected = _known_gates(name, value)
    meant = _read(name, expected)
    if meant is None:
        return SettingComparison(
            name, value, "", "wrong", f"write another value of {name} for Tenure: docs/settings.md"
        )
    if tenure is None:
        return SettingComparison(name, value, expected, "set", f"set {name} of the worker")
    if name in tenure.external_variables:
        return SettingComparison(name, value, "", "elsewhere", f"see that Tenure's {name} says {expected!r}")
    has = tenure.environment.get(name)
    if (_read(name, has) if has is not None else _default_value(name)) == meant:
        return SettingComparison(name, value, has or expected, "same")
    return SettingComparison(name, value, has or "its default", "differs", f"set {name}={expected} of the worker")


def _is_shared(name: str) -> bool:
    field = name.lower()
    ours = name.startswith("TEMPORAL_") or name in _SET_BY_CHART or name.startswith("AWS_ENDPOINT")
    return field in Settings.model_fields and name == field.upper() and not ours


def _known_gates(name: str, value: str) -> str:
    """Karpenter lets names pass that it does not know, or does not know any more."""
    known = _GATED.get(name)
    if known is None:
        return value
    parts = (part.strip() for part in value.split(","))
    return ",".join(part for part in parts if part.partition("=")[0] in known)


def _read(name: str, value: str) -> Any:
    """As Tenure reads it; None for what it does not take."""
    try:
        cluster = [] if name == "CLUSTER_NAME" else ["--cluster-name=any"]
        return getattr(load([*cluster, f"--{name.lower().replace('_', '-')}={value}"]), name.lower())
    except (SettingsError, DurationError):
        return None


def _default_value(name: str) -> Any:
    field = Settings.model_fields[name.lower()]
    return None if field.is_required() else field.default


def format_flags(found: Mapping[str, str]) -> list[str]:
    return [f"--{name.lower().replace('_', '-')}={value}" for name, value in found.items()]
