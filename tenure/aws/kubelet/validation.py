"""What `spec.kubelet` may say: fields that exist, values that mean something, and what the image family reads of it.

Pure, and Karpenter's rules (reference 1.3). Expressions are seen here as texts; `cel.py` reads them.

KubeletConfiguration v1beta1 as a table: the fields of `spec.kubelet` and what each takes.

The API server keeps whatever stands there, so that a misspelt field would silently do nothing on the nodes. The
table is that of Kubernetes 1.34 with the fields that came since; `kubelet_rules.py` has the rules on values.
"""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from tenure.apis.durations import NEVER, DurationError, parse_duration
from tenure.apis.quantity import QuantityError, parse
from tenure.aws.amifamily.families import CUSTOM, Family

Shape = Callable[[str, Any], str]
"""From a path and the value there to what is wrong with it; empty when nothing is."""


def why_not_kubelet(raw: Mapping[str, Any]) -> str:
    """The first field that is unknown or holds a value of another type; empty when there is none."""
    return _CONFIGURATION("", raw)


def _record(fields: Mapping[str, Shape]) -> Shape:
    def check(path: str, value: Any) -> str:
        if not isinstance(value, Mapping):
            return f"{path} must be a map of fields, not {value!r}"
        for key in sorted(value, key=str):
            if key not in fields:
                return f"{_join_path(path, key)} is no field of KubeletConfiguration{_suggest_field(str(key), fields)}"
            # A null leaves the field as if it were not written.
            problem = "" if value[key] is None else fields[key](_join_path(path, key), value[key])
            if problem:
                return problem
        return ""

    return check


def _list_of(shape: Shape) -> Shape:
    def check(path: str, value: Any) -> str:
        if not isinstance(value, list | tuple):
            return f"{path} must be a list, not {value!r}"
        return next(filter(None, (shape(f"{path}[{index}]", one) for index, one in enumerate(value))), "")

    return check


def _map_of(shape: Shape) -> Shape:
    def check(path: str, value: Any) -> str:
        if not isinstance(value, Mapping):
            return f"{path} must be a map, not {value!r}"
        return next(filter(None, (shape(_join_path(path, str(key)), one) for key, one in value.items())), "")

    return check


def _integer(least: int, most: int) -> Shape:
    def check(path: str, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{path} must be a whole number, not {value!r}"
        return "" if least <= value <= most else f"{path} is {value}: write a number from {least} to {most}"

    return check


def _text(path: str, value: Any) -> str:
    return "" if isinstance(value, str) else f"{path} must be a text, not {value!r}; write it in quotes"


def _bool(path: str, value: Any) -> str:
    return "" if isinstance(value, bool) else f"{path} must be true or false, not {value!r}"


def _number(path: str, value: Any) -> str:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if good else f"{path} must be a number, not {value!r}"


def _duration(path: str, value: Any) -> str:
    try:
        if isinstance(value, str) and value != NEVER and parse_duration(value) is not None:
            return ""
    except DurationError:
        pass
    return f"{path} must be a duration such as 30s or 5m, not {value!r}"


def _duration_or_nanoseconds(path: str, value: Any) -> str:
    return _int64(path, value) if isinstance(value, int) else _duration(path, value)


def _quantity(path: str, value: Any) -> str:
    try:
        parse(value)
    except (QuantityError, TypeError, AttributeError):
        return f"{path} must be a quantity such as 100Mi, not {value!r}"
    return ""


def _join_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else str(key)


def _suggest_field(key: str, fields: Mapping[str, Shape]) -> str:
    by_case = {name.lower(): name for name in fields}
    near = by_case.get(key.lower()) or next(iter(get_close_matches(key, fields, n=1)), "")
    return f": write {near}" if near else ""


def _fields_of_shape(names: str, shape: Shape) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), shape)


_int32: Final = _integer(-(2**31), 2**31 - 1)
_int64: Final = _integer(-(2**63), 2**63 - 1)
_uint32: Final = _integer(0, 2**32 - 1)
_STREAMS: Final = {"splitStream": _bool, "infoBufferSize": _quantity}

