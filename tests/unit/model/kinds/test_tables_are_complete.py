"""No field and no rule of the CRDs is without a row in the accept/reject tables."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from deploy.generate import crd
from deploy.kinds import KINDS
from tests.adapters.model.kinds import (
    test_accept_capacitybuffer,
    test_accept_ec2nodeclass,
    test_accept_lifecyclepolicy,
    test_accept_nodeclaim,
    test_accept_nodeoverlay,
    test_accept_nodepool,
    test_stored_objects,
)
from tests.support.model.kinds.table import (
    CAPACITYBUFFER,
    LIFECYCLEPOLICY,
    NODECLAIM,
    NODECLASS,
    NODEOVERLAY,
    NODEPOOL,
    Object,
    Row,
    patched,
)

SCHEMAS = {kind.name: crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}
TABLES = (
    (NODEPOOL, test_accept_nodepool.ROWS),
    (NODECLAIM, test_accept_nodeclaim.ROWS),
    (NODECLASS, test_accept_ec2nodeclass.ROWS),
    (NODEOVERLAY, test_accept_nodeoverlay.ROWS),
    (LIFECYCLEPOLICY, test_accept_lifecyclepolicy.ROWS),
    (CAPACITYBUFFER, test_accept_capacitybuffer.ROWS),
)
KIND_OF_TABLE = [base["kind"] for base, _ in TABLES]


@pytest.mark.parametrize(("base", "rows"), TABLES, ids=KIND_OF_TABLE)
def test_every_field_is_in_an_object_that_is_taken(base: Object, rows: Sequence[Row]) -> None:
    taken = {path for row in rows if not row.refusal for path in _written(patched(base, row.patch).get("spec"))}
    fields = set(_declared(SCHEMAS[base["kind"]]["properties"]["spec"]))
    assert fields - taken == set()


@pytest.mark.parametrize(("base", "rows"), TABLES, ids=KIND_OF_TABLE)
def test_every_rule_refuses_something(base: Object, rows: Sequence[Row]) -> None:
    refusals = [row.refusal for row in (*rows, *test_stored_objects.CHANGES) if row.refusal]
    messages = list(_messages(SCHEMAS[base["kind"]]))
    assert [message for message in messages if not any(refusal in message for refusal in refusals)] == []


def _declared(schema: Object, path: str = "") -> Iterable[str]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _declared(inner, f"{path}.{name}")
    if "items" in schema:
        yield from _declared(schema["items"], path)


def _written(value: Any, path: str = "") -> Iterable[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name}"
            yield from _written(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from _written(inner, path)


def _messages(part: Any) -> Iterable[str]:
    if isinstance(part, dict):
        yield from (rule["message"] for rule in part.get("x-kubernetes-validations", []))
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _messages(inner)
