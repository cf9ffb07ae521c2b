"""Render docs/reference/settings.md, and the settings in the chart's values.schema.json, from `tenure/settings.py`.

Helm validates values with the schema before it installs anything, so a misspelt name or an invalid value is an error.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from tenure.apis.feature_gates import FeatureGate
from tenure.cli.adopt.karpenter_settings import KARPENTER_VARIABLES, is_shared
from tenure.settings import CLUSTER_NAME, WEB_ADDRESS, Settings, format_default, plain_text, web_address
from tools.docs.reference import WRITTEN, markdown_table

FILE: Final = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
OURS: Final = frozenset(
    {
        "node_cost",
        "nominate_pods",
        "surge_single_replicas",
        "eviction_requests",
        "hook_local_addresses",
        "log_format",
        "pod_uid",
        "launch_timeout",
        "registration_timeout",
        "initialization_timeout",
        "drain_timeout",
        "termination_timeout",
        "not_ready_grace",
        "prometheus_url",
        "otel_exporter_otlp_endpoint",
        "workflow_cache_size",
        "activity_slots",
    }
)
"""In addition to Temporal's; the others have Karpenter's names and meanings (reference 1.14)."""


def text() -> str:
    """docs/reference/settings.md."""
    settings = markdown_table(("Variable", "Default", "", "Meaning"), list(_setting_rows()))
    gates = [
        (f"`{gate}`", "on" if gate.default else "off", gate.description, gate.since, f"`{gate.example}`")
        for gate in FeatureGate
    ]
    return f"""{WRITTEN.format(source="tenure/settings.py")}
# Settings

Each setting of the worker is an environment variable and a flag: `CLUSTER_NAME=demo` or `--cluster-name demo`. Flags
take precedence. Durations have Go's format: `10s`, `1m30s`. K marks settings with Karpenter's name and meaning.

{settings}
## Feature gates

An unknown name is an error. The defaults are Karpenter's.

{markdown_table(("Gate", "Default", "Feature", "Since", "Example"), gates)}"""


def karpenter_page() -> str:
    """docs/reference/karpenter-settings.md."""
    shared = [
        (
            f"`{name.upper()}`",
            field.description or "",
            "the same setting",
            _format_default(field).replace("(#", "(settings.md#"),
            "0.1.0",
        )
        for name, field in Settings.model_fields.items()
        if name not in OURS and is_shared(name.upper())
    ]
    others = [
        (f"`{one.name}`", one.description, one.todo, f"`{one.example}`", one.since) for one in KARPENTER_VARIABLES
    ]
    return f"""{WRITTEN.format(source="tenure/settings.py and tenure/cli/adopt/karpenter_settings.py")}
# Karpenter's settings

`tenure adopt` compares both Deployments by this table ([Migration from Karpenter](../getting-started/adoption.md)).

{markdown_table(("Variable", "Meaning", "With Tenure", "Example", "Since"), sorted([*shared, *others]))}"""


def _setting_rows() -> Iterator[tuple[str, ...]]:
    for name, field in Settings.model_fields.items():
        karpenters = name not in OURS and not name.startswith("temporal_")
        yield f"`{name.upper()}`", _format_default(field), "K" if karpenters else "", field.description or ""


def _format_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, dict):
        return "[see below](#feature-gates)"
    text = re.sub(r"(?<=[hm])0[ms]", "", format_default(field.default))
    return f"`{text}`" if text else ""


Schema = dict[str, Any]
REQUIRED = ("CLUSTER_NAME", "AWS_REGION", "TEMPORAL_ADDRESS")
"""Settings without a useful default for a worker in a pod."""
NOT_VALUES = frozenset(
    {
        "SYSTEM_NAMESPACE",
        "POD_UID",
        "TEMPORAL_API_KEY",
        "TEMPORAL_API_KEY_PATH",
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
        "TEMPORAL_TLS_CLIENT_CERT_PATH",
        "TEMPORAL_TLS_CLIENT_KEY_PATH",
        "TEMPORAL_WORKER_BUILD_ID",
        "TEMPORAL_DEPLOYMENT_NAME",
    }
)
"""The chart derives these from the pod, the Secrets of `temporal` and the image, or a controller sets them."""
_DURATION = r"^\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$"
_GATES = frozenset(gate.variable for gate in FeatureGate)
_PLAIN: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_IN_A_POD: dict[str, Schema] = {
    "CLUSTER_NAME": {"pattern": f"^{CLUSTER_NAME}$"},
    "AWS_REGION": {"pattern": "^[a-z]{2}(-[a-z]+)+-[0-9]+$"},
    "TEMPORAL_ADDRESS": {"pattern": "^[^:/]+:[0-9]+$"},
    "HEALTH_PROBE_PORT": {"minimum": 1},
}
"""Stricter than the settings: a Service and probes need known ports, and errors are found before the worker starts."""


def settings_schema() -> Schema:
    """Schema for `settings` of the values: one property per setting, by environment variable."""
    fields = {name.upper(): field for name, field in Settings.model_fields.items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(REQUIRED),
        "properties": {name: _property_schema(name, field) for name, field in fields.items() if name not in NOT_VALUES},
    }


def _property_schema(name: str, field: FieldInfo) -> Schema:
    schema = {"description": plain_text(field.description)} | _type_schema(name, field)
    if name not in REQUIRED and name not in _GATES:
        schema["default"] = format_default(field.default) if isinstance(field.default, timedelta) else field.default
    return schema | _IN_A_POD.get(name, {})


def _type_schema(name: str, field: FieldInfo) -> Schema:
    if name in _GATES:
        switches = {
            gate.value: {"description": plain_text(gate.description), "type": "boolean", "default": gate.default}
            for gate in FeatureGate
            if gate.variable == name
        }
        return {"type": "object", "additionalProperties": False, "properties": switches}
    if get_origin(field.annotation) is Literal:
        return {"type": "string", "enum": list(get_args(field.annotation))}
    if field.annotation is timedelta:
        return {"type": "string", "pattern": _DURATION}
    return {"type": _PLAIN[field.annotation]} | _bounds_schema(field.metadata)


def _bounds_schema(constraints: Iterable[Any]) -> Schema:
    """Convert constraints of annotated-types (`Ge`, `Le`) and addresses to keywords of JSON Schema."""
    found: Schema = {}
    for constraint in constraints:
        found |= {keyword: getattr(constraint, name) for name, keyword in _BOUNDS.items() if hasattr(constraint, name)}
        if hasattr(constraint, "min_length"):
            found["minLength"] = constraint.min_length
        if getattr(constraint, "func", None) is web_address:
            found["pattern"] = f"^({WEB_ADDRESS})?$"
    return found