_CONFIGURATION: Final = _record(
    _fields_of_shape("apiVersion kind", _text)
    | _fields_of_shape(
        """enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers enableContentionProfiling
        cgroupsPerQOS singleProcessOOMKill runOnce cpuCFSQuota serializeImagePulls mergeDefaultEvictionSettings
        enableControllerAttachDetach protectKernelDefaults makeIPTablesUtilChains failSwapOn kernelMemcgNotification
        enableSystemLogHandler enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler seccompDefault
        registerNode localStorageCapacityIsolation failCgroupV1""",
        _bool,
    )
    | _fields_of_shape(
        """staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile tlsMinVersion
        imagePullCredentialsVerificationPolicy healthzBindAddress clusterDomain kubeletCgroups systemCgroups cgroupRoot
        cgroupDriver cpuManagerPolicy memoryManagerPolicy memoryReservationPolicy topologyManagerPolicy
        topologyManagerScope hairpinMode podCIDR resolvConf contentType containerLogMaxSize
        configMapAndSecretChangeDetectionStrategy reservedSystemCPUs showHiddenMetricsForVersion systemReservedCgroup
        kubeReservedCgroup volumePluginDir providerID containerRuntimeEndpoint imageServiceEndpoint""",
        _text,
    )
    | _fields_of_shape(
        """port readOnlyPort registryPullQPS registryBurst eventRecordQPS eventBurst healthzPort oomScoreAdj
        nodeLeaseDurationSeconds imageGCHighThresholdPercent imageGCLowThresholdPercent maxPods nodeStatusMaxImages
        kubeAPIQPS kubeAPIBurst maxParallelImagePulls evictionMaxPodGracePeriod podsPerCore iptablesMasqueradeBit
        iptablesDropBit containerLogMaxFiles containerLogMaxWorkers""",
        _int32,
    )
    | _fields_of_shape("podPidsLimit maxOpenFiles", _int64)
    | _fields_of_shape("memoryThrottlingFactor", _number)
    | _fields_of_shape(
        """syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout nodeStatusUpdateFrequency
        nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod cpuManagerReconcilePeriod
        draManagerReconcilePeriod runtimeRequestTimeout cpuCFSQuotaPeriod evictionPressureTransitionPeriod
        containerLogMonitorInterval shutdownGracePeriod shutdownGracePeriodCriticalPods""",
        _duration,
    )
    | _fields_of_shape(
        """tlsCipherSuites clusterDNS enforceNodeAllocatable allowedUnsafeSysctls
        preloadedImagesVerificationAllowlist""",
        _list_of(_text),
    )
    | _fields_of_shape("tlsCurvePreferences", _list_of(_int32))
    | _fields_of_shape(
        """cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard evictionSoft
        evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved""",
        _map_of(_text),
    )
    | {
        "staticPodURLHeader": _map_of(_list_of(_text)),
        "featureGates": _map_of(_bool),
        "registerWithTaints": _list_of(_record(_fields_of_shape("key value effect timeAdded", _text))),
        "authentication": _record(
            {
                "x509": _record({"clientCAFile": _text}),
                "webhook": _record({"enabled": _bool, "cacheTTL": _duration}),
                "anonymous": _record({"enabled": _bool}),
            }
        ),
        "authorization": _record(
            {"mode": _text, "webhook": _record(_fields_of_shape("cacheAuthorizedTTL cacheUnauthorizedTTL", _duration))}
        ),
        "memorySwap": _record({"swapBehavior": _text}),
        "crashLoopBackOff": _record({"maxContainerRestartPeriod": _duration}),
        "userNamespaces": _record({"idsPerPod": _int64}),
        "tracing": _record({"endpoint": _text, "samplingRatePerMillion": _int32}),
        "reservedMemory": _list_of(_record({"numaNode": _int32, "limits": _map_of(_quantity)})),
        "shutdownGracePeriodByPodPriority": _list_of(
            _record({"priority": _int32, "shutdownGracePeriodSeconds": _int64})
        ),
        "logging": _record(
            {
                "format": _text,
                "flushFrequency": _duration_or_nanoseconds,
                "verbosity": _uint32,
                "vmodule": _list_of(_record({"filePattern": _text, "verbosity": _uint32})),
                "options": _record({"text": _record(_STREAMS), "json": _record(_STREAMS)}),
            }
        ),
    }
)


_SIGNALS: Final = frozenset(
    {
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "pid.available",
    }
)
_RESERVED_FIELDS: Final = ("kubeReserved", "systemReserved")
_RESERVED: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pid"})
MANAGED: Final = frozenset(
    {
        "clusterDNS",
        "maxPods",
        "podsPerCore",
        "systemReserved",
        "kubeReserved",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMaxPodGracePeriod",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "cpuCFSQuota",
    }
)


