"""Karpenter's settings by variable: the value for Tenure, or the remedy for an unsupported one.

Reads the environments of both Deployments. `preview.py` prints the rows and takes default settings from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from tenure.apis.durations import DurationError
from tenure.kube.adapters.workloads import DeploymentState
from tenure.model.errors import Finding, Subject
from tenure.settings import AWS_GATES, GATES, Settings, SettingsError, load

AREA: Final = "settings"
ComparisonOutcome = Literal["same", "set", "differs", "none", "elsewhere", "wrong"]
_GATED: Final = {"FEATURE_GATES": GATES, "AWS_FEATURE_GATES": AWS_GATES}
_MUST_AGREE: Final = ("CLUSTER_NAME", "LEADER_ELECTION_NAME")
"""CLUSTER_NAME finds the instances, LEADER_ELECTION_NAME finds Karpenter."""


class KarpenterVariable(NamedTuple):
    """A variable of Karpenter that has no counterpart in Tenure's settings, or whose value Tenure does not inherit."""

    name: str
    description: str
    todo: str = "nothing"
    example: str = ""
    harmless: str | None = None
    """The value for which there is nothing to do; None for every value."""
    since: str = "0.1.0"


_CHART: Final = "nothing: Tenure's chart sets its own"
_STDOUT: Final = "nothing: logs go to stdout"
_RESOURCES: Final = "nothing: `resources` of the chart"
KARPENTER_VARIABLES: Final = (
    KarpenterVariable("SYSTEM_NAMESPACE", "its namespace", _CHART, "kube-system"),
    KarpenterVariable("METRICS_PORT", "port of its metrics", _CHART, "8080"),
    KarpenterVariable("HEALTH_PROBE_PORT", "port of its probes", _CHART, "8081"),
    KarpenterVariable("KUBECONFIG", "path of a kubeconfig", _CHART, "/etc/kubeconfig"),
    KarpenterVariable("KARPENTER_SERVICE", "its Service", "nothing: the chart names the Service", "karpenter"),
    KarpenterVariable("KUBERNETES_MIN_VERSION", "oldest Kubernetes it starts on", example="1.26.0-0"),
    KarpenterVariable("LOG_OUTPUT_PATHS", "where logs go", _STDOUT, "stdout"),
    KarpenterVariable("LOG_ERROR_OUTPUT_PATHS", "where errors of its logger go", _STDOUT, "stderr"),
    KarpenterVariable("CPU_REQUESTS", "its CPU request", _RESOURCES, "1"),
    KarpenterVariable("MEMORY_LIMIT", "its memory limit", _RESOURCES, "1Gi"),
    KarpenterVariable(
        "ENABLE_PROFILING", "serve profiles", "nothing: Tenure has no profiling endpoint", example="false"
    ),
    KarpenterVariable(
        "DISABLE_CONTROLLER_WARMUP",
        "start without warm caches",
        "nothing: the worker that is elected lists all objects",
        "true",
    ),
    KarpenterVariable(
        "LEADER_ELECTION_NAMESPACE", "its lease's namespace", "nothing: Tenure searches all namespaces", "kube-system"
    ),
    KarpenterVariable("DISABLE_CLUSTER_STATE_OBSERVABILITY", "fewer metrics", example="false"),
    KarpenterVariable("EKS_CONTROL_PLANE", "the control plane is EKS", example="true"),
    KarpenterVariable(
        "DISABLE_LEADER_ELECTION",
        "run without a Lease",
        "without a Lease Tenure cannot detect Karpenter: stop it yourself before a worker starts",
        "false",
        harmless="false",
    ),
)
"""Source of docs/reference/karpenter-settings.md."""
_VARIABLES: Final = {one.name: one for one in KARPENTER_VARIABLES}


@dataclass(frozen=True)
class SettingComparison:
    variable: str
    karpenter: str
    tenure: str
    """The value in Tenure's Deployment; without a Deployment, the value to set."""
    outcome: ComparisonOutcome
    todo: str = ""

    def to_finding(self) -> Finding | None:
        subject = f"{self.variable}={self.karpenter!r}"
        match self.outcome:
            case "wrong":
                return Subject(AREA, subject).problem("Tenure does not accept this value", self.todo)
            case "differs" if self.variable in _MUST_AGREE:
                return Subject(AREA, subject).problem(f"Tenure's Deployment has {self.tenure!r}", self.todo)
            case "differs":
                return Subject(AREA, subject).advice(f"Tenure's Deployment has {self.tenure!r}", self.todo)
            case "elsewhere":
                return Subject(AREA, self.variable).advice("its value is not in the Deployment", self.todo)
            case "none" if self.todo and not self.todo.startswith("nothing"):
                return Subject(AREA, subject).advice("Tenure has no equivalent setting", self.todo)
            case _:
                return None


