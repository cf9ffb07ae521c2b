"""DescribeSubnets for moto's subnets, with the free addresses that their instances leave."""

from __future__ import annotations

from typing import Any

from tenure.sandbox.aws.ec2.call import Call, not_found, require_well_formed
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate, tag_facts
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.ec2.tags import tag_list
from tenure.sandbox.aws.wire.responses import bad_combination, dry_run_ok

FILTERS = frozenset(
    {
        "availability-zone", "availabilityZone", "availability-zone-id", "available-ip-address-count", "cidr-block",
        "cidr", "default-for-az", "map-public-ip-on-launch", "owner-id", "state", "subnet-arn", "subnet-id",
        "tag-key", "tag-value", "vpc-id",
    }
)  # fmt: skip


def describe_subnets(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    ids = request.get("SubnetIds") or []
    if ids and "MaxResults" in request:
        raise bad_combination("The parameter subnetSet cannot be used with the parameter maxResults")
    filters = compile_filters(request.get("Filters"), FILTERS)
    if request.get("DryRun"):
        raise dry_run_ok()
    require_well_formed(ids, "subnet")
    by_id = {subnet.id: subnet for subnet in environment.network.subnets()}
    missing = [one for one in ids if one not in by_id]
    if missing:
        raise not_found(missing, "subnet", "subnet")
    views = [_subnet_view(environment, by_id[one]) for one in sorted(set(ids) or by_id)]
    chosen = [view for view in views if matches_filters(filters, _filter_facts(view))]
    page_items, token = paginate(chosen, request, lambda view: str(view["SubnetId"]), low=5, high=1000)
    return {"Subnets": page_items, "NextToken": token}


def _subnet_view(environment: Environment, subnet: Any) -> dict[str, Any]:
    return {
        "SubnetId": subnet.id,
        "SubnetArn": environment.arn("subnet", subnet.id),
        "VpcId": subnet.vpc_id,
        "OwnerId": environment.account,
        "State": "available",
        "CidrBlock": subnet.cidr_block,
        "AvailabilityZone": subnet.availability_zone,
        "AvailabilityZoneId": subnet.availability_zone_id,
        "AvailableIpAddressCount": environment.network.address_pool(subnet.id).free_count(),
        "DefaultForAz": str(subnet.default_for_az).lower() == "true",
        "MapPublicIpOnLaunch": str(subnet.map_public_ip_on_launch).lower() == "true",
        "MapCustomerOwnedIpOnLaunch": False,
        "AssignIpv6AddressOnCreation": False,
        "Ipv6CidrBlockAssociationSet": _ipv6_associations(subnet) if environment.settings.ip_family == "ipv6" else [],
        "Ipv6Native": False,
        "EnableDns64": False,
        "PrivateDnsNameOptionsOnLaunch": {
            "HostnameType": "ip-name",
            "EnableResourceNameDnsARecord": False,
            "EnableResourceNameDnsAAAARecord": False,
        },
        "Tags": tag_list(environment.network.tags(subnet.id)),
    }


def _ipv6_associations(subnet: Any) -> list[dict[str, Any]]:
    block = f"2001:db8:{subnet.id[-4:]}::/64"
    state = {"State": "associated"}
    return [
        {"AssociationId": f"subnet-cidr-assoc-{subnet.id[-8:]}", "Ipv6CidrBlock": block, "Ipv6CidrBlockState": state}
    ]


def _filter_facts(view: dict[str, Any]) -> dict[str, list[str]]:
    return {
        "availability-zone": [view["AvailabilityZone"]],
        "availabilityZone": [view["AvailabilityZone"]],
        "availability-zone-id": [view["AvailabilityZoneId"]],
        "available-ip-address-count": [str(view["AvailableIpAddressCount"])],
        "cidr-block": [view["CidrBlock"]],
        "cidr": [view["CidrBlock"]],
        "default-for-az": [str(view["DefaultForAz"]).lower()],
        "map-public-ip-on-launch": [str(view["MapPublicIpOnLaunch"]).lower()],
        "owner-id": [view["OwnerId"]],
        "state": [view["State"]],
        "subnet-arn": [view["SubnetArn"]],
        "subnet-id": [view["SubnetId"]],
        "vpc-id": [view["VpcId"]],
        **tag_facts({tag["Key"]: tag["Value"] for tag in view["Tags"]}),
    }
