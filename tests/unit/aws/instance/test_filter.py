"""Instance types and offerings that a NodeClaim is launched with."""

from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import ResolvedAmi
from tenure.apis.nodeclaim import NodeClaim
from tenure.aws.amifamily.images import ImageMap
from tenure.aws.instance.filter import MOST_TYPES, Selection, select_offerings
from tenure.aws.instancetype.resolver import Region, ResolvedTypes, resolve_types
from tenure.model.requirements import RequirementError
from tests.support.aws.builders import SETTINGS, ZONES, build_nodeclaim, build_nodeclass, region, resolved_status

CPU = "karpenter.k8s.aws/instance-cpu"
ON_DEMAND = (labels.CAPACITY_TYPE, "In", "on-demand")
EITHER = (labels.CAPACITY_TYPE, "In", "on-demand", "spot")


def types(in_region: Region, **spec: Any) -> ResolvedTypes:
    return resolve_types(in_region, build_nodeclass(resolved_status(), **spec), SETTINGS)


def select_for(
    resolved: ResolvedTypes, nodeclaim: NodeClaim, *unavailable_offerings: tuple[str, str, str]
) -> Selection | None:
    return select_offerings(nodeclaim, resolved, ZONES, lambda *offering: offering[:3] in unavailable_offerings)


def names(selection: Selection | None) -> list[str]:
    return [] if selection is None else [one.type.name for one in selection.candidates]


def test_types_fit_requirements_and_requests() -> None:
    resolved = types(region("m5.large", "m5.xlarge", "m6g.large", "c5.large"))
    arch = (labels.ARCH, "In", "amd64")
    assert names(select_for(resolved, build_nodeclaim(ON_DEMAND, arch, requests={"memory": "4Gi"}))) == [
        "m5.large",
        "m5.xlarge",
    ]
    assert names(select_for(resolved, build_nodeclaim(ON_DEMAND, arch, requests={"cpu": "1931m"}))) == ["m5.xlarge"]
    assert names(select_for(resolved, build_nodeclaim(ON_DEMAND, (CPU, "Gt", "2")))) == ["m5.xlarge"]


def test_cheapest_types_are_first_and_limited_in_number() -> None:
    resolved = types(region())
    found = select_for(resolved, build_nodeclaim(ON_DEMAND))
    assert found is not None
    prices = [one.price for one in found.candidates]
    assert len(prices) == MOST_TYPES
    assert prices == sorted(prices)


def test_spot_is_preferred_to_on_demand() -> None:
    resolved = types(region("m5.large"))
    both, only = select_for(resolved, build_nodeclaim(EITHER)), select_for(resolved, build_nodeclaim(ON_DEMAND))
    assert both is not None and both.capacity_type == labels.SPOT
    assert only is not None and only.capacity_type == labels.ON_DEMAND


def test_spot_above_cheapest_on_demand_price_is_left_out() -> None:
    resolved = types(region("m5.large", "m5.4xlarge", spot=0.9, on_demand={"m5.large": 0.1, "m5.4xlarge": 0.8}))
    assert names(select_for(resolved, build_nodeclaim(EITHER))) == ["m5.large"]


def test_zones_follow_requirements_subnets_and_unavailable_offerings() -> None:
    resolved = types(region("m5.large"))
    zones = (labels.ZONE, "In", "us-west-2a", "us-west-2b")
    found = select_for(resolved, build_nodeclaim(ON_DEMAND, zones), ("m5.large", "us-west-2a", "on-demand"))
    assert found is not None
    assert [one.zone for one in found.candidates[0].offerings] == ["us-west-2b"]
    assert select_for(resolved, build_nodeclaim(ON_DEMAND, (labels.ZONE, "In", "us-west-2d"))) is None


def test_zone_ids_limit_offerings() -> None:
    resolved = types(region("m5.large"))
    found = select_for(resolved, build_nodeclaim(ON_DEMAND, (labels.ZONE_ID, "In", "usw2-az3")))
    assert found is not None
    assert [one.zone for one in found.candidates[0].offerings] == ["us-west-2c"]


def test_metal_and_accelerators_need_a_request() -> None:
    resolved = types(region("m5.large", "m5.metal", "g5.xlarge", "inf2.xlarge"))
    assert names(select_for(resolved, build_nodeclaim(ON_DEMAND))) == ["m5.large"]
    assert names(select_for(resolved, build_nodeclaim(ON_DEMAND, requests={labels.NVIDIA_GPU: "1"}))) == ["g5.xlarge"]
    assert names(select_for(resolved, build_nodeclaim(ON_DEMAND, requests={"cpu": "90"}))) == ["m5.metal"]