def compare_settings(karpenter: DeploymentState, tenure: DeploymentState | None) -> list[SettingComparison]:
    """By variable, in order."""
    rows = [_compare_variable(name, value, tenure) for name, value in sorted(karpenter.environment.items())]
    ignored = {one.name for one in KARPENTER_VARIABLES if one.todo.startswith("nothing")}
    todo = "look up its source and set the same value for Tenure"
    unread = (one for one in karpenter.external_variables if one not in ignored)
    return [*rows, *(SettingComparison(one, "", "", "elsewhere", todo) for one in unread)]


def check_settings(rows: list[SettingComparison]) -> list[Finding]:
    found = [one for one in (row.to_finding() for row in rows) if one is not None]
    fine = sum(row.outcome in ("same", "set") for row in rows)
    return [
        Subject(AREA, "Karpenter's Deployment").ok(f"{fine} of its settings have the same meaning in Tenure"),
        *found,
    ]


def check_own_settings(karpenter: DeploymentState, settings: Settings) -> list[Finding]:
    """`settings`: of this command, from any source, such as a variable that the shell has for another cluster."""
    return [
        Subject(AREA, f"{name}={has!r} of this command").problem(
            f"Karpenter's Deployment has {value!r}", f"unset {name} here, or set it to {value}"
        )
        for name in _MUST_AGREE
        if (value := karpenter.environment.get(name)) and (has := getattr(settings, name.lower())) != value
    ]


def inherit_settings(karpenter: DeploymentState | None, tenure: DeploymentState | None) -> dict[str, str]:
    """Settings by variable from the Deployments, Tenure's first.

    Addresses and paths, which do not affect the evaluation of nodes, are left to the caller.
    """
    found: dict[str, str] = {}
    for one in (karpenter, tenure):
        environment = one.environment if one else {}
        shared = {name: value for name, value in environment.items() if is_shared(name)}
        found |= {name: _known_gates(name, value) for name, value in shared.items() if _read(name, value) is not None}
    if tenure is not None and "SYSTEM_NAMESPACE" not in found:
        found["SYSTEM_NAMESPACE"] = tenure.namespace
    return found


def _compare_variable(name: str, value: str, tenure: DeploymentState | None) -> SettingComparison:
    if known := _VARIABLES.get(name):
        is_harmless = known.harmless is not None and value in ("", known.harmless)
        return SettingComparison(name, value, "", "none", "nothing" if is_harmless else known.todo)
    if not is_shared(name):
        return SettingComparison(name, value, "", "none", "check whether the worker needs this variable too")
    expected = _known_gates(name, value)
    meant = _read(name, expected)
    if meant is None:
        return SettingComparison(
            name, value, "", "wrong", f"set another value of {name} for Tenure, see docs/reference/settings.md"
        )
    if tenure is None:
        return SettingComparison(name, value, expected, "set", f"set {name} for the worker")
    if name in tenure.external_variables:
        return SettingComparison(name, value, "", "elsewhere", f"check that Tenure's {name} is {expected!r}")
    has = tenure.environment.get(name)
    if (_read(name, has) if has is not None else _default_value(name)) == meant:
        return SettingComparison(name, value, has or expected, "same")
    return SettingComparison(name, value, has or "its default", "differs", f"set {name}={expected} for the worker")


def is_shared(name: str) -> bool:
    """Whether the worker has a setting with this name and meaning."""
    field = name.lower()
    ours = name in _VARIABLES or name.startswith(("TEMPORAL_", "AWS_ENDPOINT"))
    return field in Settings.model_fields and name == field.upper() and not ours


def _known_gates(name: str, value: str) -> str:
    """Drop unknown gates: Karpenter ignores names that it does not know, or no longer knows."""
    known = _GATED.get(name)
    if known is None:
        return value
    parts = (part.strip() for part in value.split(","))
    return ",".join(part for part in parts if part.partition("=")[0].strip() in known)


def _read(name: str, value: str) -> Any:
    """Parsed as Tenure does; None for an unsupported value."""
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
