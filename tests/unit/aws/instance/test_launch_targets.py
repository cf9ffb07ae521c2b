"""Launch templates, and the reservations and placement of launch templates and fleet requests."""

import base64
import json
from typing import Any

import pytest

from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.instance.create_fleet import create_fleet_request, parse_fleet_result
from tenure.aws.instance.launch_templates import LaunchTemplate, Placement, ReservationTarget, launch_template
from tenure.aws.settings import AwsSettings
from tenure.model.instance_types import Market
from tenure.model.launch import LaunchGroup
from tests.support.aws.builders import SETTINGS, build_nodeclass, launch_group, resolved_status

ON = AwsSettings(cluster_name="demo", region="us-west-2", feature_gates={"ReservedCapacity": True})
TARGETED = {
    "CapacityReservationPreference": "capacity-reservations-only",
    "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
}


def template(settings: AwsSettings = SETTINGS, user_data: str = "", **more: Any) -> LaunchTemplate:
    return launch_template(
        more.pop("node_class", None) or build_nodeclass(resolved_status()),
        FAMILIES["AL2023"],
        settings,
        image_id="ami-1",
        user_data=user_data,
        tags={"a": "b"},
        **({"capacity_type": "reserved"} | more),
    )


def template_targets(settings: AwsSettings, **more: Any) -> dict[str, Any]:
    data = template(settings, **more).data
    keys = ("CapacityReservationSpecification", "InstanceMarketOptions", "Placement")
    return {key: data[key] for key in keys if key in data}


def reserved_group(market: Market) -> LaunchGroup:
    one = launch_group(capacity_type="reserved")
    overrides = tuple(each.model_copy(update={"reservation_id": "cr-1"}) for each in one.request.overrides[:1])
    request = one.request.model_copy(update={"market": market, "overrides": overrides, "placement_group": "pg-1"})
    return one.model_copy(update={"request": request})


@pytest.mark.parametrize(
    ("market", "options"),
    [
        ("default", None),
        ("capacity-block", {"MarketType": "capacity-block"}),
        ("interruptible", {"MarketType": "interruptible-capacity-reservation"}),
    ],
)
def test_reservation_template_targets_that_reservation_only(market: Market, options: dict[str, str] | None) -> None:
    found = template_targets(ON, reservation=ReservationTarget(reservation_id="cr-1", market=market))
    assert found["CapacityReservationSpecification"] == TARGETED
    assert found.get("InstanceMarketOptions") == options


def test_other_templates_avoid_reservations() -> None:
    assert template_targets(ON)["CapacityReservationSpecification"] == {"CapacityReservationPreference": "none"}


def test_disabled_gate_sets_no_reservation() -> None:
    for target in (ReservationTarget(), ReservationTarget(reservation_id="cr-1", market="capacity-block")):
        assert template_targets(SETTINGS, reservation=target).keys() == {"Placement"}


def test_placement_group_and_partition_are_set_with_tenancy() -> None:
    placement = Placement(tenancy="dedicated", group="pg-1", partition="3")
    assert template_targets(ON, placement=placement)["Placement"] == {
        "Tenancy": "dedicated",
        "GroupId": "pg-1",
        "PartitionNumber": 3,
    }
    assert template_targets(ON)["Placement"] == {"Tenancy": "default"}


@pytest.mark.parametrize(
    ("market", "target", "options"),
    [
        ("default", "on-demand", {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}),
        ("capacity-block", "capacity-block", {}),
        (
            "interruptible",
            "reserved-capacity",
            {"ReservedCapacityOptions": {"ReservationTypes": ["interruptible-capacity-reservation"]}},
        ),
    ],
)
def test_reservation_kind_decides_fleet_target(market: Market, target: str, options: Any) -> None:
    found = create_fleet_request(reserved_group(market))
    assert found["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == target
    assert {key: found[key] for key in found if key.endswith("Options")} == options


def test_fleet_result_names_reservation_and_placement_group() -> None:
    one = reserved_group("default")
    override = one.request.overrides[0]
    chosen = {"Overrides": {"InstanceType": override.instance_type, "SubnetId": override.subnet_id}}
    raw = {
        "Instances": [{"InstanceIds": ["i-1"], "LaunchTemplateAndOverrides": chosen}],
        "Errors": [{"ErrorCode": "ReservationCapacityExceeded", "LaunchTemplateAndOverrides": chosen}],
    }
    result = parse_fleet_result(one, raw)
    (instance,), (error,) = result.instances, result.errors
    assert (instance.reservation_id, instance.market, instance.capacity_type) == ("cr-1", "default", "reserved")
    assert (error.reservation_id, error.insufficient, instance.placement_group) == ("cr-1", True, "pg-1")


def test_launch_template_has_nodeclass_settings_and_name_by_hash() -> None:
    one = build_nodeclass(resolved_status(), detailedMonitoring=True, ipPrefixCount=2)
    made, other = (template(user_data=text, node_class=one, capacity_type="spot") for text in ("hello", "hallo"))
    assert base64.b64decode(made.data["UserData"]) == b"hello"
    assert made.data["NetworkInterfaces"][0]["Groups"] == ["sg-1"]
    assert made.data["NetworkInterfaces"][0]["Ipv4PrefixCount"] == 2
    assert made.data["IamInstanceProfile"] == {"Name": "demo_profile"}
    assert made.data["MetadataOptions"]["HttpTokens"] == "required"
    assert made.data["MetadataOptions"]["HttpProtocolIpv6"] == "disabled"
    assert made.data["Monitoring"] == {"Enabled": True}
    assert made.data["BlockDeviceMappings"][0]["Ebs"] == {"Encrypted": True, "VolumeType": "gp3", "VolumeSize": 20}
    assert {one["ResourceType"] for one in made.data["TagSpecifications"]} == {
        "network-interface",
        "spot-instances-request",
    }
    assert made.name.removeprefix("karpenter.k8s.aws/").isdigit()
    assert made.name != other.name
    assert json.dumps(made.data)


@pytest.mark.parametrize("region", ["us-iso-east-1", "us-isob-east-1"])
def test_launch_templates_omit_ipv6_metadata_in_isolated_regions(region: str) -> None:
    made = template(SETTINGS.model_copy(update={"region": region}))
    assert "HttpProtocolIpv6" not in made.data["MetadataOptions"]


def test_first_efa_interface_is_primary() -> None:
    interfaces = template(efa_interfaces=3).data["NetworkInterfaces"]
    assert [(one["NetworkCardIndex"], one["DeviceIndex"]) for one in interfaces] == [(0, 0), (1, 1), (2, 1)]
    assert {one["InterfaceType"] for one in interfaces} == {"efa"}


@pytest.mark.parametrize(
    ("spec", "is_enabled"),
    [({}, False), ({"enclaveOptions": {"enabled": False}}, False), ({"enclaveOptions": {"enabled": True}}, True)],
)
def test_template_states_whether_enclaves_are_enabled(spec: dict[str, Any], is_enabled: bool) -> None:
    node_class = build_nodeclass(resolved_status(), **spec)
    assert template(node_class=node_class).data["EnclaveOptions"] == {"Enabled": is_enabled}
