"""Devices of new nodes: templates of instance types, until DRA drivers publish the real devices."""

from typing import Any

import pytest

from tenure.model.facts import NodeClaimFact
from tenure.model.instance_types import Catalogue, DeviceTemplate, InstanceType, TypeDevices
from tenure.policy.lifecycle.initialization import decide_waiting_for
from tests.support.controller.builders import CacheHarness, Json, claim, node, pod
from tests.unit.controller.cache.test_devices import (
    DRIVER,
    IS_GPU,
    LARGE,
    DeviceHarness,
    device_class,
    request,
    resource_slice,
)

GPU = "devices of gpu"
NIC = "nic.example.com"


def template(name: str, count: int, memory: str, driver: str = DRIVER) -> DeviceTemplate:
    return DeviceTemplate(
        driver=driver,
        pool=f"pool-{name}",
        name="gpu-0",
        count=count,
        attributes={"type": {"string": "gpu"}},
        capacity={"memory": {"value": memory}},
    )


def with_devices(name: str, *templates: DeviceTemplate) -> InstanceType:
    return InstanceType(name=name, labels={}, capacity={}, overhead={}, offerings=(), device_templates=templates)


SMALL_TYPE = with_devices("small", template("small", 1, "16Gi"))
LARGE_TYPE = with_devices("large", template("large", 4, "24Gi"))


class TemplateHarness(DeviceHarness):
    def __init__(self, *types: InstanceType) -> None:
        super().__init__()
        self.cache.set_catalogue(Catalogue(by_node_class={"default": types or (SMALL_TYPE, LARGE_TYPE)}))

    @property
    def types(self) -> Any:
        return self.cache.devices_of_types.get("default", {})

    def fits_type(self, name: str, kind: str) -> bool:
        """Whether the pod fits a new node of this type."""
        one = self.cache.pods[f"uid-{name}"]
        offered = self.types[kind].amounts if kind in self.types else {}
        assert one.devices or one.unplannable
        return not one.unplannable and all(offered.get(key, 0) >= amount for key, amount in one.devices)

    def add_nodeclaim(
        self,
        *types: str,
        phase: str = "",
        of: str = "",
        drivers: str = DRIVER,
        operator: str = "In",
        uid: str = "uid-c1",
    ) -> NodeClaimFact:
        """`of`: the instance type of a launched NodeClaim."""
        raw = claim("c1", phase=phase, annotations={"karpenter.sh/requested-dra-drivers": drivers})
        raw["metadata"]["uid"] = uid
        raw["spec"]["requirements"] = [
            {"key": "node.kubernetes.io/instance-type", "operator": operator, "values": list(types)}
        ]
        if of:
            raw["metadata"]["labels"]["node.kubernetes.io/instance-type"] = of
        self.apply_objects("nodeclaims", raw)
        return self.nodeclaim

    @property
    def nodeclaim(self) -> NodeClaimFact:
        return self.cache.nodeclaims["c1"]


@pytest.fixture
def harness() -> TemplateHarness:
    return TemplateHarness()


def test_types_offer_only_devices_that_pods_request(harness: TemplateHarness) -> None:
    assert harness.types == {}
    harness.add_pod("p")
    assert harness.types == {
        "small": TypeDevices(amounts={GPU: 1}, drivers={GPU: (DRIVER,)}),
        "large": TypeDevices(amounts={GPU: 4}, drivers={GPU: (DRIVER,)}),
    }
    harness.delete_objects("pods", pod("p"))
    assert harness.types == {}


def test_selectors_choose_types(harness: TemplateHarness) -> None:
    harness.add_template("large", request(2, LARGE))
    harness.add_pod("p", "large")
    assert not harness.fits_type("p", "small") and harness.fits_type("p", "large")


def test_requests_that_share_devices_of_a_type_are_counted_together(harness: TemplateHarness) -> None:
    harness.add_template("both", request(3), {**request(2, LARGE), "name": "large"})
    harness.add_template("four", request(2), {**request(2, LARGE), "name": "large"})
    harness.add_pod("both", "both")
    harness.add_pod("four", "four")
    assert not harness.fits_type("both", "large") and harness.fits_type("four", "large")


def test_attribute_without_known_value_is_refused_unless_a_node_has_it(harness: TemplateHarness) -> None:
    version = f"device.attributes['{DRIVER}'].driverVersion.compareTo(semver('1.0.0')) >= 0"
    harness.add_template("new", request(1, version))
    harness.add_pod("p", "new")
    assert harness.problem_of("p").startswith("spec.resourceClaims: ") and "pool-" in harness.problem_of("p")
    harness.add_node("gpus", "16Gi")
    assert harness.fits("p", "gpus") and not harness.fits_type("p", "small")


def test_type_with_a_device_for_which_a_selector_fails_is_not_used() -> None:
    """kube-scheduler stops at such a device, also if others would match."""
    nic = DeviceTemplate(driver=NIC, pool="nics", name="nic-0", count=1, attributes={})
    harness = TemplateHarness(SMALL_TYPE, with_devices("mixed", template("mixed", 8, "16Gi"), nic))
    harness.apply_objects("deviceclasses", device_class("gpu", f"device.attributes['{DRIVER}'].type == 'gpu'"))
    harness.add_pod("p")
    assert harness.fits_type("p", "small") and not harness.fits_type("p", "mixed")


