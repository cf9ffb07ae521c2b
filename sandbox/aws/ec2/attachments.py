"""DescribeVolumes, DescribeNetworkInterfaces, DescribeSpotInstanceRequests: what came with instances and goes with
them.
"""

from __future__ import annotations

from typing import Any

from sandbox.aws.ec2.call import Call
from sandbox.aws.ec2.filters import accepts, compile_filters, tag_facts
from sandbox.aws.ec2.ids import not_found
from sandbox.aws.ec2.instance_view import interface_view
from sandbox.aws.ec2.paging import page
from sandbox.aws.ec2.records import Instance, Volume
from sandbox.aws.ec2.tagging import read_specifications, tag_list
from sandbox.aws.ec2.values import values_at
from sandbox.aws.ec2.world import World
from sandbox.aws.wire.errors import AwsError, dry_run_ok

VOLUME_PATHS = {
    "attachment.device": "Attachments.Device",
    "attachment.instance-id": "Attachments.InstanceId",
    "attachment.status": "Attachments.State",
    "availability-zone": "AvailabilityZone",
    "encrypted": "Encrypted",
    "size": "Size",
    "snapshot-id": "SnapshotId",
    "status": "State",
    "volume-id": "VolumeId",
    "volume-type": "VolumeType",
}
INTERFACE_PATHS = {
    "addresses.private-ip-address": "PrivateIpAddresses.PrivateIpAddress",
    "attachment.attachment-id": "Attachment.AttachmentId",
    "attachment.instance-id": "Attachment.InstanceId",
    "attachment.status": "Attachment.Status",
    "availability-zone": "AvailabilityZone",
    "description": "Description",
    "group-id": "Groups.GroupId",
    "mac-address": "MacAddress",
    "network-interface-id": "NetworkInterfaceId",
    "owner-id": "OwnerId",
    "private-ip-address": "PrivateIpAddress",
    "status": "Status",
    "subnet-id": "SubnetId",
    "vpc-id": "VpcId",
}
SPOT_PATHS = {
    "spot-instance-request-id": "SpotInstanceRequestId",
    "instance-id": "InstanceId",
    "state": "State",
    "status-code": "Status.Code",
    "launched-availability-zone": "LaunchedAvailabilityZone",
    "type": "Type",
}
TAGS = frozenset({"tag-key", "tag-value"})
Views = list[dict[str, Any]]


def describe_volumes(call: Call) -> dict[str, Any]:
    views = [_volume(i, v) for i in _present(call.world) for v in i.volumes]
    views = _named(views, call.params.get("VolumeIds"), "VolumeId", "vol", "volume")
    shown, token = _filtered(call, views, VOLUME_PATHS, "VolumeId")
    return {"Volumes": shown, "NextToken": token}


def describe_network_interfaces(call: Call) -> dict[str, Any]:
    views = [_interface(call.world, i, n) for i in _present(call.world) for n in range(len(i.interfaces))]
    wanted = call.params.get("NetworkInterfaceIds")
    views = _named(views, wanted, "NetworkInterfaceId", "eni", "networkInterface")
    shown, token = _filtered(call, views, INTERFACE_PATHS, "NetworkInterfaceId")
    return {"NetworkInterfaces": shown, "NextToken": token}


def describe_spot_instance_requests(call: Call) -> dict[str, Any]:
    views = [_request(i) for i in call.world.instances.values() if i.spot_request_id]
    wanted = call.params.get("SpotInstanceRequestIds")
    missing = set(wanted or ()) - {view["SpotInstanceRequestId"] for view in views}
    if missing:
        raise AwsError(
            "InvalidSpotInstanceRequestID.NotFound", f"The spot instance request ID '{min(missing)}' does not exist"
        )
    views = [view for view in views if not wanted or view["SpotInstanceRequestId"] in wanted]
    shown, token = _filtered(call, views, SPOT_PATHS, "SpotInstanceRequestId")
    return {"SpotInstanceRequests": shown, "NextToken": token}


def _present(world: World) -> list[Instance]:
    return [instance for instance in world.instances.values() if instance.state != "terminated"]


def _named(views: Views, wanted: list[str] | None, key: str, prefix: str, noun: str) -> Views:
    if not wanted:
        return views
    missing = sorted(set(wanted) - {view[key] for view in views})
    if missing:
        raise not_found(missing, prefix, noun)
    return [view for view in views if view[key] in wanted]


def _filtered(call: Call, views: Views, paths: dict[str, str], key: str) -> tuple[Views, str | None]:
    filters = compile_filters(call.params.get("Filters"), frozenset(paths) | TAGS)
    if call.params.get("DryRun"):
        raise dry_run_ok()
    chosen = [view for view in views if accepts(filters, _facts(view, paths))]
    chosen.sort(key=lambda view: str(view[key]))
    return page(chosen, call.params, lambda view: str(view[key]), low=5, high=1000)


def _facts(view: dict[str, Any], paths: dict[str, str]) -> dict[str, list[str]]:
    tags = view.get("Tags") or view.get("TagSet") or []
    return {name: values_at(view, path) for name, path in paths.items()} | tag_facts(
        {tag["Key"]: tag["Value"] for tag in tags}
    )


def _volume(instance: Instance, volume: Volume) -> dict[str, Any]:
    return {
        "VolumeId": volume.id,
        "Size": volume.size,
        "VolumeType": volume.volume_type,
        "Iops": volume.iops,
        "Throughput": volume.throughput,
        "Encrypted": volume.encrypted,
        "KmsKeyId": volume.kms_key_id,
        "SnapshotId": volume.snapshot_id or "",
        "AvailabilityZone": instance.zone,
        "State": "in-use",
        "CreateTime": instance.launch_time,
        "MultiAttachEnabled": False,
        "Attachments": [
            {
                "InstanceId": instance.id,
                "VolumeId": volume.id,
                "Device": volume.device,
                "State": "attached",
                "AttachTime": instance.launch_time,
                "DeleteOnTermination": volume.delete_on_termination,
            }
        ],
        "Tags": tag_list(volume.tags),
    }


def _interface(world: World, instance: Instance, number: int) -> dict[str, Any]:
    interface = instance.interfaces[number]
    view = interface_view(world, instance, interface)
    view["Attachment"] |= {"InstanceId": instance.id, "InstanceOwnerId": world.account}
    return {**view, "AvailabilityZone": instance.zone, "TagSet": tag_list(interface.tags), "RequesterManaged": False}


def _request(instance: Instance) -> dict[str, Any]:
    alive = instance.state not in ("shutting-down", "terminated")
    specifications = read_specifications(instance.data.get("TagSpecifications"))
    return {
        "SpotInstanceRequestId": instance.spot_request_id,
        "InstanceId": instance.id,
        "State": "active" if alive else "closed",
        "Status": {
            "Code": "fulfilled" if alive else "instance-terminated-by-user",
            "Message": "Your spot request is fulfilled." if alive else "The instance was terminated.",
            "UpdateTime": instance.launch_time,
        },
        "Type": "one-time",
        "CreateTime": instance.launch_time,
        "LaunchedAvailabilityZone": instance.zone,
        "ProductDescription": "Linux/UNIX",
        "InstanceInterruptionBehavior": "terminate",
        "Tags": tag_list(specifications.get("spot-instances-request", {})),
    }
