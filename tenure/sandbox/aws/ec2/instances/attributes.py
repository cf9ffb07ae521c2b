"""DescribeInstanceAttribute, ModifyInstanceAttribute: user data, groups, protection, one at a time."""

from __future__ import annotations

from typing import Any

from tenure.sandbox.aws.ec2.call import Call
from tenure.sandbox.aws.ec2.instances.actions import find_visible, is_protected
from tenure.sandbox.aws.ec2.network.zones import groups_of
from tenure.sandbox.aws.ec2.records import Instance
from tenure.sandbox.aws.wire.responses import AwsError, dry_run_ok, missing_parameter

# Members of ModifyInstanceAttribute that set a plain value of the launch data.
VALUES = ("DisableApiTermination", "DisableApiStop", "EbsOptimized", "InstanceInitiatedShutdownBehavior", "UserData")


def describe_instance_attribute(call: Call) -> dict[str, Any]:
    request = call.params
    attribute = request.get("Attribute")
    if not attribute:
        raise missing_parameter("attribute")
    if not request.get("InstanceId"):
        raise missing_parameter("InstanceId")
    if request.get("DryRun"):
        raise dry_run_ok()
    (instance,) = find_visible(call.environment, [request["InstanceId"]])
    return {"InstanceId": instance.id, **_attribute_value(instance, attribute)}


def _attribute_value(instance: Instance, attribute: str) -> dict[str, Any]:
    user_data = instance.data.get("UserData")
    table: dict[str, dict[str, Any]] = {
        "userData": {"UserData": {"Value": user_data} if user_data else {}},
        "instanceType": {"InstanceType": {"Value": instance.instance_type}},
        "disableApiTermination": {"DisableApiTermination": {"Value": is_protected(instance)}},
        "disableApiStop": {"DisableApiStop": {"Value": bool(instance.data.get("DisableApiStop"))}},
        "instanceInitiatedShutdownBehavior": {
            "InstanceInitiatedShutdownBehavior": {
                "Value": instance.data.get("InstanceInitiatedShutdownBehavior", "stop")
            }
        },
        "rootDeviceName": {"RootDeviceName": {"Value": instance.root_device}},
        "groupSet": {"Groups": [{"GroupId": g, "GroupName": n} for g, n in instance.groups]},
        "ebsOptimized": {"EbsOptimized": {"Value": bool(instance.data.get("EbsOptimized"))}},
        "sourceDestCheck": {"SourceDestCheck": {"Value": True}},
        "enaSupport": {"EnaSupport": {"Value": True}},
    }
    if attribute not in table:
        raise AwsError(
            "InvalidParameterValue", f"Value ({attribute}) for parameter attribute is invalid. Unknown attribute."
        )
    return table[attribute]


def modify_instance_attribute(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    if not request.get("InstanceId"):
        raise missing_parameter("InstanceId")
    (instance,) = find_visible(environment, [request["InstanceId"]])
    call.permit_each("ModifyInstanceAttribute", "instance", {instance.id: instance.tags})
    if request.get("DryRun"):
        raise dry_run_ok()
    if request.get("Groups"):
        _change_groups(call, instance, request["Groups"])
    for name in VALUES:
        if name in request:
            instance.data = {**instance.data, name: request[name].get("Value")}
    instance.invalidate_view()
    return {"Return": True}


def _change_groups(call: Call, instance: Instance, ids: list[str]) -> None:
    subnet = call.environment.network.subnet(instance.subnet_id)
    groups = groups_of(call.environment, {"SecurityGroupIds": ids}, subnet)
    instance.groups = groups
    instance.interfaces[0].groups = groups
