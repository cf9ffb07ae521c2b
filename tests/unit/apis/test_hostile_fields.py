"""Every field that accepts free text or numbers gets hostile values, in an object that is valid without them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tenure.cli.validate.crd import CustomResource, custom_resource
from tenure.kube.facts.scheduling_fields import STRUCTS
from tests.support.hostile.objects import BASES, build_base, list_fields, put

Schema = Mapping[str, Any]
CUSTOM_RESOURCES: Final = {kind: found for kind in BASES if (found := custom_resource(kind))}
FIXED_VALUES: Final = {
    *("bindMountOptions", "effect", "hostNetwork", "hostUsers", "key", "metadata", "operator", "os", "restartPolicy"),
    *("nodeAffinityPolicy", "nodeTaintsPolicy", "unschedulable", "values", "volumeBindingMode", "whenUnsatisfiable"),
}
"""Fields of Kubernetes with fixed values, those of expressions, which are replaced as a whole, and metadata."""
ROOTS: Final = {
    "Pod": ("PodSpec", "spec"),
    "Node": ("NodeSpec", "spec"),
    "PersistentVolume": ("PersistentVolumeSpec", "spec"),
    "StorageClass": ("StorageClass", ""),
}
ID: Final = "0123456789abcdef0"
VALID_VALUES: Final[tuple[Any, ...]] = (
    *("a", "1h", "1", "1%", "10Gi", "@daily", "2026-01-02", "UTC", "https://example.com/", "al2023@latest"),
    *(f"{one}-{ID}" for one in ("ami", "cr", "pg", "sg", "snap", "subnet")),
    *("123456789012", "default", "example.com", "Active", "2026-01-01T00:00:00Z", "0.5", "+5%"),
    *(0, 1, 60, 200, {}, {"example.com/k": "1"}, {"memory.available": "5%"}, [{"key": "a.b/c", "operator": "Exists"}]),
)


def list_free_fields(schema: Schema, path: str) -> Iterator[str]:
    """Paths below `path` whose values the schema does not enumerate."""
    if schema.get("type") == "array":
        yield from list_free_fields(schema["items"], f"{path}.0")
    elif properties := schema.get("properties"):
        for name, one in properties.items():
            yield from list_free_fields(one, f"{path}.{name}")
    elif schema.get("type") != "boolean" and "enum" not in schema:
        yield path


def is_covered(path: str, listed: set[str]) -> bool:
    """A field is also covered by hostile values of a field above or below it."""
    return any(f"{path}.".startswith(f"{one}.") or one.startswith((f"{path}.", f"{path}[")) for one in listed)


def list_struct_fields(kind: str) -> Iterator[tuple[str, str]]:
    """The type and name of each field on the way to the hostile values of the kind."""
    root, prefix = ROOTS[kind]
    for _, _, path in list_fields(kind):
        struct = root
        for name in path.removeprefix(f"{prefix}.").replace("[", ".").split("."):
            if name.isdigit():
                continue
            if struct not in STRUCTS:
                break
            yield struct, name
            struct = STRUCTS[struct].nested.get(name, "")


def list_reachable_structs(root: str) -> set[str]:
    found, new = set[str](), {root}
    while new:
        found |= new
        new = {one for struct in new for one in STRUCTS[struct].nested.values()} - found
    return found


@pytest.mark.parametrize("kind", CUSTOM_RESOURCES)
def test_every_free_field_of_a_custom_resource_gets_hostile_values(kind: str) -> None:
    listed = {path for _, _, path in list_fields(kind)}
    for schema in CUSTOM_RESOURCES[kind].schemas():
        fields = list_free_fields(schema["properties"]["spec"], "spec")
        assert [one for one in fields if not is_covered(one, listed)] == []


def list_unbounded_texts(schema: Schema, path: str) -> Iterator[str]:
    """Strings below `path` without a maximum length. Values of label maps have that of Kubernetes labels."""
    for name, one in schema.get("properties", {}).items():
        yield from list_unbounded_texts(one, f"{path}.{name}")
    if schema.get("type") == "array":
        yield from list_unbounded_texts(schema["items"], f"{path}.0")
    if schema.get("type") == "string" and not {"enum", "maxLength"} & schema.keys():
        yield path


def test_every_text_of_a_lifecycle_policy_has_a_maximum_length() -> None:
    """Karpenter's kinds accept the same objects as with Karpenter, and their readers limit the length."""
    (schema,) = CUSTOM_RESOURCES["LifecyclePolicy"].schemas()
    assert list(list_unbounded_texts(schema["properties"]["spec"], "spec")) == []


@pytest.mark.parametrize("kind", ROOTS)
def test_every_field_that_decides_scheduling_gets_hostile_values(kind: str) -> None:
    expected = {
        (struct, name)
        for struct in list_reachable_structs(ROOTS[kind][0])
        for name in STRUCTS[struct].implemented - FIXED_VALUES
    }
    assert expected - set(list_struct_fields(kind)) == set()


@pytest.mark.parametrize("kind", CUSTOM_RESOURCES)
def test_object_is_valid_with_some_value_in_each_field(kind: str) -> None:
    """Otherwise, the API server would reject the object for another field, and no hostile value would be tried."""
    fields = [path for _, _, path in list_fields(kind) if path.startswith("spec.")]
    assert [one for one in fields if not accepts_a_value(CUSTOM_RESOURCES[kind], kind, one)] == []


def accepts_a_value(resource: CustomResource, kind: str, path: str) -> bool:
    for value in VALID_VALUES:
        found = build_base(kind, path)
        put(found, path, value)
        if not resource.validate(found)[1]:
            return True
    return False
