"""Settings of the worker: environment first, flags over it, Karpenter's names where the meaning is the same.

A wrong value is one line that says which variable, what it holds, and what to write instead.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from model.durations import DurationError, format_duration, parse_duration
from model.lifecycle import Deadlines

GATES = {
    "NodeRepair": False,
    "ReservedCapacity": True,
    "SpotToSpotConsolidation": False,
    "NodeOverlay": False,
    "StaticCapacity": False,
    "CapacityBuffer": False,
}
"""Feature gates and their defaults (reference 1.14)."""
AWS_GATES = {"NodeClassCEL": False}
"""Those of the AWS side, a setting of their own as with Karpenter."""


class SettingsError(Exception):
    """One line for the person who starts the worker."""


def _duration(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parsed = parse_duration(value)
    except DurationError as error:
        raise ValueError(str(error)) from error
    if parsed is None:
        raise ValueError(f"{value!r} has no end; write a duration such as 10s or 5m")
    return parsed


def _some(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than nothing; write a duration such as 10s")
    return value


def _not_negative(value: timedelta) -> timedelta:
    if value < timedelta(0):
        raise ValueError("cannot be negative; write a duration such as 1s, or 0s")
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_some)]
DurationOrNone = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_not_negative)]
"""`0s` switches off what it is for."""


def _some_minutes(value: timedelta) -> timedelta:
    if value < timedelta(minutes=1):
        raise ValueError("is too short; write 1m or more, so that AWS is not asked all the time")
    return value


Interval = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_some_minutes)]
"""Between two looks at AWS."""


CLUSTER_NAME = "[0-9A-Za-z][0-9A-Za-z_-]{0,99}"
"""EKS's rule; a slash would also run into the rest of a workflow's id."""


def _cluster_name(value: str) -> str:
    if not re.fullmatch(CLUSTER_NAME, value):
        raise ValueError("is no name of a cluster; write up to 100 letters, digits, hyphens and underscores")
    return value


def _gates_of(known: dict[str, bool]) -> Callable[[Any], Any]:
    """`Name=bool,…`; an unknown name is an error here, since a misspelt gate that is silently off helps nobody."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        gates = dict(known)
        for part in filter(None, (piece.strip() for piece in value.split(","))):
            name, _, switch = part.partition("=")
            if name not in known:
                raise ValueError(f"gate {name!r} is not known; write one of {', '.join(sorted(known))}")
            if switch.lower() not in ("true", "false"):
                raise ValueError(f"gate {name} is {switch!r}; write {name}=true or {name}=false")
            gates[name] = switch.lower() == "true"
        return gates

    return read


