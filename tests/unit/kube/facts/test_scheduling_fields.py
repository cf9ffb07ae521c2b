"""Pods with fields that Tenure refuses or does not know are not planned, and the reason names the field."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.quantity import MAX_AMOUNT
from tenure.kube.facts.pods import daemonset_fact, pod_fact, virtual_pod_fact
from tenure.kube.facts.resource_claims import without_claims
from tenure.kube.facts.scheduling_fields import STRUCTS, find_rejected_field
from tenure.kube.facts.volumes import storage_class_fact, volume_fact
from tests.support.kube.builders import pod_json
from tests.support.properties import max_examples

Json = dict[str, Any]
METADATA = {"uid": "uid-p", "creationTimestamp": "2026-01-01T12:00:00Z"}
CLAIM = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


def unplannable(*, status: Json | None = None, **spec: Any) -> str:
    return pod_fact({**pod_json("p", metadata=METADATA, **spec), "status": status or {}}).unplannable


def container(**fields: Any) -> list[Json]:
    return [{"name": "main", "image": "none", **fields}]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"resourceClaims": CLAIM}, "spec.resourceClaims"),
        ({"containers": container(resources={"claims": [{"name": "gpu"}]})}, "spec.containers[main].resources.claims"),
        (
            {"initContainers": container(resources={"claims": [{"name": "gpu"}]})},
            "spec.initContainers[main].resources.claims",
        ),
        ({"schedulingGroup": {"podGroupName": "training"}}, "spec.schedulingGroup"),
        ({"workloadRef": {"name": "training"}}, "spec.workloadRef"),
        (
            {"containers": container(restartPolicyRules=[{"action": "RestartNode"}])},
            "spec.containers[main].restartPolicyRules[0].action",
        ),
        ({"volumes": [{"name": "data", "iscsi": {"iqn": "iqn"}}]}, "spec.volumes[data].iscsi"),
        (
            {"containers": container(resources={"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}})},
            "spec.containers[].resources.requests[deviceclass.resource.kubernetes.io/gpu]",
        ),
        ({"status": {"extendedResourceClaimStatus": {"resourceClaimName": "c"}}}, "status.extendedResourceClaimStatus"),
        ({"aFieldOfTheFuture": {}}, "spec.aFieldOfTheFuture"),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "minNodes": 2}]},
            "spec.topologySpreadConstraints[0].minNodes",
        ),
        *(
            (
                {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", field: "Sometimes"}]},
                f"spec.topologySpreadConstraints[0].{field}",
            )
            for field in ("nodeAffinityPolicy", "nodeTaintsPolicy", "whenUnsatisfiable")
        ),
    ],
)
def test_pod_with_a_refused_or_unknown_field_is_unplannable(spec: Json, field: str) -> None:
    assert unplannable(**spec).startswith(f"{field}: ")


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceClaims": [], "schedulingGroup": None},
        {"hostUsers": False},
        {"hostNetwork": True, "hostUsers": True},
        {"containers": container(restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In"}}])},
        {"volumes": [{"name": "data", "projected": {"sources": []}}, {"name": "x", "csi": {"driver": "secrets"}}]},
    ],
    ids=["empty", "user namespace", "host network", "restart rule", "volumes"],
)
def test_pod_with_irrelevant_fields_is_plannable(spec: Json) -> None:
    assert unplannable(**spec) == ""


RESTART_ALL = container(restartPolicyRules=[{"action": "Restart"}, {"action": "RestartAllContainers"}])
BIND_OPTIONS = container(volumeMounts=[{"name": "data", "bindMountOptions": ["noexec"]}])


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ({"hostNetwork": True, "hostUsers": False}, ["UserNamespacesHostNetworkSupport"]),
        ({"containers": RESTART_ALL}, ["RestartAllContainersOnContainerExits"]),
        ({"initContainers": RESTART_ALL}, ["RestartAllContainersOnContainerExits"]),
        ({"containers": BIND_OPTIONS}, ["VolumeBindMountOptions"]),
        (
            {"containers": BIND_OPTIONS, "hostNetwork": True, "hostUsers": False},
            ["UserNamespacesHostNetworkSupport", "VolumeBindMountOptions"],
        ),
        ({"hostNetwork": True}, []),
        ({"hostUsers": False}, []),
        ({"containers": container(volumeMounts=[{"name": "data", "bindMountOptions": []}])}, []),
    ],
)
def test_feature_that_a_node_must_declare_is_a_node_selector(spec: Json, features: list[str]) -> None:
    found = pod_fact(pod_json("p", metadata=METADATA, **spec))
    assert found.unplannable == ""
    assert found.node_selector == {f"status.declaredFeatures ({one})": "true" for one in features}


def test_daemonset_counts_on_nodes_whatever_they_declare() -> None:
    template = {"spec": {"containers": BIND_OPTIONS, "nodeSelector": {"team": "a"}}}
    daemonset = {"metadata": METADATA | {"namespace": "default", "name": "d"}, "spec": {"template": template}}
    assert daemonset_fact(daemonset).pod.node_selector == {"team": "a"}


def test_template_of_a_capacity_buffer_with_a_refused_field_is_unplannable() -> None:
    buffer = {"metadata": {**METADATA, "name": "b", "namespace": "default"}}
    template = {"spec": {"containers": container(), "resourceClaims": CLAIM}}
    assert virtual_pod_fact(buffer, template).unplannable.startswith("spec.resourceClaims: ")


@pytest.mark.parametrize(("selector", "os"), [({}, "windows"), ({"kubernetes.io/os": "linux"}, "linux")])
def test_os_of_a_pod_selects_nodes(selector: dict[str, str], os: str) -> None:
    fact = pod_fact(pod_json("p", metadata=METADATA, os={"name": "windows"}, nodeSelector=selector))
    assert fact.node_selector == {"kubernetes.io/os": os}


def _paths(name: str, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The field names that lead to each type that a value of type `name` contains."""
    yield path
    for key, nested in STRUCTS[name].nested.items():
        yield from _paths(nested, (*path, key))


