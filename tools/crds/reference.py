"""Render docs/reference/kinds: each field of each kind with type, default and bounds, from the CRD schemas."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tenure.apis import crd_schema as patterns
from tools.crds.kinds import KINDS, Kind
from tools.crds.schema import Schema, root_schema
from tools.docs.reference import FOLDER, WRITTEN, markdown_table

Row = tuple[str, Schema, bool]
"""Path, schema, and whether the field is required."""
GUIDES: Final = {
    "NodePool": "Karpenter's kind, with its names and meanings: [its documentation]"
    "(https://karpenter.sh/docs/concepts/nodepools/). Tenure: "
    "[voluntary disruption](../../disruption/voluntary-disruption.md), "
    "[expiration](../../disruption/expiry.md), [static NodePools](../../provisioning/static-pools.md).",
    "NodeClaim": "Karpenter's kind, with its names and meanings: [its documentation]"
    "(https://karpenter.sh/docs/concepts/nodeclaims/). Tenure: "
    "[node lifecycle](../../concepts/overview.md#node-lifecycle).",
    "EC2NodeClass": "Karpenter's kind, with its names and meanings: [its documentation]"
    "(https://karpenter.sh/docs/concepts/nodeclasses/). Tenure: "
    "[EC2NodeClass readiness](../../provisioning/node-classes.md).",
    "NodeOverlay": "Karpenter's kind, with its names and meanings: [its documentation]"
    "(https://karpenter.sh/docs/concepts/nodeoverlays/). Tenure: [NodeOverlay](../../provisioning/overlays.md).",
    "LifecyclePolicy": "Tenure's own kind. [LifecyclePolicy](../../concepts/lifecycle-policy.md) describes its use and "
    "[precedence](../../concepts/lifecycle-policy.md#precedence). An unset field falls to a less precise policy, then "
    "to the [settings](../settings.md).",
    "CapacityBuffer": "The kind of Kubernetes' autoscaling group, with its names and meanings: [its proposal]"
    "(https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/proposals/buffers.md). Tenure: "
    "[CapacityBuffer](../../provisioning/buffers.md).",
}
"""Introduction of each page, with links to explanations."""
_PATTERNS: Final[Mapping[str, str]] = {
    patterns.DURATION: "a duration",
    patterns.DURATION_OR_NEVER: "a duration, or `Never`",
    patterns.CRON: "a cron schedule",
    patterns.LABEL_VALUE: "a label value",
    patterns.QUALIFIED_NAME: "a qualified name",
    r"^((100|[0-9]{1,2})%)$": "a percentage",
    r"^(100|[0-9]{1,2})%$": "a percentage",
    r"^((100|[0-9]{1,2})%|[0-9]+)$": "a number or a percentage",
}
_RANGES: Final = (
    ("minimum", "maximum", ""),
    ("minItems", "maxItems", " entries"),
    ("minLength", "maxLength", " characters"),
    ("minProperties", "maxProperties", " entries"),
)
_LONG: Final = 40
"""Maximum characters of a default in a cell."""


def render_pages() -> Mapping[Path, str]:
    """Text by path: one page for each kind, and the list of kinds."""
    return {FOLDER / "kinds.md": _list(), **{page_of(kind): _render_page(kind) for kind in KINDS}}


def page_of(kind: Kind) -> Path:
    return FOLDER / "kinds" / f"{kind.name.lower()}.md"


def rows_of(kind: Kind) -> list[Row]:
    """One row for each field of spec and status."""
    known = root_schema(kind.model)["properties"]
    return [row for part in ("spec", "status") if part in known for row in _rows_below(known[part], part)]


def _rows_below(schema: Schema, path: str) -> Iterator[Row]:
    for name, field in schema.get("properties", {}).items():
        at = f"{path}.{name}"
        yield at, field, name in schema.get("required", ())
        yield from _rows_below(*_innermost_schema(field, at))


def _innermost_schema(schema: Schema, path: str) -> tuple[Schema, str]:
    """The schema of the entries of nested lists and maps, and its path."""
    for keyword, sign in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(keyword), dict):
            return _innermost_schema(schema[keyword], path + sign)
    return schema, path


def _list() -> str:
    rows = (
        (
            f"[{kind.name}](kinds/{page_of(kind).name})",
            f"`{kind.group}/{kind.version}`",
            ", ".join(f"`{name}`" for name in (kind.plural, *kind.short_names)),
            "namespace" if kind.namespaced else "cluster",
            _escape_cell(root_schema(kind.model)["description"]),
        )
        for kind in KINDS
    )
    return (
        WRITTEN.format(source="tools/crds/kinds.py and tenure/apis")
        + "# Kinds\n\nThese pages list the fields of each kind with the API server's validation. "
        "`kubectl explain nodepool.spec.disruption --recursive` shows them too.\n\n"
        + markdown_table(("Kind", "apiVersion", "kubectl names", "Scope", "Description"), rows)
    )


def _render_page(kind: Kind) -> str:
    rows = rows_of(kind)
    parts: dict[str, list[Row]] = {"spec": []}
    for row in rows:
        parts.setdefault(_section_of(row[0], rows), []).append(row)
    description = root_schema(kind.model)["description"]
    also = "".join(f", also served as `{kind.group}/{one}`" for one in kind.also_served)
    return (
        WRITTEN.format(source="tenure/apis")
        + f"# {kind.name}\n\n{description} `apiVersion: {kind.group}/{kind.version}`{also}.\n\n"
        f"{GUIDES[kind.name]}\n\n`[]` stands for each entry of a list. The API server sets the default of an omitted "
        "field. A required field may only be omitted together with its parent.\n"
        + "".join(f"\n## {name}\n{_fields_table(inside)}" for name, inside in parts.items() if inside)
    )


def _section_of(path: str, rows: list[Row]) -> str:
    """The heading for a field. A field of spec that has subfields gets its own heading."""
    top = ".".join(path.split(".")[:2]).removesuffix("[]")
    if top.startswith("spec.") and any(one.startswith((f"{top}.", f"{top}[]")) for one, _, _ in rows):
        return top
    return path.partition(".")[0]


def _fields_table(rows: list[Row]) -> str:
    return markdown_table(
        ("Field", "Type", "Default", "Bounds", "Description"),
        (
            (
                f"`{path}`",
                _format_type(field),
                _format_default(field, required),
                _format_bounds(field),
                _escape_cell(field.get("description", "")),
            )
            for path, field, required in rows
        ),
    )


def _format_type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if schema.get("format") == "date-time":
        return "time"
    if "items" in schema:
        return f"list of {_format_type(schema['items'])}"
    if isinstance(inner := schema.get("additionalProperties"), dict):
        return f"map of {_format_type(inner)}"
    return str(schema["type"])


def _format_default(schema: Schema, required: bool) -> str:
    """The default of a field; instead of a long default of an object, a pointer to its fields."""
    if "default" in schema:
        text = schema["default"] if isinstance(schema["default"], str) else json.dumps(schema["default"])
        return f"`{text}`" if len(text) <= _LONG else "those of its fields"
    return "required" if required else ""


def _format_bounds(schema: Schema) -> str:
    parts = [text for low, high, unit in _RANGES if (text := _format_range(schema.get(low), schema.get(high), unit))]
    if "enum" in schema:
        parts.append(", ".join(f"`{one}`" for one in schema["enum"]))
    if schema.get("pattern") in _PATTERNS:
        parts.append(_PATTERNS[schema["pattern"]])
    for keyword in ("items", "additionalProperties"):
        inner = schema.get(keyword)
        if isinstance(inner, dict) and "properties" not in inner and (each := _format_bounds(inner)):
            parts.append(f"each {each}")
    return _escape_cell("; ".join(parts))


def _format_range(low: Any, high: Any, unit: str) -> str:
    if low is None and high is None:
        return ""
    if high is None and low == 1 and unit:
        return "not empty"
    if high is None:
        return f"at least {low}{unit}"
    return f"at most {high}{unit}" if low is None else f"{low} to {high}{unit}"


def _escape_cell(text: str) -> str:
    return text.replace("|", r"\|").replace("'*'", "`*`")
