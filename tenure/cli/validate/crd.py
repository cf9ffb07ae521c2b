"""The CustomResourceDefinitions that Tenure ships, as validators of objects without an API server.

The order is that of the API server on create: unknown fields, defaults, schema, and then, for a valid object, the CEL
rules. The status is ignored. `tests/adapters/apis/test_offline_validation.py` compares the results with a real server.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import yaml

from deploy.resources import crd_files
from tenure.apis.crd_schema import LABEL_VALUE_FORM
from tenure.cli.validate.findings import Finding
from tenure.cli.validate.openapi_schema import apply_defaults, check_rules, check_schema

Object = dict[str, Any]
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes of the keys and values of all annotations."""
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_KEY: Final = {"title": "a qualified name, e.g. example.com/team", "pattern": rf"^({_SUBDOMAIN}/)?{_NAME}$"}
_ANY_CASE_KEY: Final = {**_KEY, "pattern": rf"^((?i:{_SUBDOMAIN})/)?{_NAME}$"}
_ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}
_OWNER: Final = {
    "type": "object",
    "required": ["apiVersion", "kind", "name", "uid"],
    "properties": {
        **{key: {"type": "string", "minLength": 1} for key in ("apiVersion", "kind", "name", "uid")},
        **{key: {"type": "boolean"} for key in ("controller", "blockOwnerDeletion")},
    },
}
METADATA: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {
            "type": "string",
            "pattern": f"^{_SUBDOMAIN}$",
            "maxLength": 253,
            "title": "a name in lower case, e.g. general-2",
        },
        "labels": {
            "type": "object",
            "propertyNames": _KEY,
            "additionalProperties": {"type": "string", "pattern": rf"^({_NAME})?$", "title": LABEL_VALUE_FORM},
        },
        "annotations": {"type": "object", "propertyNames": _ANY_CASE_KEY, "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "items": {"type": "string", **_KEY}},
        "ownerReferences": {"type": "array", "items": _OWNER},
        "managedFields": {"type": "array", "items": {"type": "object", **_ANYTHING}},
        **{key: {"type": "string"} for key in ("generateName", "namespace", "selfLink", "uid", "resourceVersion")},
        **{key: {"type": "string", "format": "date-time"} for key in ("creationTimestamp", "deletionTimestamp")},
        **{key: {"type": "integer"} for key in ("generation", "deletionGracePeriodSeconds")},
    },
}
"""ObjectMeta, whose schema the CustomResourceDefinitions leave to the API server."""


class CustomResource:
    """One kind of Tenure or Karpenter, with its schemas by API version."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        spec = definition["spec"]
        self.kind: str = spec["names"]["kind"]
        self.group: str = spec["group"]
        self._schemas = {
            f"{self.group}/{one['name']}": _with_metadata(one["schema"]["openAPIV3Schema"])
            for one in spec["versions"]
            if one["served"]
        }

    def schemas(self) -> list[Mapping[str, Any]]:
        """One for each served version."""
        return list(self._schemas.values())

    def validate(self, found: Mapping[str, Any]) -> tuple[Object, list[Finding]]:
        """The object as the API server would store it, and the reasons for which it would reject it."""
        version = found.get("apiVersion")
        schema = self._schemas.get(version) if isinstance(version, str) else None
        if schema is None:
            expected = f"expected {' or '.join(self._schemas)}"
            problem = "required field is missing" if version is None else "unknown API version"
            return dict(found), [Finding(field="apiVersion", value=version, problem=problem, remedy=expected)]
        try:
            stored: Object = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
        except TypeError as error:
            return dict(found), [Finding(field="", problem=str(error), remedy="expected only values that JSON has")]
        findings = list(apply_defaults(schema, stored))
        stored_status = stored.pop("status", None)
        findings += check_schema(schema, stored)
        findings += _check_annotations(stored)
        if not findings:
            findings += check_rules(schema, stored)
        return stored if stored_status is None else {**stored, "status": stored_status}, findings


def _check_annotations(found: Object) -> Iterator[Finding]:
    metadata = found.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        return  # The schema reports a wrong type.
    size = sum(len(f"{key}{value}".encode()) for key, value in annotations.items())
    if size > _MAX_ANNOTATIONS:
        yield Finding(
            field="metadata.annotations",
            value=size,
            problem="too many bytes",
            remedy=f"expected at most {_MAX_ANNOTATIONS}",
        )


def _with_metadata(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = {**schema["properties"], "metadata": METADATA}
    return {**schema, "properties": properties, "required": sorted({*schema.get("required", ()), "metadata"})}


@cache
def custom_resource(kind: str) -> CustomResource | None:
    """None for a kind that Tenure does not define. Reads only the file of the kind."""
    for file in crd_files():
        text = file.read_text()
        if f"\n    kind: {kind}\n" in text:
            return CustomResource(yaml.load(text, _LOADER))
    return None


def custom_resource_of(found: Mapping[str, Any]) -> CustomResource | None:
    """The kind of the object; None for other kinds, also for a kind of the same name in another API group."""
    kind, version = found.get("kind"), found.get("apiVersion")
    resource = custom_resource(kind) if isinstance(kind, str) else None
    is_ours = not isinstance(version, str) or (resource and version.partition("/")[0] == resource.group)
    return resource if is_ours else None