def test_unlaunched_nodeclaim_has_the_devices_of_all_its_types(harness: TemplateHarness) -> None:
    harness.add_pod("p")
    assert harness.add_nodeclaim("small", "large").devices == ((GPU, 1),)
    assert harness.add_nodeclaim("large").devices == ((GPU, 4),)
    assert harness.add_nodeclaim("large", "unknown").devices == ()
    assert harness.add_nodeclaim("large", operator="NotIn").devices == ()
    assert harness.add_nodeclaim("small", "large", phase="Launched", of="large").devices == ((GPU, 4),)
    assert harness.add_nodeclaim("large", drivers=NIC).devices == ()
    assert harness.add_nodeclaim("large", drivers="").devices == ()


def test_nodeclaim_waits_for_complete_slices_of_its_node(harness: TemplateHarness) -> None:
    harness.add_pod("p")
    harness.apply_objects("nodes", node("n1", of="c1"))
    harness.add_nodeclaim("small", phase="Registered", of="small", drivers=f"{DRIVER}, {NIC}")
    before = harness.nodeclaim
    assert before.missing_drivers == (DRIVER, NIC) and before.devices
    harness.apply_objects("resourceslices", resource_slice("n1", "16Gi", slices=2))
    assert harness.nodeclaim == before
    harness.apply_objects("resourceslices", resource_slice("n1", slices=2, name="second"))
    after = harness.nodeclaim
    assert after.missing_drivers == (NIC,) and not after.devices
    assert harness.fits("p", "n1")


def test_recreated_nodeclaim_waits_for_slices(harness: TemplateHarness) -> None:
    harness.apply_objects("nodes", node("n1", of="c1"))
    for uid in ("uid-c1", "uid-new"):
        before = harness.add_nodeclaim("small", phase="Registered", of="small", uid=uid)
        assert before.missing_drivers == (DRIVER,)
    harness.apply_objects("resourceslices", resource_slice("n1", "16Gi"))
    assert not harness.nodeclaim.missing_drivers


def test_nothing_is_awaited_while_claims_are_ignored() -> None:
    harness = CacheHarness()
    raw = claim("c1", phase="Registered", annotations={"karpenter.sh/requested-dra-drivers": DRIVER})
    harness.apply_objects("nodeclaims", raw)
    harness.cache.set_catalogue(Catalogue(by_node_class={"default": (SMALL_TYPE,)}))
    found = harness.cache.nodeclaims["c1"]
    assert not (found.missing_drivers or found.devices or harness.cache.devices_of_types)


def test_initialization_ignores_resources_of_device_classes_while_claims_are_ignored() -> None:
    """They are never allocatable, whatever plans do with claims."""
    harness, raw = CacheHarness(), claim("c1", phase="Registered")
    raw["spec"]["resources"] = {"requests": {"example.com/gpu": "1"}}
    harness.apply_objects("deviceclasses", device_class("gpu", IS_GPU, extendedResourceName="example.com/gpu"))
    harness.apply_objects("nodeclaims", raw)
    assert harness.cache.nodeclaims["c1"].dra_resources == ("example.com/gpu",)


def test_initialized_nodeclaim_waits_for_no_driver(harness: TemplateHarness) -> None:
    harness.add_pod("p")
    harness.apply_objects("nodes", node("n1", of="c1"))
    found = harness.add_nodeclaim("small", phase="Initialized", of="small")
    assert not found.missing_drivers and not found.devices


def test_new_demand_changes_devices_of_known_nodeclaims(harness: TemplateHarness) -> None:
    assert harness.add_nodeclaim("large").devices == ()
    harness.add_pod("p")
    assert harness.nodeclaim.devices == ((GPU, 4),)


@pytest.mark.parametrize(
    ("resource", "device_classes"),
    [
        ("example.com/gpu", [device_class("gpu", IS_GPU, extendedResourceName="example.com/gpu")]),
        ("deviceclass.resource.kubernetes.io/gpu", []),
    ],
)
def test_initialization_does_not_wait_for_resources_of_device_classes(
    harness: TemplateHarness, resource: str, device_classes: list[Json]
) -> None:
    raw = claim("c1", phase="Registered")
    raw["spec"]["resources"] = {"requests": {"cpu": "1", resource: "1", "example.com/plugin": "1"}}
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("deviceclasses", *device_classes)
    found = harness.nodeclaim
    waiting = decide_waiting_for(
        ready=True,
        taints=(),
        startup_taints=(),
        allocatable={"cpu": 2000},
        requests=found.requests,
        dra_resources=found.dra_resources,
    )
    assert waiting == ("ResourceNotRegistered: example.com/plugin",)
    harness.delete_objects("deviceclasses", *device_classes)
    assert bool(harness.nodeclaim.dra_resources) == (not device_classes)