def test_required_label_excludes_types_without_it() -> None:
    resolved = types(region("m5.large", "g5.xlarge"))
    has_gpu = ("karpenter.k8s.aws/instance-gpu-count", "Exists")
    assert names(select_for(resolved, build_nodeclaim(ON_DEMAND, has_gpu))) == ["g5.xlarge"]
    without = ("karpenter.k8s.aws/instance-gpu-count", "DoesNotExist")
    assert names(select_for(resolved, build_nodeclaim(ON_DEMAND, without))) == ["m5.large"]
    reserved = (labels.CAPACITY_RESERVATION_ID, "In", "cr-1")
    assert select_for(resolved, build_nodeclaim(ON_DEMAND, reserved)) is None


def test_nodepool_labels_do_not_exclude_types() -> None:
    resolved = types(region("m5.large"))
    assert names(
        select_for(resolved, build_nodeclaim(ON_DEMAND, ("team", "In", "a"), (labels.NODEPOOL, "In", "general")))
    ) == ["m5.large"]


def test_min_values_survive_limit_of_types() -> None:
    resolved = types(region())
    base = build_nodeclaim(ON_DEMAND)
    raw = base.to_object()
    family = {"key": labels.INSTANCE_FAMILY, "operator": "Exists", "minValues": 50}
    raw["spec"]["requirements"].append(family)
    found = select_for(resolved, NodeClaim.from_object(raw))
    assert found is not None
    assert len(found.candidates) == MOST_TYPES
    assert len({one.type.labels[labels.INSTANCE_FAMILY] for one in found.candidates}) >= 50


def test_unsatisfiable_min_values_select_nothing_unless_relaxed() -> None:
    resolved = types(region("m5.large", "c5.large"))
    raw = build_nodeclaim(ON_DEMAND).to_object()
    raw["spec"]["requirements"].append({"key": labels.INSTANCE_FAMILY, "operator": "Exists", "minValues": 3})
    assert select_for(resolved, NodeClaim.from_object(raw)) is None
    raw["metadata"]["annotations"] = {labels.NODECLAIM_MIN_VALUES_RELAXED: "true"}
    assert names(select_for(resolved, NodeClaim.from_object(raw))) == ["c5.large", "m5.large"]


def test_dedicated_tenancy_needs_exclusive_requirement() -> None:
    resolved = types(region("m5.large"))
    plain = select_for(resolved, build_nodeclaim(ON_DEMAND))
    dedicated = select_for(resolved, build_nodeclaim(ON_DEMAND, (labels.INSTANCE_TENANCY, "In", "dedicated")))
    assert plain is not None and plain.tenancy == "default"
    assert dedicated is not None and dedicated.tenancy == "dedicated"


def test_invalid_requirements_are_an_error() -> None:
    with pytest.raises(RequirementError):
        select_for(types(region("m5.large")), build_nodeclaim((CPU, "Gt", "many")))


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("m6i.large", "ami-standard-amd64"),
        ("m6g.large", "ami-standard-arm64"),
        ("g5.xlarge", "ami-nvidia-amd64"),
        ("g5g.xlarge", "ami-nvidia-arm64"),
        ("inf2.xlarge", "ami-neuron-amd64"),
    ],
)
def test_each_type_boots_its_own_image_although_nvidia_image_is_newest(name: str, image: str) -> None:
    assert types(region(name)).by_name[name].image_id == image


def test_image_of_type_does_not_depend_on_image_order() -> None:
    status = resolved_status()
    forward = types(region())
    backward = resolve_types(region(), build_nodeclass(status | {"amis": status["amis"][::-1]}), SETTINGS)
    assert {one.name: one.image_id for one in forward.types} == {one.name: one.image_id for one in backward.types}


def test_type_without_image_or_subnet_is_listed_as_unavailable() -> None:
    bare = resolve_types(region("m5.large"), build_nodeclass(resolved_status(amis=[])), SETTINGS)
    assert [one.available for one in bare.types[0].offerings] == [False] * 6
    one_zone = {"subnets": [{"id": "subnet-a", "zone": "us-west-2a", "zoneID": "usw2-az1"}]}
    single = resolve_types(region("m5.large"), build_nodeclass(resolved_status(**one_zone)), SETTINGS)
    assert {one.zone for one in single.types[0].offerings if one.available} == {"us-west-2a"}


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("a1.large", {}),
        ("t2.large", {"connectionTracking": {"udpTimeout": 30}}),
        ("m5.large", {"cpuOptions": {"nestedVirtualization": "enabled"}}),
        ("m5.large", {"networkInterfaces": [{"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "interface"}]}),
        ("m5.large", {"networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 3, "interfaceType": "interface"}]}),
    ],
)
def test_incompatible_types_have_no_available_offering(name: str, spec: dict[str, Any]) -> None:
    assert not any(one.available for one in types(region(name), **spec).types[0].offerings)


def test_image_without_requirements_fits_all_types() -> None:
    assert ImageMap([ResolvedAmi(id="ami-1")]).image_for({labels.ARCH: ("arm64",)}) == "ami-1"
