"""DescribeInstanceStatus: the two checks and the scheduled events of an instance, set through the control API."""

from __future__ import annotations

from typing import Any

from tenure.sandbox.aws.ec2.call import Call, values_at
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate
from tenure.sandbox.aws.ec2.instances.actions import all_visible, find_visible
from tenure.sandbox.aws.ec2.instances.view import OPERATOR, state_of
from tenure.sandbox.aws.ec2.records import Instance
from tenure.sandbox.aws.wire.responses import bad_combination, dry_run_ok

PATHS = {
    "availability-zone": "AvailabilityZone",
    "availability-zone-id": "AvailabilityZoneId",
    "event.code": "Events.Code",
    "event.description": "Events.Description",
    "event.instance-event-id": "Events.InstanceEventId",
    "event.not-after": "Events.NotAfter",
    "event.not-before": "Events.NotBefore",
    "event.not-before-deadline": "Events.NotBeforeDeadline",
    "instance-state-code": "InstanceState.Code",
    "instance-state-name": "InstanceState.Name",
    "instance-status.status": "InstanceStatus.Status",
    "instance-status.reachability": "InstanceStatus.Details.Status",
    "system-status.status": "SystemStatus.Status",
    "system-status.reachability": "SystemStatus.Details.Status",
    "attached-ebs-status.status": "AttachedEbsStatus.Status",
}
REACHABILITY = {"ok": "passed", "impaired": "failed", "initializing": "initializing"}


def describe_instance_status(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    ids = request.get("InstanceIds") or []
    if ids and "MaxResults" in request:
        raise bad_combination("The parameter instancesSet cannot be used with the parameter maxResults")
    filters = compile_filters(request.get("Filters"), frozenset(PATHS))
    if request.get("DryRun"):
        raise dry_run_ok()
    chosen = find_visible(environment, ids) if ids else all_visible(environment)
    if not request.get("IncludeAllInstances"):
        chosen = [i for i in chosen if i.state == "running"]
    chosen.sort(key=lambda i: i.sequence)
    if filters:
        chosen = [i for i in chosen if matches_filters(filters, _filter_facts(_status_view(i)))]
    page_items, token = paginate(chosen, request, lambda i: i.sequence, low=5, high=1000)
    return {"InstanceStatuses": [_status_view(i) for i in page_items], "NextToken": token}


def _filter_facts(view: dict[str, Any]) -> dict[str, list[str]]:
    return {name: values_at(view, path) for name, path in PATHS.items()}


def _status_view(instance: Instance) -> dict[str, Any]:
    running = instance.state == "running"
    return {
        "InstanceId": instance.id,
        "AvailabilityZone": instance.zone,
        "AvailabilityZoneId": instance.zone_id,
        "InstanceState": state_of(instance),
        "InstanceStatus": _check(instance.status.get("instance", "ok") if running else "not-applicable", instance),
        "SystemStatus": _check(instance.status.get("system", "ok") if running else "not-applicable", instance),
        "AttachedEbsStatus": _check(instance.status.get("ebs", "ok") if running else "not-applicable", instance),
        "Events": [_event_view(event) for event in instance.status.get("events", ())] or None,
        "Operator": OPERATOR,
    }


def _check(status: str, instance: Instance) -> dict[str, Any]:
    details: dict[str, Any] = {"Name": "reachability", "Status": REACHABILITY.get(status, "insufficient-data")}
    if status == "impaired":
        details["ImpairedSince"] = instance.status.get("impaired_since")
    return {"Status": status, "Details": [details] if status != "not-applicable" else []}


def _event_view(event: dict[str, Any]) -> dict[str, Any]:
    """`event` of the control API: code, description, not_before, not_after, id; times as ISO strings."""
    return {
        "InstanceEventId": event.get("id", "instance-event-0d59937288b749b32"),
        "Code": event["code"],
        "Description": event.get("description", "The instance has a scheduled event"),
        "NotBefore": event.get("not_before"),
        "NotAfter": event.get("not_after"),
        "NotBeforeDeadline": event.get("not_before_deadline"),
    }