PATHS = sorted(_paths("PodSpec", ()))


def _nest(path: tuple[str, ...], value: Json) -> Json:
    """A spec that has `value` at `path`."""
    for key in reversed(path):
        value = {key: value}
    return value


@max_examples(200)
@given(st.sampled_from(PATHS), st.text("abcdefgXYZ", min_size=1), st.none() | st.integers() | st.text() | st.just([1]))
def test_unknown_field_anywhere_in_a_pod_makes_it_unplannable(path: tuple[str, ...], key: str, value: object) -> None:
    spec = _nest(path, {"unknown" + key: value})
    found = find_rejected_field(spec, {}, ())
    assert found.startswith("spec.") and f"unknown{key}: " in found, spec


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_known_fields_anywhere_in_a_pod_are_accepted(path: tuple[str, ...]) -> None:
    struct = STRUCTS["PodSpec"]
    for key in path:
        struct = STRUCTS[struct.nested[key]]
    leaves = dict.fromkeys(struct.implemented | struct.irrelevant, True)
    assert (
        find_rejected_field(_nest(path, {**leaves, "action": "Restart"} if "action" in leaves else leaves), {}, ())
        == ""
    )


def test_volumes_with_an_unknown_field_name_it() -> None:
    volume = volume_fact({"metadata": {"name": "v"}, "spec": {"csi": {"driver": "ebs"}, "rackAffinity": {}}})
    assert volume.unknown_field.startswith("spec.rackAffinity: ")
    storage_class = storage_class_fact({"metadata": {"name": "s"}, "provisioner": "ebs", "rackTopologies": []})
    assert storage_class.unknown_field.startswith("rackTopologies: ")
    assert not volume_fact({"metadata": {"name": "v"}, "spec": {"csi": {"driver": "ebs"}}}).unknown_field


@pytest.mark.parametrize(("amount", "containers"), [("1e30", 1), ("5e12", 2)])
def test_amount_that_no_node_has_counts_for_a_pending_pod_only(amount: str, containers: int) -> None:
    """kube-scheduler binds a pod with `cpu: 1e30` to any node, since its 64-bit amount overflows."""
    requests = {"cpu": amount, "memory": "1Gi"}
    spec: Json = {
        "containers": [
            {"name": f"c{number}", "image": "none", "resources": {"requests": requests}} for number in range(containers)
        ]
    }
    pending, bound = (
        pod_fact(pod_json("p", metadata=METADATA, **spec, **place)) for place in ({}, {"nodeName": "node"})
    )
    assert "is more than any instance type has" in pending.unplannable == bound.unplannable
    assert pending.requests["cpu"] >= MAX_AMOUNT
    assert bound.requests == {"memory": containers * 2**30, "pods": 1}


def test_spec_without_claims_keeps_everything_else() -> None:
    devices: dict[str, Any] = {"name": "devices", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}}
    unknown = {"name": "unknown", "resources": {"claims": [{"name": "gpu", "mode": "shared"}]}}
    plain = {"name": "plain"}
    spec = {"nodeName": "n", "resourceClaims": [{"name": "gpu"}], "initContainers": [devices], "containers": [unknown]}
    without = {"name": "devices", "resources": {"requests": {"cpu": "1"}}}
    assert without_claims({**spec, "containers": [unknown, plain]}) == {
        "nodeName": "n",
        "initContainers": [without],
        "containers": [unknown, plain],
    }
