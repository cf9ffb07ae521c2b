"""Every field of the CRDs has a description, and every validation message says how to fix the value."""

from typing import Any

import pytest

from tools.crds.kinds import KINDS, Kind
from tools.generate import build_crd


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rule_messages_have_the_expected_form(kind: Kind) -> None:
    advice = ("add", "create", "e.g.", "expected", "must", "move", "only", "remove", "restore", "set", "use")
    messages = [rule["message"] for rule in _rules(build_crd(kind))]
    assert messages
    assert [message for message in messages if not any(verb in message for verb in advice)] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_has_a_description(kind: Kind) -> None:
    root = build_crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert [path for path, schema in _fields(root, "") if "description" not in schema and path != ".metadata"] == []


def _rules(part: Any) -> list[dict[str, str]]:
    if isinstance(part, dict):
        own = part.get("x-kubernetes-validations", [])
        return [*own, *(rule for value in part.values() for rule in _rules(value))]
    return [rule for value in part for rule in _rules(value)] if isinstance(part, list) else []


def _fields(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, inner in schema.get("properties", {}).items():
        found += [(f"{path}.{name}", inner), *_fields(inner, f"{path}.{name}")]
    return found + (_fields(schema["items"], path + "[]") if "items" in schema else [])