def _named(name: str, **field: Any) -> Any:
    """A setting by its environment variable, and by a flag of the same name in lower case with hyphens."""
    return Field(validation_alias=AliasChoices(name, name.lower().replace("_", "-")), **field)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        case_sensitive=True, extra="ignore", frozen=True, cli_parse_args=False, populate_by_name=True
    )

    cluster_name: Annotated[str, AfterValidator(_cluster_name)] = _named(
        "CLUSTER_NAME", description="name of the EKS cluster"
    )
    cluster_endpoint: str = _named("CLUSTER_ENDPOINT", default="", description="API server URL; found by EKS if empty")
    cluster_ca_bundle: str = _named("CLUSTER_CA_BUNDLE", default="", description="base64 CA; the client's if empty")
    kubeconfig: str = _named("KUBECONFIG", default="", description="path; the service account if empty")
    aws_region: str = _named("AWS_REGION", default="us-west-2", description="region of the cluster")
    aws_endpoint_url: str = _named("AWS_ENDPOINT_URL", default="", description="for a stand-in; AWS itself if empty")
    interruption_queue: str = _named(
        "INTERRUPTION_QUEUE", default="", description="name of the SQS queue with EC2's events; none is read if empty"
    )
    isolated_vpc: bool = _named("ISOLATED_VPC", default=False, description="no Pricing API: use the prices that ship")
    enable_zonal_shift: bool = _named(
        "ENABLE_ZONAL_SHIFT", default=False, description="buy nothing in zones that ARC zonal shift has moved away from"
    )
    ami_refresh_interval: Interval = _named(
        "AMI_REFRESH_INTERVAL", default=timedelta(minutes=1), description="so long found images are used again"
    )
    subnet_refresh_interval: Interval = _named(
        "SUBNET_REFRESH_INTERVAL", default=timedelta(minutes=1), description="so long found subnets are used again"
    )
    vm_memory_overhead_percent: float = _named(
        "VM_MEMORY_OVERHEAD_PERCENT",
        default=0.075,
        ge=0,
        lt=1,
        description="share of memory taken off a type not seen yet",
    )
    reserved_enis: int = _named("RESERVED_ENIS", default=0, ge=0, description="network interfaces that pods cannot use")
    disable_dry_run: bool = _named(
        "DISABLE_DRY_RUN", default=False, description="check EC2NodeClasses without asking EC2 for a dry run"
    )
    feature_gates: Annotated[dict[str, bool], NoDecode, BeforeValidator(_gates_of(GATES))] = _named(
        "FEATURE_GATES", default=GATES, description="Name=true,...; others keep their default"
    )
    aws_feature_gates: Annotated[dict[str, bool], NoDecode, BeforeValidator(_gates_of(AWS_GATES))] = _named(
        "AWS_FEATURE_GATES", default=AWS_GATES, description="the same for gates of the AWS side"
    )
    preference_policy: Literal["Respect", "Ignore"] = _named(
        "PREFERENCE_POLICY", default="Respect", description="Respect or Ignore"
    )
    min_values_policy: Literal["Strict", "BestEffort"] = _named(
        "MIN_VALUES_POLICY", default="Strict", description="Strict or BestEffort"
    )
    node_cost: float = _named(
        "NODE_COST", default=0.002, ge=0, description="dollars an hour that a node counts for beyond its price"
    )
    nominate_pods: bool = _named(
        "NOMINATE_PODS", default=True, description="kube-scheduler is told where pods that keep company are expected"
    )
    batch_max_duration: Duration = _named(
        "BATCH_MAX_DURATION", default=timedelta(seconds=10), description="longest time that pending pods are gathered"
    )
    batch_idle_duration: DurationOrNone = _named(
        "BATCH_IDLE_DURATION", default=timedelta(seconds=1), description="a batch ends when no pod came for so long"
    )
    kube_client_qps: float = _named(
        "KUBE_CLIENT_QPS", default=200, gt=0, description="requests per second to the API server"
    )
    kube_client_burst: int = _named(
        "KUBE_CLIENT_BURST", default=300, gt=0, description="requests at once to the API server"
    )
    system_namespace: str = _named(
        "SYSTEM_NAMESPACE",
        default="tenure",
        min_length=1,
        description="the worker's own namespace; its annotation tenure.sh/pause pauses the whole cluster",
    )
    leader_election_name: str = _named(
        "LEADER_ELECTION_NAME",
        default="karpenter-leader-election",
        description="Karpenter's lease, which must not be renewed",
    )
    log_level: Literal["debug", "info", "error"] = _named(
        "LOG_LEVEL", default="info", description="debug, info or error"
    )
    log_format: Literal["json", "console"] = _named("LOG_FORMAT", default="json", description="json or console")
    metrics_port: int = _named("METRICS_PORT", default=8080, ge=0, le=65535, description="0 takes a free one")
    health_probe_port: int = _named("HEALTH_PROBE_PORT", default=8081, ge=0, le=65535, description="0 takes a free one")
    temporal_address: str = _named("TEMPORAL_ADDRESS", default="localhost:7233", description="host:port")
    temporal_namespace: str = _named("TEMPORAL_NAMESPACE", default="default", description="one per cluster")
    temporal_tls: bool = _named("TEMPORAL_TLS", default=False, description="connect with TLS")
    temporal_api_key: str = _named("TEMPORAL_API_KEY", default="", repr=False, description="with it goes TLS")
    temporal_tls_server_ca_cert_path: str = _named("TEMPORAL_TLS_SERVER_CA_CERT_PATH", default="", description="file")
    temporal_tls_client_cert_path: str = _named("TEMPORAL_TLS_CLIENT_CERT_PATH", default="", description="file, mTLS")
    temporal_tls_client_key_path: str = _named("TEMPORAL_TLS_CLIENT_KEY_PATH", default="", description="file, mTLS")
    temporal_tls_server_name: str = _named("TEMPORAL_TLS_SERVER_NAME", default="", description="on its certificate")
    temporal_worker_build_id: str = _named(
        "TEMPORAL_WORKER_BUILD_ID", default="", description="for Worker Versioning: the build that starts takes over"
    )
    temporal_payload_keys_path: str = _named("TEMPORAL_PAYLOAD_KEYS_PATH", default="", description="file, encrypts")
    launch_timeout: Duration = _named(
        "LAUNCH_TIMEOUT", default=timedelta(minutes=5), description="then the NodeClaim is given up"
    )
    registration_timeout: Duration = _named(
        "REGISTRATION_TIMEOUT", default=timedelta(minutes=15), description="then the NodeClaim is given up"
    )
    initialization_timeout: Duration = _named(
        "INITIALIZATION_TIMEOUT", default=timedelta(minutes=30), description="then the node is overdue"
    )
    drain_timeout: Duration = _named(
        "DRAIN_TIMEOUT", default=timedelta(hours=1), description="then the node is overdue"
    )
    termination_timeout: Duration = _named(
        "TERMINATION_TIMEOUT", default=timedelta(minutes=15), description="then the node is overdue"
    )
    not_ready_grace: DurationOrNone = _named(
        "NOT_READY_GRACE", default=timedelta(minutes=5), description="a NotReady node still counts for so long"
    )
    prometheus_url: str = _named(
        "PROMETHEUS_URL", default="", description="asked by health gates of roll-outs; none are answered if empty"
    )
    activity_slots: int = _named("ACTIVITY_SLOTS", default=100, ge=4, description="pools and threads derive from it")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings

    def deadlines(self) -> Deadlines:
        return Deadlines(
            launch=self.launch_timeout,
            registration=self.registration_timeout,
            initialization=self.initialization_timeout,
            drain=self.drain_timeout,
            termination=self.termination_timeout,
            not_ready_grace=self.not_ready_grace,
        )


