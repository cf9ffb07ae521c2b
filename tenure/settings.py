"""Settings of the worker: environment variables, overridden by flags, with Karpenter's names for equal meanings.

An invalid value gives one line with the variable, its value and the expected form.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AliasChoices, AliasGenerator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from tenure.apis.durations import DurationError, format_duration, parse_duration, quote
from tenure.apis.feature_gates import gate_defaults
from tenure.apis.scheduler_config import normalize
from tenure.model.nodeclaim.state import Deadlines
from tenure.scheduling.settings import DEFAULT_NODE_COST

GATES = gate_defaults("FEATURE_GATES")
AWS_GATES = gate_defaults("AWS_FEATURE_GATES")
"""Gates of the AWS provider; a separate setting, as in Karpenter."""


MAX_QUOTED: Final = 200
"""Characters of an invalid value in an error."""


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
"""Time between two reads from AWS."""


CLUSTER_NAME = "[0-9A-Za-z][0-9A-Za-z_-]{0,99}"
"""EKS's rule. A slash would also break workflow IDs, whose parts it separates."""


def _cluster_name(value: str) -> str:
    if not re.fullmatch(CLUSTER_NAME, value):
        raise ValueError("invalid cluster name, expected up to 100 letters, digits, hyphens and underscores")
    return value


WEB_ADDRESS = r"https?://[^\s?#]+"


def web_address(value: str) -> str:
    if value and not re.fullmatch(WEB_ADDRESS, value):
        raise ValueError("expected an address with http:// or https://, e.g. https://example.com")
    return value


def _gates_of(variable: str) -> Callable[[Any], Any]:
    """Parse `Name=bool,…`. An unknown name is an error, because a misspelt gate would silently be off."""
    known = gate_defaults(variable)

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        gates = dict(known)
        for part in filter(None, (piece.strip() for piece in value.split(","))):
            name, _, switch = (piece.strip() for piece in part.partition("="))
            if name not in known:
                raise ValueError(f"gate {name!r}: unknown, expected one of {', '.join(sorted(known))}")
            if switch.lower() not in ("true", "false"):
                raise ValueError(f"gate {name}: {switch!r}, expected {name}=true or {name}=false")
            gates[name] = switch.lower() == "true"
        return gates

    return read


def _validation_aliases(field: str) -> AliasChoices:
    """The environment variable of a setting, and the flag: the same name in lower case with hyphens."""
    return AliasChoices(field.upper(), field.replace("_", "-"))


