"""Validates `spec.kubelet` by its schema, by Karpenter's rules (reference 1.3) and by image family.

The schema is that of KubeletConfiguration v1beta1 of Kubernetes 1.37. The API server accepts any key of `spec.kubelet`,
and nodes silently ignore unknown fields. `title` is the expected form of a value. Expressions are only text here;
`cel_expression.py` compiles them.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, cast

from jsonschema import Draft4Validator, Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend

from tenure.apis.durations import NEVER, DurationError, parse_duration
from tenure.aws.amifamily.families import CUSTOM, Family
from tenure.aws.kubelet.config import MANAGED, is_quantity, parse_percentage

_RESERVED_FIELDS: Final = ("kubeReserved", "systemReserved")
_RESERVED: Final = ("cpu", "ephemeral-storage", "memory", "pid")
_SIGNALS: Final = (
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
)

Schema = dict[str, Any]


def _record(properties: Schema) -> Schema:
    """A null value means that the field is unset."""
    nullable = {name: {**each, "type": [*each["type"], "null"]} for name, each in properties.items()}
    return {"type": ["object"], "properties": nullable, "additionalProperties": False, "title": "a map of fields"}


def _list_of(schema: Schema) -> Schema:
    return {"type": ["array"], "items": schema, "title": "a list"}


def _map_of(schema: Schema, keys: Iterable[str] = ()) -> Schema:
    names = {"propertyNames": {"enum": list(keys)}} if keys else {}
    return {"type": ["object"], "additionalProperties": schema, "title": "a map", **names}


def _integer(least: int, most: int) -> Schema:
    return {"type": ["integer"], "minimum": least, "maximum": most, "title": f"a whole number from {least} to {most}"}


def _fields(names: str, schema: Schema) -> Schema:
    return dict.fromkeys(names.split(), schema)


_TEXT: Final[Schema] = {"type": ["string"], "title": "a text in quotes"}
_BOOL: Final[Schema] = {"type": ["boolean"], "title": "true or false"}
_NUMBER: Final[Schema] = {"type": ["number"], "title": "a number"}
_DURATION: Final[Schema] = {"type": ["string"], "format": "duration", "title": "a duration such as 30s or 5m"}
_GRACE: Final[Schema] = {"type": ["string"], "format": "grace period", "title": "a duration such as 2m"}
_QUANTITY: Final[Schema] = {"type": ["string", "number"], "format": "quantity", "title": "a quantity such as 100Mi"}
_THRESHOLD: Final[Schema] = {
    "type": ["string"],
    "format": "threshold",
    "title": "a quantity or a percentage up to 100% in quotes",
}
_AMOUNT: Final[Schema] = {"type": ["string"], "pattern": "^(?!-)", "title": "an amount in quotes that is not negative"}
"""An amount, or an expression."""
_COUNT: Final = _integer(0, 2**31 - 1)
_PERCENT: Final = _integer(0, 100)
_INT32: Final = _integer(-(2**31), 2**31 - 1)
_INT64: Final = _integer(-(2**63), 2**63 - 1)
_UINT32: Final = _integer(0, 2**32 - 1)
_STREAMS: Final[Schema] = {"splitStream": _BOOL, "infoBufferSize": _QUANTITY}

_CONFIGURATION: Final = _record(
    _fields("apiVersion kind", _TEXT)
    | _fields(
        """enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers enableContentionProfiling
        cgroupsPerQOS singleProcessOOMKill runOnce cpuCFSQuota serializeImagePulls mergeDefaultEvictionSettings
        enableControllerAttachDetach protectKernelDefaults makeIPTablesUtilChains failSwapOn kernelMemcgNotification
        enableSystemLogHandler enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler seccompDefault
        registerNode localStorageCapacityIsolation failCgroupV1""",
        _BOOL,
    )
    | _fields(
        """staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile tlsMinVersion
        imagePullCredentialsVerificationPolicy healthzBindAddress clusterDomain kubeletCgroups systemCgroups cgroupRoot
        cgroupDriver cpuManagerPolicy memoryManagerPolicy memoryReservationPolicy topologyManagerPolicy
        topologyManagerScope hairpinMode podCIDR resolvConf contentType containerLogMaxSize
        configMapAndSecretChangeDetectionStrategy reservedSystemCPUs showHiddenMetricsForVersion systemReservedCgroup
        kubeReservedCgroup volumePluginDir providerID containerRuntimeEndpoint imageServiceEndpoint""",
        _TEXT,
    )
    | _fields(
        """port readOnlyPort registryPullQPS registryBurst eventRecordQPS eventBurst healthzPort oomScoreAdj
        nodeLeaseDurationSeconds nodeStatusMaxImages kubeAPIQPS kubeAPIBurst maxParallelImagePulls
        iptablesMasqueradeBit iptablesDropBit containerLogMaxFiles containerLogMaxWorkers""",
        _INT32,
    )
    | _fields("evictionMaxPodGracePeriod podsPerCore", _COUNT)
    | {"maxPods": _COUNT | {"type": ["integer", "string"]}}
    | _fields("imageGCHighThresholdPercent imageGCLowThresholdPercent", _PERCENT)
    | _fields("podPidsLimit maxOpenFiles", _INT64)
    | _fields("memoryThrottlingFactor", _NUMBER)
    | _fields(
        """syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout nodeStatusUpdateFrequency
        nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod cpuManagerReconcilePeriod
        runtimeRequestTimeout cpuCFSQuotaPeriod evictionPressureTransitionPeriod
        containerLogMonitorInterval shutdownGracePeriod shutdownGracePeriodCriticalPods""",
        _DURATION,
    )
    | _fields(
        """tlsCipherSuites clusterDNS enforceNodeAllocatable allowedUnsafeSysctls
        preloadedImagesVerificationAllowlist""",
        _list_of(_TEXT),
    )
    | _fields("tlsCurvePreferences", _list_of(_INT32))
    | _fields(
        "cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved defaultPodSysctls",
        _map_of(_TEXT),
    )
    | dict.fromkeys(_RESERVED_FIELDS, _map_of(_AMOUNT, _RESERVED))
    | _fields("evictionHard evictionSoft evictionMinimumReclaim", _map_of(_THRESHOLD, _SIGNALS))
    | {
        "evictionSoftGracePeriod": _map_of(_GRACE, _SIGNALS),
        "staticPodURLHeader": _map_of(_list_of(_TEXT)),
        "featureGates": _map_of(_BOOL),
        "authentication": _record(
            {
                "x509": _record({"clientCAFile": _TEXT}),
                "webhook": _record({"enabled": _BOOL, "cacheTTL": _DURATION}),
                "anonymous": _record({"enabled": _BOOL}),
            }
        ),
        "authorization": _record(
            {"mode": _TEXT, "webhook": _record(_fields("cacheAuthorizedTTL cacheUnauthorizedTTL", _DURATION))}
        ),
        "memorySwap": _record({"swapBehavior": _TEXT}),
        "crashLoopBackOff": _record({"maxContainerRestartPeriod": _DURATION}),
        "userNamespaces": _record({"idsPerPod": _INT64}),
        "tracing": _record({"endpoint": _TEXT, "samplingRatePerMillion": _INT32}),
        "reservedMemory": _list_of(_record({"numaNode": _INT32, "limits": _map_of(_QUANTITY)})),
        "shutdownGracePeriodByPodPriority": _list_of(
            _record({"priority": _INT32, "shutdownGracePeriodSeconds": _INT64})
        ),
        "logging": _record(
            {
                "format": _TEXT,
                # A number is nanoseconds.
                "flushFrequency": _INT64 | _DURATION | {"type": ["integer", "string"]},
                "verbosity": _UINT32,
                "vmodule": _list_of(_record({"filePattern": _TEXT, "verbosity": _UINT32})),
                "options": _record({"text": _record(_STREAMS), "json": _record(_STREAMS)}),
            }
        ),
    }
)

FIELDS: Final = frozenset(_CONFIGURATION["properties"])

_FORMATS: Final = FormatChecker(formats=())


@_FORMATS.checks("duration", raises=DurationError)
def _is_duration(value: object) -> bool:
    return not isinstance(value, str) or (value != NEVER and parse_duration(value) is not None)


@_FORMATS.checks("grace period", raises=DurationError)
def _is_grace_period(value: object) -> bool:
    found = parse_duration(value) if isinstance(value, str) else None
    return not isinstance(value, str) or (found is not None and found.total_seconds() >= 0)


@_FORMATS.checks("quantity")
def _is_quantity(value: object) -> bool:
    return not isinstance(value, str) or is_quantity(value)


@_FORMATS.checks("threshold")
def _is_threshold(value: object) -> bool:
    if not isinstance(value, str):
        return True
    if value.endswith("%"):
        percent = parse_percentage(value)
        return percent is not None and percent <= 100
    return not value.startswith("-") and is_quantity(value)


# As in Go's JSON decoding, 1.0 is not an integer.
_Validator: Final = extend(Draft202012Validator, type_checker=Draft4Validator.TYPE_CHECKER)  # type: ignore[no-untyped-call]
_VALIDATOR: Final = _Validator(_CONFIGURATION, format_checker=_FORMATS)


def _find_schema_error(raw: dict[str, Any]) -> str:
    """Describe the first unknown field or invalid value; empty if there is none."""
    errors = sorted(_VALIDATOR.iter_errors(raw), key=lambda error: [str(part) for part in error.absolute_path])
    return _describe(errors[0]) if errors else ""


def _describe(error: ValidationError) -> str:
    path, value, schema = [*error.absolute_path], cast(Any, error.instance), cast(Schema, error.schema)
    match error.validator:
        case "additionalProperties":
            key = min(value.keys() - schema["properties"].keys())
            suggestion = _suggest(key, schema["properties"])
            return f"{_join_path([*path, key])} is not a field of KubeletConfiguration{suggestion}"
        case "enum":
            return f"{_join_path(path)}: unknown key {value!r}, expected one of {', '.join(schema['enum'])}"
    return f"{_join_path(path)} must be {schema['title']}, not {value!r}"


def _join_path(parts: Iterable[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


def _suggest(key: str, fields: Iterable[str]) -> str:
    by_case = {name.lower(): name for name in fields}
    near = by_case.get(key.lower()) or next(iter(get_close_matches(key, fields, n=1)), "")
    return f", did you mean {near}?" if near else ""


def why_malformed(raw: Mapping[str, Any]) -> str:
    """The first problem for any kubelet, starting with the field; empty if valid."""
    if "registerWithTaints" in raw:
        return "registerWithTaints is not supported, use spec.template.spec.taints of the NodePool"
    return _find_schema_error(dict(raw)) or _check_soft_evictions(raw) or _check_image_gc(raw)


def why_unsupported(raw: Mapping[str, Any], family: Family) -> str:
    """The first field that the family's images do not support; empty if none. Custom images are not checked."""
    if family is CUSTOM:
        return ""
    foreign = sorted(set(raw) - MANAGED)
    if foreign and not family.any_kubelet_key:
        return f"{family.name} images do not support {foreign[0]}; use AL2023, or set it in userData"
    if "podsPerCore" in raw and not family.pods_per_core:
        return f"{family.name} images do not support podsPerCore; use maxPods"
    if len(raw.get("clusterDNS") or ()) > 1 and not family.many_dns:
        return f"{family.name} images support only one clusterDNS address"
    return ""


def expressions_of(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(field, key, text) of each expression: any text that is not a quantity. `key` is empty for maxPods."""
    if isinstance(raw.get("maxPods"), str):
        yield "maxPods", "", raw["maxPods"]
    for field in _RESERVED_FIELDS:
        amounts = raw.get(field)
        for key, text in amounts.items() if isinstance(amounts, Mapping) else ():
            if isinstance(text, str) and not is_quantity(text):
                yield field, str(key), text


def _check_soft_evictions(raw: Mapping[str, Any]) -> str:
    differing = (raw.get("evictionSoft") or {}).keys() ^ (raw.get("evictionSoftGracePeriod") or {}).keys()
    if differing:
        only = min(differing)
        return f"evictionSoft and evictionSoftGracePeriod must have the same keys; {only} is only in one of them"
    return ""


def _check_image_gc(raw: Mapping[str, Any]) -> str:
    high, low = raw.get("imageGCHighThresholdPercent"), raw.get("imageGCLowThresholdPercent")
    if high is not None and low is not None and high <= low:
        return f"imageGCHighThresholdPercent ({high}) must be greater than imageGCLowThresholdPercent ({low})"
    return ""