def load(args: list[str] | None = None) -> Settings:
    """Flags over environment over defaults. Raises SettingsError with one line."""
    try:
        flags: dict[str, Any] = dict(_flags(args or []))
        return Settings(**flags)
    except ValidationError as error:
        raise SettingsError(_one_line(error)) from error


def _flags(args: list[str]) -> dict[str, str]:
    """`--cluster-name demo` or `--cluster-name=demo`, by the settings' own names; a switch needs no value."""
    known = {name.replace("_", "-"): name for name in Settings.model_fields}
    flags: dict[str, str] = {}
    rest = list(args)
    while rest:
        flag, given, value = rest.pop(0).partition("=")
        name = known.get(flag.removeprefix("--"))
        if not flag.startswith("--") or name is None:
            raise SettingsError(f"flag {flag!r} is not known; --help lists them")
        if not given:
            if rest and not rest[0].startswith("--"):
                value = rest.pop(0)
            elif Settings.model_fields[name].annotation is bool:
                value = "true"
            else:
                raise SettingsError(f"flag {flag} has no value; write {flag} VALUE")
        flags[name.upper()] = value
    return flags


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]).upper().replace("-", "_") if first["loc"] else "settings"
    if first["type"] == "missing":
        return f"{name} is not set; write it in the environment or give --{name.lower().replace('_', '-')}"
    return f"{name}={first.get('input')!r}: {first['msg'].removeprefix('Value error, ')}"


def help_text() -> str:
    """One line a setting: flag, variable, default, meaning."""
    lines = []
    for name, field in Settings.model_fields.items():
        flag = f"--{name.replace('_', '-')}"
        default = "required" if field.is_required() else written(field.default)
        lines.append(f"  {flag:<30} {name.upper():<28} {default:<26} {field.description or ''}".rstrip())
    return "\n".join(lines)


def written(default: Any) -> str:
    """As one would write it."""
    if isinstance(default, timedelta):
        return format_duration(default)
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, dict):
        return ",".join(f"{name}=true" for name, on in default.items() if on)
    return str(default)