class Settings(BaseSettings):
    """docs/reference/settings.md shows the descriptions with their links; `plain_text` removes the links."""

    model_config = SettingsConfigDict(
        alias_generator=AliasGenerator(validation_alias=_validation_aliases),
        case_sensitive=True,
        extra="ignore",
        frozen=True,
        cli_parse_args=False,
        populate_by_name=True,
    )

    cluster_name: Annotated[str, AfterValidator(_cluster_name)] = Field(
        description="name of the EKS cluster; part of every workflow ID and of the tags of instances"
    )
    cluster_endpoint: Annotated[str, AfterValidator(web_address)] = Field(
        "", description="URL of the API server in the user data of nodes; if empty, it is read from EKS"
    )
    cluster_ca_bundle: str = Field(
        "",
        description="base64-encoded CA certificate in the user data of nodes; if empty, the CA of the worker's "
        "Kubernetes client",
    )
    kubeconfig: str = Field("", description="path of a kubeconfig file; if empty, the service account of the pod")
    aws_region: str = Field("us-west-2", description="region of the cluster")
    aws_endpoint_url: Annotated[str, AfterValidator(web_address)] = Field(
        "", description="one endpoint for all AWS services, such as a simulator; if empty, the endpoints of AWS"
    )
    interruption_queue: str = Field(
        "",
        description="name of the SQS queue with [EC2's events](../disruption/interruptions.md); if empty, only the "
        "instance status reports interruptions",
    )
    isolated_vpc: bool = Field(
        False, description="the VPC cannot reach the Pricing API: use [price estimates](../provisioning/prices.md)"
    )
    enable_zonal_shift: bool = Field(
        False,
        description="launch no instances in a zone that an ARC zonal shift moved the cluster away from; the worker "
        "does not start if zonal shift is disabled for the cluster",
    )
    ami_refresh_interval: Interval = Field(
        timedelta(minutes=1),
        description="how long resolved AMIs are cached (min 1m)",
    )
    subnet_refresh_interval: Interval = Field(
        timedelta(minutes=1), description="how long resolved subnets are cached (min 1m)"
    )
    security_group_refresh_interval: Interval = Field(
        timedelta(minutes=1), description="how long resolved security groups are cached (min 1m)"
    )
    vm_memory_overhead_percent: float = Field(
        0.075,
        ge=0,
        lt=1,
        description="fraction of memory subtracted from an instance type until one of its nodes reports its real "
        "capacity",
    )
    reserved_enis: int = Field(0, ge=0, description="network interfaces per node that are not available to pods")
    disable_dry_run: bool = Field(False, description="skip the DryRun calls to EC2 that validate an EC2NodeClass")
    feature_gates: Annotated[dict[str, bool], NoDecode, BeforeValidator(_gates_of("FEATURE_GATES"))] = Field(
        GATES, description="`Name=true,…`; gates that are not named keep their default"
    )
    aws_feature_gates: Annotated[dict[str, bool], NoDecode, BeforeValidator(_gates_of("AWS_FEATURE_GATES"))] = Field(
        AWS_GATES, description="the same format, for gates of the AWS provider"
    )
    legacy_node_repair: bool = Field(
        False,
        description="[repair](../disruption/repair.md#legacy-mode) as in Karpenter 1.14, which ignores budgets",
    )
    ignore_dra_requests: bool = Field(
        True,
        description="refuse pods with ResourceClaims; `false` plans them onto [nodes with free "
        "devices](../provisioning/dra.md)",
    )
    preference_policy: Literal["Respect", "Ignore"] = Field(
        "Respect", description="`Respect` or `Ignore` preferred scheduling terms"
    )
    scheduler_config: Annotated[str, AfterValidator(normalize)] = Field(
        "",
        description="YAML or JSON with the [default topology spread constraints](../provisioning/default-spread.md) of "
        "pods without their own, as in kube-scheduler's configuration; needs `list` and `watch` on Services and "
        "ReplicationControllers ([optional permissions](../operating/security.md#optional-permissions))",
    )
    min_values_policy: Literal["Strict", "BestEffort"] = Field(
        "Strict", description="`Strict` or `BestEffort` for minValues of requirements"
    )
    node_cost: float = Field(
        DEFAULT_NODE_COST,
        ge=0,
        description="[cost of a node](../provisioning/node-cost.md) in US dollars per hour beyond its instance, such "
        "as volumes and licenses per host. It is added to the price when instance types are chosen; higher values "
        "favor fewer, larger nodes",
    )
    nominate_pods: bool = Field(
        False,
        description="set `nominatedNodeName` of [pods with pod affinity, topology spread or host "
        "ports](../decisions/nominated-pods.md) for kube-scheduler; needs `patch` on `pods/status` "
        "([optional permissions](../operating/security.md#optional-permissions))",
    )
    surge_single_replicas: bool = Field(
        False,
        description="restart the rollout of Deployments with one replica where a LifecyclePolicy sets "
        "[`surgeSingleReplicas`](../disruption/drains.md); needs `patch` on Deployments "
        "([optional permissions](../operating/security.md#optional-permissions))",
    )
    eviction_requests: bool = Field(
        False,
        description="[ask the responders](../disruption/drains.md#eviction-requests) of pods for their eviction before "
        "the Eviction API is used; needs Kubernetes 1.37 with a controller of EvictionRequests "
        "([optional permissions](../operating/security.md#optional-permissions))",
    )
    hook_local_addresses: bool = Field(
        False,
        description="allow [hooks](../disruption/hooks.md#http-calls) to call loopback and link-local addresses, such "
        "as the instance metadata service",
    )
    batch_max_duration: Duration = Field(
        timedelta(seconds=10), description="maximum time for which pending pods are batched before they are planned"
    )
    batch_idle_duration: DurationOrNone = Field(
        timedelta(seconds=1), description="a batch is planned when no new pod arrives for this long"
    )
    kube_client_qps: float = Field(200, gt=0, description="requests per second to the API server")
    kube_client_burst: int = Field(300, gt=0, description="burst of requests to the API server")
    system_namespace: str = Field(
        "tenure",
        min_length=1,
        description="namespace of the worker; its annotation `tenure.sh/pause` [pauses the whole "
        "cluster](../disruption/pause.md)",
    )
    pod_uid: str = Field(
        "",
        description="UID of the worker's pod: after a restart of its container, the worker continues to hold its Lease "
        "at once; if empty, it waits until the Lease has expired",
    )
    leader_election_name: str = Field(
        "karpenter-leader-election",
        description="name of Karpenter's Lease: Tenure does not act while a Karpenter pod renews it",
    )
    log_level: Literal["debug", "info", "error"] = Field("info", description="`debug`, `info` or `error`")
    log_format: Literal["json", "console"] = Field("json", description="`json`, or `console` for a terminal")
    metrics_port: int = Field(
        8080, ge=0, le=65535, description="port of the Prometheus metrics at `/metrics`; 0 disables it"
    )
    health_probe_port: int = Field(8081, ge=0, le=65535, description="port of `/healthz` and `/readyz`; 0 disables it")
    temporal_address: str = Field("localhost:7233", description="host and port of the Temporal service")
    temporal_namespace: str = Field("default", description="Temporal namespace; use one per cluster")
    temporal_ui_url: Annotated[str, AfterValidator(web_address)] = Field(
        "",
        description="address of the Temporal UI, such as `https://temporal.example.com`: NodeClaims get the "
        "[annotation](annotations.md) `tenure.sh/workflow-url`, and commands print links",
    )
    temporal_tls: bool = Field(False, description="connect with TLS")
    temporal_api_key: str = Field("", repr=False, description="API key, for Temporal Cloud; implies TLS")
    temporal_api_key_path: str = Field(
        "", description="file with the API key, instead of `TEMPORAL_API_KEY`; a new key in it is used within minutes"
    )
    temporal_tls_server_ca_cert_path: str = Field(
        "",
        description="PEM file with the CA of Temporal's certificate, if the system does not trust it",
    )
    temporal_tls_client_cert_path: str = Field(
        "", description="PEM file with the client certificate, for mTLS; implies TLS"
    )
    temporal_tls_client_key_path: str = Field("", description="PEM file with the client key")
    temporal_tls_server_name: str = Field(
        "", description="name on Temporal's certificate, if it differs from the address"
    )
    temporal_worker_build_id: str = Field(
        "",
        description="build ID for [Worker Versioning](../getting-started/install.md#upgrading): all tasks go to the "
        "current build; the chart sets it to the version of the image",
    )
    temporal_deployment_name: str = Field(
        "",
        description="name of the worker deployment; [Temporal's worker controller](../getting-started/install.md#"
        "worker-controller) sets it, and then promotes builds (default: `tenure-CLUSTER`)",
    )
    temporal_payload_keys_path: str = Field(
        "",
        description="file with payload encryption keys; with it, payloads in Temporal are "
        "[encrypted](../operating/security.md#encryption)",
    )
    launch_timeout: Duration = Field(
        timedelta(minutes=5),
        description="deadline of a launch; after it, the NodeClaim is deleted and its pods are rescheduled",
    )
    registration_timeout: Duration = Field(
        timedelta(minutes=15),
        description="deadline from launch to registration; after it, the NodeClaim is deleted and its pods are "
        "rescheduled",
    )
    initialization_timeout: Duration = Field(
        timedelta(minutes=30),
        description="deadline from registration to initialization; after it, the node is reported as overdue",
    )
    drain_timeout: Duration = Field(
        timedelta(hours=1), description="deadline of a drain; a longer drain is reported as overdue and continues"
    )
    termination_timeout: Duration = Field(
        timedelta(minutes=15),
        description="deadline of a termination; a longer one is reported as overdue and continues",
    )
    not_ready_grace: DurationOrNone = Field(
        timedelta(minutes=5),
        description="how long a node that becomes NotReady [still counts as capacity for pending "
        "pods](../provisioning/node-startup.md#notready-nodes)",
    )
    prometheus_url: Annotated[str, AfterValidator(web_address)] = Field(
        "",
        description="Prometheus that the health gates of [rollouts](../disruption/rollouts.md) query, such as "
        "`http://prometheus.monitoring:9090`; without it, rollouts whose gates have queries wait",
    )
    otel_exporter_otlp_endpoint: Annotated[str, AfterValidator(web_address)] = Field(
        "",
        description="base URL of an OpenTelemetry collector, such as `http://otel-collector.monitoring:4318`, that "
        "receives [traces of node startups](../operating/tracing.md); if empty, tracing is off",
    )
    workflow_cache_size: int = Field(
        0,
        ge=0,
        description="maximum number of workflows in a worker's cache, about one per node and replica; `0` derives it "
        "from the container's memory limit: 2,100 for 1Gi, 7,400 for 2Gi. A signal to a workflow that is not cached "
        "costs a replay",
    )
    activity_slots: int = Field(
        100,
        ge=4,
        description="maximum concurrent activities in one worker; sizes of connection and thread pools derive from it",
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

    def is_on(self, name: str) -> bool:
        """Whether a switch or a feature gate of this name is on, such as `nominate_pods` or `NodeRepair`."""
        gates = self.feature_gates | self.aws_feature_gates
        return gates[name] if name in gates else bool(getattr(self, name))

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
    """Flags take precedence over the environment, and the environment over defaults. Raises SettingsError."""
    try:
        flags: dict[str, Any] = dict(_parse_flags(args or []))
        return Settings(**flags)
    except ValidationError as error:
        raise SettingsError(_one_line(error)) from error


def _parse_flags(args: list[str]) -> dict[str, str]:
    """`--cluster-name demo` or `--cluster-name=demo`, by the names of the settings; a boolean flag needs no value."""
    known = {name.replace("_", "-"): name for name in Settings.model_fields}
    flags: dict[str, str] = {}
    rest = list(args)
    while rest:
        flag, separator, value = rest.pop(0).partition("=")
        name = known.get(flag.removeprefix("--"))
        if not flag.startswith("--") or name is None:
            raise SettingsError(f"flag {flag!r} is not known; --help lists the flags")
        if not separator:
            if rest and not rest[0].startswith("--"):
                value = rest.pop(0)
            elif Settings.model_fields[name].annotation is bool:
                value = "true"
            else:
                raise SettingsError(f"flag {flag}: no value, expected {flag} VALUE")
        flags[name.upper()] = value
    return flags


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]).upper().replace("-", "_") if first["loc"] else "settings"
    if first["type"] == "missing":
        return f"{name} is not set; set it in the environment or pass --{name.lower().replace('_', '-')}"
    return f"{name}={_quote_input(first.get('input'))}: {first['msg'].removeprefix('Value error, ')}"


def _quote_input(value: Any) -> str:
    """A long value is cut, so that the error stays one line."""
    return quote(value, MAX_QUOTED) if isinstance(value, str) else repr(value)


def help_text() -> str:
    """One line per setting: flag, variable, default, description."""
    lines = []
    for name, field in Settings.model_fields.items():
        flag = f"--{name.replace('_', '-')}"
        default = "required" if field.is_required() else format_default(field.default)
        lines.append(f"  {flag:<30} {name.upper():<28} {default:<26} {plain_text(field.description)}".rstrip())
    return "\n".join(lines)


def plain_text(description: str | None) -> str:
    """Remove links and backticks."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", description or "").replace("`", "")


def format_default(default: Any) -> str:
    """In the form that `load` parses."""
    if isinstance(default, timedelta):
        return format_duration(default)
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, dict):
        return ",".join(f"{name}=true" for name, on in default.items() if on)
    return str(default)
