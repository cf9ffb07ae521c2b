"""Settings of the worker: environment variables, overridden by flags, with Karpenter's names for equal meanings.

An invalid value gives one line with the variable, its value and the expected form.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, AliasGenerator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from tenure.apis.durations import DurationError, format_duration, parse_duration
from tenure.apis.feature_gates import gate_defaults
from tenure.model.nodeclaim.state import Deadlines

GATES = gate_defaults("FEATURE_GATES")
AWS_GATES = gate_defaults("AWS_FEATURE_GATES")
"""Those of the AWS side, a setting of their own as with Karpenter."""


class SettingsError(Exception):
    """One-line error at worker start."""


def _parse_bounded_duration(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parsed = parse_duration(value)
    except DurationError as error:
        raise ValueError(str(error)) from error
    if parsed is None:
        raise ValueError(f"{value!r}: endless duration, expected e.g. 10s or 5m")
    return parsed


def _require_positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be positive, e.g. 10s")
    return value


def _not_negative(value: timedelta) -> timedelta:
    if value < timedelta(0):
        raise ValueError("cannot be negative; expected a duration, e.g. 1s, or 0s")
    return value


Duration = Annotated[timedelta, BeforeValidator(_parse_bounded_duration), AfterValidator(_require_positive)]
DurationOrNone = Annotated[timedelta, BeforeValidator(_parse_bounded_duration), AfterValidator(_not_negative)]
"""`0s` disables the feature."""


def _some_minutes(value: timedelta) -> timedelta:
    if value < timedelta(minutes=1):
        raise ValueError("is too short; expected 1m or more, to limit AWS calls")
    return value


Interval = Annotated[timedelta, BeforeValidator(_parse_bounded_duration), AfterValidator(_some_minutes)]
"""Between two looks at AWS."""


CLUSTER_NAME = "[0-9A-Za-z][0-9A-Za-z_-]{0,99}"
"""EKS's rule; a slash would also run into the rest of a workflow's id."""


def _cluster_name(value: str) -> str:
    if not re.fullmatch(CLUSTER_NAME, value):
        raise ValueError("invalid cluster name, expected up to 100 letters, digits, hyphens and underscores")
    return value


def _gates_of(known: dict[str, bool]) -> Callable[[Any], Any]:
    """`Name=bool,…`; an unknown name is an error, since a misspelt gate would silently be off."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        gates = dict(known)
        for part in filter(None, (piece.strip() for piece in value.split(","))):
            name, _, switch = part.partition("=")
            if name not in known:
                raise ValueError(f"gate {name!r} is unknown; expected one of {', '.join(sorted(known))}")
            if switch.lower() not in ("true", "false"):
                raise ValueError(f"gate {name} is {switch!r}; write {name}=true or {name}=false")
            gates[name] = switch.lower() == "true"
        return gates

    return read


def _validation_aliases(field: str) -> AliasChoices:
    """A setting's environment variable, and a flag of the same name in lower case with hyphens."""
    return AliasChoices(field.upper(), field.replace("_", "-"))


