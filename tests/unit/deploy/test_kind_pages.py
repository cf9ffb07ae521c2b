"""docs/reference/kinds against the CRDs: every field has its line, with what it is, and every kind its page."""

from collections.abc import Iterator
from typing import Any

import pytest

from deploy.generate import crd, files
from deploy.kind_pages import GUIDES, page_of, pages, rows_of
from deploy.kinds import KINDS, Kind

BY_NAME = {kind.name: kind for kind in KINDS}


def text_of(name: str) -> str:
    return pages()[page_of(BY_NAME[name])]


def line(name: str, field: str) -> list[str]:
    """The cells of a field's line."""
    [found] = [one for one in text_of(name).splitlines() if one.startswith(f"| `{field}` |")]
    return [cell.strip() for cell in found.strip("|").split(" | ")]


def names(schema: Any) -> Iterator[str]:
    """All names of fields in a schema, however deep."""
    for name, field in schema.get("properties", {}).items():
        yield name
        yield from names(field)
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from names(schema[keyword])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_of_the_crd_has_its_line_and_says_what_it_is(kind: Kind) -> None:
    known = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    wanted = [one for part in ("spec", "status") for one in names(known[part])]
    rows = rows_of(kind)
    assert sorted(path.rpartition(".")[2] for path, _, _ in rows) == sorted(wanted)
    assert [path for path, _, _ in rows if text_of(kind.name).count(f"\n| `{path}` |") != 1] == []
    assert [path for path, field, _ in rows if not field.get("description")] == []


def test_a_line_says_the_type_default_and_bounds() -> None:
    assert line("NodePool", "spec.disruption.budgets[].nodes")[1:4] == ["string", "`10%`", "a number or a percentage"]
    assert line("NodePool", "spec.weight")[1:4] == ["integer", "", "1 to 100"]
    assert line("NodePool", "spec.limits")[1] == "map of quantity"
    assert line("NodeClaim", "status.conditions[].lastTransitionTime")[1:3] == ["time", "required"]
    assert line("LifecyclePolicy", "spec.repair.steps")[1:4] == [
        "list of string",
        "",
        "1 to 5 entries; each `reboot`, `replace`",
    ]
    assert line("LifecyclePolicy", "spec.launch.deadline")[3] == "a duration"
    assert line("EC2NodeClass", "spec.metadataOptions")[2] == "those of its fields"


def test_every_kind_is_in_the_list_and_has_its_guide() -> None:
    assert set(GUIDES) == set(BY_NAME)
    [listed] = [text for path, text in pages().items() if path.name == "kinds.md"]
    assert all(f"(kinds/{page_of(kind).name})" in listed for kind in KINDS)


def test_the_pages_are_held_fresh_and_none_is_left_over() -> None:
    assert pages().items() <= files().items()
    folder = page_of(KINDS[0]).parent
    assert set(folder.glob("*")) == {page_of(kind) for kind in KINDS}