def why_malformed(raw: Mapping[str, Any]) -> str:
    """The first thing that no kubelet would take, led by its field; empty when there is none."""
    if "registerWithTaints" in raw:
        return "registerWithTaints belongs to the NodePool: write spec.template.spec.taints there"
    masked = {key: value for key, value in raw.items() if not (key == "maxPods" and isinstance(value, str))}
    return (
        why_not_kubelet(masked)
        or _check_counts(raw)
        or _check_reserved(raw)
        or _check_evictions(raw)
        or _check_image_gc(raw)
    )


def why_unsupported(raw: Mapping[str, Any], family: Family) -> str:
    """What the family's nodes would not read; Custom images are the user's own affair."""
    if family is CUSTOM:
        return ""
    foreign = sorted(set(raw) - MANAGED)
    if foreign and not family.any_kubelet_key:
        return f"{family.name} images take no {foreign[0]}; use AL2023, or write it in userData"
    if "podsPerCore" in raw and not family.pods_per_core:
        return f"{family.name} images take no podsPerCore; write maxPods"
    if len(raw.get("clusterDNS") or ()) > 1 and not family.many_dns:
        return f"{family.name} images take one clusterDNS address"
    return ""


def expressions_of(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(field, key, text) of each value that is computed per instance type: what is no quantity is an expression."""
    if isinstance(raw.get("maxPods"), str):
        yield "maxPods", "", raw["maxPods"]
    for field in _RESERVED_FIELDS:
        for key, text in _get_map(raw, field).items():
            if isinstance(text, str) and not _is_quantity(text):
                yield field, str(key), text


def _check_counts(raw: Mapping[str, Any]) -> str:
    for key in ("podsPerCore", "evictionMaxPodGracePeriod", "maxPods"):
        value = raw.get(key)
        if isinstance(value, int) and value < 0:
            return f"{key} must be a whole number of at least 0, not {value}"
    return ""


def _check_reserved(raw: Mapping[str, Any]) -> str:
    for field in _RESERVED_FIELDS:
        for key, amount in _get_map(raw, field).items():
            if key not in _RESERVED:
                return f"{field} has no {key!r}: write one of {', '.join(sorted(_RESERVED))}"
            if str(amount).startswith("-"):
                return f"{field}.{key} may not be negative, and is {amount!r}"
    return ""


def _check_evictions(raw: Mapping[str, Any]) -> str:
    for field in ("evictionHard", "evictionSoft", "evictionSoftGracePeriod"):
        for key in _get_map(raw, field):
            if key not in _SIGNALS:
                return f"{field} has no {key!r}: write one of {', '.join(sorted(_SIGNALS))}"
    for field in ("evictionHard", "evictionSoft"):
        for key, text in _get_map(raw, field).items():
            if not _is_threshold(str(text)):
                return f"{field}.{key}: {text!r} is neither a quantity nor a percentage up to 100%"
    return _check_soft_evictions(raw)


def _check_soft_evictions(raw: Mapping[str, Any]) -> str:
    soft, grace = _get_map(raw, "evictionSoft"), _get_map(raw, "evictionSoftGracePeriod")
    if soft.keys() != grace.keys():
        missing = sorted(soft.keys() ^ grace.keys())[0]
        return f"evictionSoft and evictionSoftGracePeriod must have the same keys; {missing} is in one of them only"
    for key, text in grace.items():
        if not _is_duration(str(text)):
            return f"evictionSoftGracePeriod.{key}: {text!r} is no duration, such as 2m"
    return ""


def _check_image_gc(raw: Mapping[str, Any]) -> str:
    high, low = raw.get("imageGCHighThresholdPercent"), raw.get("imageGCLowThresholdPercent")
    for name, value in (("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)):
        if value is not None and not 0 <= value <= 100:
            return f"{name} must be a whole number from 0 to 100, not {value!r}"
    if high is not None and low is not None and high <= low:
        return f"imageGCHighThresholdPercent ({high}) must be greater than imageGCLowThresholdPercent ({low})"
    return ""


def _get_map(raw: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = raw.get(field)
    return found if isinstance(found, Mapping) else {}


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def _is_threshold(text: str) -> bool:
    if not text.endswith("%"):
        return _is_quantity(text) and not text.startswith("-")
    try:
        return 0 <= float(text[:-1]) <= 100
    except ValueError:
        return False


def _is_duration(text: str) -> bool:
    try:
        found = parse_duration(text)
    except DurationError:
        return False
    return found is not None and found.total_seconds() >= 0