class Settings(BaseSettings):
    """The descriptions are those of docs/settings.md, with its links; `plain_text` takes these out."""

    model_config = SettingsConfigDict(
        alias_generator=AliasGenerator(validation_alias=_validation_aliases),
        case_sensitive=True,
        extra="ignore",
        frozen=True,
        cli_parse_args=False,
        populate_by_name=True,
    )

    cluster_name: Annotated[str, AfterValidator(_cluster_name)] = Field(
        description="name of the EKS cluster; part of every workflow id, and of the tags of instances"
    )
    cluster_endpoint: str = Field(
        "", description="URL of the API server for the nodes' user data; found through EKS if empty"
    )
    cluster_ca_bundle: str = Field(
        "", description="certificate authority for the user data, base64; that of the client if empty"
    )
    kubeconfig: str = Field("", description="path of a kubeconfig; the service account of the pod if empty")
    aws_region: str = Field("us-west-2", description="region of the cluster")
    aws_endpoint_url: str = Field(
        "", description="one endpoint for all AWS services, such as a stand-in; AWS itself if empty"
    )
    interruption_queue: str = Field(
        "",
        description="name of the SQS queue with [EC2's events](interruptions.md); if empty, the status of instances "
        "alone tells of trouble",
    )
    isolated_vpc: bool = Field(False, description="the VPC has no way to the Pricing API: use [estimates](prices.md)")
    enable_zonal_shift: bool = Field(
        False,
        description="buy nothing in a zone that ARC zonal shift has moved the cluster away from; the worker does not "
        "start if the cluster takes no shifts",
    )
    ami_refresh_interval: Interval = Field(
        timedelta(minutes=1),
        description="how long resolved AMIs are cached (min 1m)",
    )
    subnet_refresh_interval: Interval = Field(
        timedelta(minutes=1), description="likewise for subnets and security groups; 1m or more"
    )
    vm_memory_overhead_percent: float = Field(
        0.075, ge=0, lt=1, description="share of a type's memory that is taken off before a node of it was seen"
    )
    reserved_enis: int = Field(0, ge=0, description="network interfaces per node that pods cannot use")
    disable_dry_run: bool = Field(
        False, description="when an EC2NodeClass is checked, EC2 is not asked with DryRun whether it would launch"
    )
    feature_gates: Annotated[dict[str, bool], NoDecode, BeforeValidator(_gates_of(GATES))] = Field(
        GATES, description="`Name=true,…`; those that are not named have their default"
    )
    aws_feature_gates: Annotated[dict[str, bool], NoDecode, BeforeValidator(_gates_of(AWS_GATES))] = Field(
        AWS_GATES, description="the same for gates of the AWS side"
    )
    preference_policy: Literal["Respect", "Ignore"] = Field(
        "Respect", description="`Respect` or `Ignore` preferred scheduling terms"
    )
    min_values_policy: Literal["Strict", "BestEffort"] = Field(
        "Strict", description="`Strict` or `BestEffort` for minValues of requirements"
    )
    node_cost: float = Field(
        0.002,
        ge=0,
        description="US dollars an hour that a node counts for beyond its price, [when nodes are "
        "chosen](decisions/instance-type-selection.md); the more, the fewer and larger nodes",
    )
    nominate_pods: bool = Field(
        False,
        description="tell kube-scheduler [where pods with pod affinity, spread or host ports are "
        "expected](decisions/nominated-pods.md); needs `patch` on `pods/status` "
        "([optional rights](security.md#optional-permissions))",
    )
    surge_single_replicas: bool = Field(
        False,
        description="restart the rollout of Deployments with one replica where a LifecyclePolicy says "
        "[`surgeSingleReplicas`](drains.md); needs `patch` on Deployments "
        "([optional rights](security.md#optional-permissions))",
    )
    hook_local_addresses: bool = Field(
        False,
        description="let [hooks](hooks.md#http-calls) call loopback and link-local addresses, such as the instance "
        "metadata service",
    )
    batch_max_duration: Duration = Field(
        timedelta(seconds=10), description="longest time that pending pods are gathered before they are planned"
    )
    batch_idle_duration: DurationOrNone = Field(
        timedelta(seconds=1), description="a batch is planned when no pod came for so long"
    )
    kube_client_qps: float = Field(200, gt=0, description="requests per second to the API server")
    kube_client_burst: int = Field(300, gt=0, description="requests at once to the API server")
    system_namespace: str = Field(
        "tenure",
        min_length=1,
        description="the worker's own namespace; its annotation `tenure.sh/pause` [pauses the whole cluster](pause.md)",
    )
    leader_election_name: str = Field(
        "karpenter-leader-election",
        description="name of Karpenter's lease: while somebody renews it, Tenure does not act",
    )
    log_level: Literal["debug", "info", "error"] = Field("info", description="`debug`, `info` or `error`")
    log_format: Literal["json", "console"] = Field("json", description="`json`, or `console` for people")
    metrics_port: int = Field(8080, ge=0, le=65535, description="Prometheus metrics at `/metrics`; 0 serves none")
    health_probe_port: int = Field(8081, ge=0, le=65535, description="`/healthz` and `/readyz`; 0 serves none")
    temporal_address: str = Field("localhost:7233", description="host and port of the Temporal service")
    temporal_namespace: str = Field("default", description="one namespace per cluster")
    temporal_tls: bool = Field(False, description="connect with TLS")
    temporal_api_key: str = Field("", repr=False, description="API key, for Temporal Cloud; with it goes TLS")
    temporal_api_key_path: str = Field(
        "", description="file with the API key, instead of it: a new one in it is used within minutes"
    )
    temporal_tls_server_ca_cert_path: str = Field(
        "",
        description="file in PEM: the authority that signed Temporal's certificate, where the system does not know it",
    )
    temporal_tls_client_cert_path: str = Field(
        "", description="file in PEM: the client's certificate, for mTLS; with it goes TLS"
    )
    temporal_tls_client_key_path: str = Field("", description="file in PEM: its key")
    temporal_tls_server_name: str = Field("", description="name on Temporal's certificate, where it is not the address")
    temporal_worker_build_id: str = Field(
        "",
        description="[Worker Versioning](install.md#upgrading): all tasks go to the build that started last; the chart "
        "sets it",
    )
    temporal_payload_keys_path: str = Field(
        "", description="file of keys: with it, what Temporal stores is [encrypted](security.md#encryption)"
    )
    launch_timeout: Duration = Field(
        timedelta(minutes=5),
        description="deadline of a launch; then the NodeClaim is deleted and its pods are rescheduled",
    )
    registration_timeout: Duration = Field(
        timedelta(minutes=15), description="deadline from launch to a registered Node; then likewise"
    )
    initialization_timeout: Duration = Field(
        timedelta(minutes=30),
        description="deadline from registration to initialization; then the node is overdue and says so",
    )
    drain_timeout: Duration = Field(timedelta(hours=1), description="a drain that takes longer is overdue; it goes on")
    termination_timeout: Duration = Field(
        timedelta(minutes=15), description="a termination that takes longer is overdue; it goes on"
    )
    not_ready_grace: DurationOrNone = Field(
        timedelta(minutes=5),
        description="so long a node that turns NotReady [still counts for the pods that wait for "
        "it](node-startup.md#notready-nodes)",
    )
    prometheus_url: str = Field(
        "",
        description="Prometheus that health gates of [rollouts](rollouts.md) ask, such as "
        "`http://prometheus.monitoring:9090`; without it those with queries hold",
    )
    activity_slots: int = Field(
        100, ge=4, description="activities at once in one worker; sizes of pools and threads derive from it"
    )

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

    def build_deadlines(self) -> Deadlines:
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
        flags: dict[str, Any] = dict(_parse_flags(args or []))
        return Settings(**flags)
    except ValidationError as error:
        raise SettingsError(_one_line(error)) from error


def _parse_flags(args: list[str]) -> dict[str, str]:
    """`--cluster-name demo` or `--cluster-name=demo`, by the settings' own names; a switch needs no value."""
    known = {name.replace("_", "-"): name for name in Settings.model_fields}
    flags: dict[str, str] = {}
    rest = list(args)
    while rest:
        flag, separator, value = rest.pop(0).partition("=")
        name = known.get(flag.removeprefix("--"))
        if not flag.startswith("--") or name is None:
            raise SettingsError(f"flag {flag!r} is not known; --help lists them")
        if not separator:
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
        default = "required" if field.is_required() else format_default(field.default)
        lines.append(f"  {flag:<30} {name.upper():<28} {default:<26} {plain_text(field.description)}".rstrip())
    return "\n".join(lines)


def plain_text(description: str | None) -> str:
    """A description without links and marks."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", description or "").replace("`", "")


def format_default(default: Any) -> str:
    """As one would write it."""
    if isinstance(default, timedelta):
        return format_duration(default)
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, dict):
        return ",".join(f"{name}=true" for name, on in default.items() if on)
    return str(default)
