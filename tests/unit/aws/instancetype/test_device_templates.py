"""Device templates of instance types, against the values that DRA drivers publish."""

import pytest

from tenure.aws.instancetype.capacity import capacity_of
from tenure.aws.instancetype.device_templates import device_templates_of
from tenure.model.instance_types import DeviceTemplate
from tests.support.aws.builders import SETTINGS, machine

ALL = {"DRANVIDIAGPU": True, "DRAEFA": True, "DRANeuron": True}


def templates(name: str, gates: dict[str, bool]) -> dict[str, DeviceTemplate]:
    one = machine(name)
    settings = SETTINGS.model_copy(update={"feature_gates": gates})
    return {found.driver: found for found in device_templates_of(one.info, capacity_of(one), settings)}


@pytest.mark.parametrize(
    ("name", "count", "product", "memory"),
    [
        ("g4dn.xlarge", 1, "Tesla T4", "15Gi"),
        ("g5.xlarge", 1, "NVIDIA A10G", "23028Mi"),
        ("g5.12xlarge", 4, "NVIDIA A10G", "23028Mi"),
        ("p4d.24xlarge", 8, "NVIDIA A100-SXM4-40GB", "40320Mi"),
        ("p5.48xlarge", 8, "NVIDIA H100 80GB HBM3", "81152Mi"),
    ],
)
def test_nvidia_types_have_gpus(name: str, count: int, product: str, memory: str) -> None:
    found = templates(name, ALL)["gpu.nvidia.com"]
    assert (found.count, found.pool) == (count, f"gpus-{name}")
    assert found.attributes["productName"] == {"string": product} and found.capacity == {"memory": {"value": memory}}


@pytest.mark.parametrize(("name", "count"), [("trn1.2xlarge", 1), ("trn1.32xlarge", 16), ("trn2.48xlarge", 16)])
def test_trainium_types_have_neuron_devices(name: str, count: int) -> None:
    found = templates(name, ALL)["neuron.aws.com"]
    assert found.count == count
    assert found.attributes == {"instanceType": {"string": name}, "resourceType": {"string": "neuron_device"}}


@pytest.mark.parametrize(
    ("name", "count"), [("g5.8xlarge", 1), ("p4d.24xlarge", 4), ("p5.48xlarge", 32), ("trn1.32xlarge", 8)]
)
def test_types_have_efa_interfaces(name: str, count: int) -> None:
    found = templates(name, ALL)["dra.net"]
    assert found.count == count and found.attributes["dra.net/rdma"] == {"bool": True}


@pytest.mark.parametrize("name", ["m5.large", "m5n.24xlarge", "inf2.xlarge", "trn2u.48xlarge"])
def test_other_types_have_no_devices(name: str) -> None:
    assert not templates(name, ALL)


def test_shared_gpus_have_no_template() -> None:
    one = machine("p4d.24xlarge")
    settings = SETTINGS.model_copy(update={"feature_gates": ALL})
    found = device_templates_of(one.info, capacity_of(one), settings, shared_gpus=True)
    assert [each.driver for each in found] == ["dra.net"]


def test_each_driver_has_a_gate() -> None:
    assert templates("p4d.24xlarge", {}) == {}
    assert set(templates("p4d.24xlarge", {"DRANVIDIAGPU": True})) == {"gpu.nvidia.com"}
    assert set(templates("p4d.24xlarge", {"DRAEFA": True})) == {"dra.net"}
    assert set(templates("trn1.32xlarge", {"DRANeuron": True})) == {"neuron.aws.com"}
