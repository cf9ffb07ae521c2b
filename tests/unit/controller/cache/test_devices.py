"""Devices of Dynamic Resource Allocation: pods with ResourceClaims are planned onto nodes with free devices."""

from itertools import product
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.devices import DeviceIndex
from tests.support.containers import count_entries
from tests.support.controller.builders import CacheHarness, Json, node, pod
from tests.support.properties import max_examples

DRIVER = "gpu.example.com"
IS_GPU = f"device.driver == '{DRIVER}'"
LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('20Gi')) >= 0"


class DeviceHarness(CacheHarness):
    """A cache that plans devices, with the DeviceClass `gpu` and the ResourceClaimTemplate `one` of one device."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ClusterCache(lambda: self.now, devices=DeviceIndex())
        self.apply_objects("deviceclasses", device_class("gpu", IS_GPU))
        self.add_template("one", request())

    def add_template(self, name: str, *requests: Json, **devices: Any) -> None:
        spec = {"devices": {"requests": list(requests), **devices}}
        self.apply_objects("resourceclaimtemplates", {"metadata": meta(name), "spec": {"spec": spec}})

    def add_node(self, name: str, *memory: str, **spec: Any) -> None:
        """A Node with one device per amount of memory."""
        self.apply_objects("nodes", node(name))
        self.apply_objects("resourceslices", resource_slice(name, *memory, **spec))

    def add_pod(self, name: str, template: str = "one", **more: Any) -> None:
        """A pod with a claim, which is named after the pod."""
        raw = pod(name, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template}], **more)
        raw["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": name}]
        self.apply_objects("pods", raw)

    def allocate(self, claim: str, on: str, *devices: int, template: Json | None = None) -> None:
        results = [{"request": "gpu", "driver": DRIVER, "pool": on, "device": f"gpu-{one}"} for one in devices]
        self.add_claim(claim, {"allocation": {"devices": {"results": results}}} if devices else {}, template)

    def add_claim(self, name: str, status: Json, spec_request: Json | None = None, **devices: Any) -> None:
        spec = {"devices": {"requests": [spec_request or request()], **devices}}
        self.apply_objects("resourceclaims", {"metadata": meta(name), "spec": spec, "status": status})

    def problem_of(self, name: str) -> str:
        return self.cache.pods[f"uid-{name}"].unplannable

    def fits(self, name: str, on: str) -> bool:
        one = self.cache.pods[f"uid-{name}"]
        free = dict(self.cache.nodes[on].devices)
        assert one.devices or one.unplannable
        return not one.unplannable and all(free.get(key, 0) >= amount for key, amount in one.devices)


def meta(name: str, namespace: str = "default") -> Json:
    return {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {})}


def request(count: int = 1, *selectors: str, **more: Any) -> Json:
    selector = [{"cel": {"expression": one}} for one in selectors]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": selector, **more}
    return {"name": "gpu", "exactly": exactly}


def device_class(name: str, *selectors: str, **spec: Any) -> Json:
    selector = [{"cel": {"expression": one}} for one in selectors]
    return {"metadata": meta(name, ""), "spec": {"selectors": selector, **spec}}


def resource_slice(of: str, *memory: str, slices: int = 1, name: str = "", generation: int = 1, **device: Any) -> Json:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"type": {"string": "gpu"}, "driverVersion": {"version": "1.2.3"}},
            "capacity": {"memory": {"value": one}},
            **device,
        }
        for number, one in enumerate(memory)
    ]
    own_pool = {"name": of, "generation": generation, "resourceSliceCount": slices}
    spec = {"driver": DRIVER, "nodeName": of, "pool": own_pool, "devices": devices}
    return {"metadata": meta(name or f"slice-{of}", ""), "spec": spec}


@pytest.fixture
def harness() -> DeviceHarness:
    return DeviceHarness()


def test_pod_fits_nodes_with_free_devices(harness: DeviceHarness) -> None:
    harness.add_node("gpus", "16Gi", "16Gi")
    harness.add_node("plain")
    harness.add_pod("p")
    harness.add_template("three", request(3))
    harness.add_pod("large", "three")
    assert harness.fits("p", "gpus") and not harness.fits("p", "plain") and not harness.fits("large", "gpus")
    harness.allocate("a", "gpus", 0)
    assert harness.fits("p", "gpus")
    harness.allocate("b", "gpus", 1)
    assert not harness.fits("p", "gpus")
    harness.delete_objects("resourceclaims", {"metadata": meta("a")})
    assert harness.fits("p", "gpus")


def test_bound_pod_uses_devices_before_its_allocation_is_known(harness: DeviceHarness) -> None:
    harness.add_node("gpus", "16Gi")
    harness.add_pod("p")
    harness.add_pod("bound", on="gpus")
    assert not harness.fits("p", "gpus")
    harness.allocate("bound", "gpus", 0)
    assert not harness.fits("p", "gpus") and not harness.problem_of("bound")
    harness.add_node("other", "16Gi")
    assert harness.fits("bound", "other")


def test_selectors_of_class_and_request_select_devices(harness: DeviceHarness) -> None:
    harness.add_node("small", "16Gi")
    harness.add_node("large", "24Gi")
    harness.add_template("large", request(1, LARGE))
    harness.add_pod("p", "large")
    assert not harness.fits("p", "small") and harness.fits("p", "large")
    harness.apply_objects("deviceclasses", device_class("gpu", "device.driver == 'other'"))
    assert not harness.fits("p", "large")


def test_former_requests_and_allocations_leave_no_entries(harness: DeviceHarness) -> None:
    harness.add_node("gpus", "16Gi")
    before = count_entries(harness.cache)
    for number in range(3):
        harness.add_template("t", request(1, LARGE.replace("20Gi", f"{number}Gi")))
        harness.add_pod("p", "t")
        assert harness.cache.pods["uid-p"].devices
        harness.allocate("p", "gpus", 0)
        harness.delete_objects("pods", pod("p"))
        harness.delete_objects("resourceclaims", {"metadata": meta("p")})
        harness.delete_objects("resourceclaimtemplates", {"metadata": meta("t")})
    harness.cache.drain_changes()
    harness.cache.drain_planner_changes()
    after = count_entries(harness.cache)
    assert {key: number for key, number in (after - before).items() if "_devices" in key} == {}
    assert not len(cast(Any, harness.cache)._devices._allocated)


def test_overlapping_requests_do_not_use_one_device_twice(harness: DeviceHarness) -> None:
    harness.add_node("mixed", "16Gi", "24Gi")
    harness.add_template("large", request(1, LARGE))
    harness.add_template("both", request(1), {**request(1, LARGE), "name": "large"})
    harness.add_pod("any")
    harness.add_pod("large", "large")
    harness.add_pod("both", "both")
    assert all(harness.fits(one, "mixed") for one in ("any", "large", "both"))
    harness.allocate("a", "mixed", 0)
    assert harness.fits("any", "mixed") and harness.fits("large", "mixed") and not harness.fits("both", "mixed")
    harness.allocate("a", "mixed", 1)
    assert harness.fits("any", "mixed") and not harness.fits("large", "mixed")


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([request(allocationMode="All")], "spec.devices.requests[gpu].exactly.allocationMode"),
        ([request(adminAccess=True)], "spec.devices.requests[gpu].exactly.adminAccess"),
        ([request(tolerations=[{"operator": "Exists"}])], "spec.devices.requests[gpu].exactly.tolerations"),
        ([request(capacity={"requests": {"memory": "1Gi"}})], "spec.devices.requests[gpu].exactly.capacity"),
        ([request(future={})], "spec.devices.requests[gpu].exactly.future"),
        ([{"name": "gpu", "firstAvailable": [{"name": "a"}]}], "spec.devices.requests[gpu].firstAvailable"),
        ([request(1, "device.attributes.exists(a, true)")], "spec.devices.requests[gpu].exactly.selectors[0].cel"),
        (
            [request(selectors=[{"cel": {"expression": "true", "future": 1}}])],
            "spec.devices.requests[gpu].exactly.selectors[0].cel.future",
        ),
        ([request(1, "device.driver.lowerAscii() == 'a'")], "spec.devices.requests[gpu].exactly.selectors[0].cel"),
    ],
)
def test_unsupported_request_is_refused_by_name(harness: DeviceHarness, requests: list[Json], field: str) -> None:
    harness.add_node("gpus", "16Gi")
    harness.add_template("unsupported", *requests)
    harness.add_pod("p", "unsupported")
    assert harness.problem_of("p").startswith(
        f"spec.resourceClaims: ResourceClaimTemplate default/unsupported: {field}"
    )
    harness.add_template("unsupported", request())
    assert harness.fits("p", "gpus")


def test_constraints_between_devices_are_refused(harness: DeviceHarness) -> None:
    harness.add_template("aligned", request(2), constraints=[{"matchAttribute": "a/b"}])
    harness.add_pod("p", "aligned")
    assert "spec.devices.constraints: " in harness.problem_of("p")


def test_selector_that_fails_for_a_device_is_refused(harness: DeviceHarness) -> None:
    """kube-scheduler stops at such an error, also if other devices would match."""
    harness.add_node("gpus", "16Gi")
    harness.add_template("absent", request(1, f"device.attributes['{DRIVER}'].model == 'x'"))
    harness.add_pod("p", "absent")
    assert "for the device gpu-0 of the pool gpus" in harness.problem_of("p")
    harness.delete_objects("resourceslices", resource_slice("gpus"))
    assert not harness.problem_of("p") and not harness.fits("p", "gpus")


@pytest.mark.parametrize(
    "device",
    [
        {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        {"consumesCounters": [{"counterSet": "a"}]},
        {"allowMultipleAllocations": True},
        {"bindingConditions": ["a"]},
        {"attributes": {"one": {"ints": [1]}}},
        {"future": {}},
    ],
)
def test_unsupported_device_is_not_used(harness: DeviceHarness, device: Json) -> None:
    harness.add_node("gpus", "16Gi", **device)
    harness.add_pod("p")
    assert not harness.fits("p", "gpus")


def test_incomplete_pool_is_not_used(harness: DeviceHarness) -> None:
    harness.add_node("gpus", "16Gi", slices=2)
    harness.add_pod("p")
    assert not harness.fits("p", "gpus")
    second = resource_slice("gpus", slices=2, name="second")
    harness.apply_objects("resourceslices", second)
    assert harness.fits("p", "gpus")
    harness.apply_objects("resourceslices", resource_slice("gpus", "16Gi", slices=2, name="third", generation=2))
    assert not harness.fits("p", "gpus")


def test_claim_of_the_user_is_planned_for_one_pod_only(harness: DeviceHarness) -> None:
    harness.add_node("gpus", "16Gi")
    own: Json = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
    harness.apply_objects("pods", pod("p", **own))
    assert harness.problem_of("p") == "spec.resourceClaims: ResourceClaim default/mine does not exist"
    harness.add_claim("mine", {})
    assert harness.fits("p", "gpus")
    harness.apply_objects("pods", pod("q", **own))
    assert "is shared by several pods" in harness.problem_of("p") and "is shared" in harness.problem_of("q")
    harness.delete_objects("pods", pod("q", **own))
    assert harness.fits("p", "gpus")
    harness.add_claim("mine", {"reservedFor": [{"uid": "uid-unknown"}]})
    assert "is shared by several pods" in harness.problem_of("p")


def test_pending_pod_with_allocated_claim_is_not_planned(harness: DeviceHarness) -> None:
    harness.add_node("gpus", "16Gi", "16Gi")
    harness.add_pod("p")
    harness.allocate("p", "gpus", 0)
    assert "is allocated: the pod can run only where its devices are" in harness.problem_of("p")


def test_too_many_overlapping_requests_are_refused(harness: DeviceHarness) -> None:
    harness.add_node("gpus", "16Gi")
    for number in range(5):
        harness.add_template(f"t{number}", request(1, f"device.driver != 'd{number}'"))
        harness.add_pod(f"p{number}", f"t{number}")
    assert all("more than 4 different requests" in harness.problem_of(f"p{number}") for number in range(5))
    harness.delete_objects("pods", pod("p4"))
    assert all(harness.fits(f"p{number}", "gpus") for number in range(4))


def test_other_reason_of_unplannable_pod_stays(harness: DeviceHarness) -> None:
    harness.add_pod("p", "absent", schedulingGroup={"podGroupName": "g"})
    assert harness.problem_of("p").startswith("spec.schedulingGroup")


def test_pod_that_cannot_be_read_affects_only_itself(harness: DeviceHarness) -> None:
    harness.add_node("gpus", "16Gi")
    raw = pod("broken", resourceClaims=[{"name": "gpu", "resourceClaimName": "a", "future": 1}])
    harness.apply_objects("pods", raw)
    harness.add_pod("p")
    assert harness.problem_of("broken").startswith("spec.resourceClaims[gpu].future: ") and harness.fits("p", "gpus")


FIELDS = st.sampled_from(
    ["future", "constraints", "firstAvailable", "adminAccess", "tolerations", "capacity", "allocationMode"]
)
VALUES = st.sampled_from([None, "", False, {}, [], True, "All", {"a": 1}, [{"a": 1}]])


@max_examples(100)
@given(
    place=st.sampled_from(["spec", "devices", "request", "exactly", "class"]),
    field=FIELDS,
    value=VALUES,
    free=st.integers(0, 2),
)
def test_unknown_field_only_removes_placements(place: str, field: str, value: object, free: int) -> None:
    """A claim or class with another field never fits a node that the plain claim does not fit."""
    plain, other = DeviceHarness(), DeviceHarness()
    for harness in (plain, other):
        harness.add_node("gpus", *["16Gi"] * free)
        harness.add_pod("p")
    levels: dict[str, Json] = {"request": request()}
    levels["exactly"] = levels["request"]["exactly"]
    levels["devices"] = {"requests": [levels["request"]]}
    levels["spec"] = {"devices": levels["devices"]}
    if place == "class":
        other.apply_objects("deviceclasses", device_class("gpu", IS_GPU, **{field: value}))
    else:
        levels[place][field] = value
        other.apply_objects("resourceclaimtemplates", {"metadata": meta("one"), "spec": {"spec": levels["spec"]}})
    assert plain.fits("p", "gpus") or not other.fits("p", "gpus")
    if field == "future":
        assert field in other.problem_of("p")


@max_examples(100)
@given(
    large=st.lists(st.booleans(), max_size=4),
    demands=st.lists(st.sampled_from(["any", "large", "small"]), min_size=1, max_size=4),
)
def test_amounts_are_exact(large: list[bool], demands: list[str]) -> None:
    """Pods fit together if and only if an assignment of devices exists."""
    harness = DeviceHarness()
    harness.add_node("n", *["24Gi" if one else "16Gi" for one in large])
    small = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('20Gi')) < 0"
    for name, selectors in {"any": (), "large": (LARGE,), "small": (small,)}.items():
        harness.add_template(name, request(1, *selectors))
    needed = dict[str, int]()
    for number, name in enumerate(demands):
        harness.add_pod(f"p{number}", name)
    for number in range(len(demands)):
        for key, amount in harness.cache.pods[f"uid-p{number}"].devices:
            needed[key] = needed.get(key, 0) + amount
    free = dict(harness.cache.nodes["n"].devices)
    accepted = {"any": (True, False), "large": (True,), "small": (False,)}
    assignments = product(range(len(large)), repeat=len(demands))
    exists = any(
        len(set(one)) == len(one) and all(large[d] in accepted[name] for d, name in zip(one, demands, strict=True))
        for one in assignments
    )
    assert all(free.get(key, 0) >= amount for key, amount in needed.items()) == exists
