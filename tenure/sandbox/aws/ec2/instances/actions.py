"""DescribeInstances, TerminateInstances, StopInstances, StartInstances, RebootInstances."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tenure.sandbox.aws.ec2.call import Call, not_found, require_well_formed
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate
from tenure.sandbox.aws.ec2.instances.filters import INSTANCE_FILTERS, instance_facts
from tenure.sandbox.aws.ec2.instances.view import instance_xml, state_of
from tenure.sandbox.aws.ec2.records import Instance
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.wire.responses import AwsError, bad_combination, dry_run_ok, missing_parameter

UNSTOPPABLE = frozenset({"shutting-down", "terminated"})


def find_visible(environment: Environment, instance_ids: list[str]) -> list[Instance]:
    """The named instances, distinct. Raises InvalidInstanceID.Malformed or .NotFound (also if not visible yet)."""
    require_well_formed(instance_ids, "i")
    unique = list(dict.fromkeys(instance_ids))
    missing = [
        i
        for i in unique
        if i not in environment.instances or environment.instances[i].visible_at > environment.clock.now()
    ]
    if missing:
        raise not_found(missing, "i", "instance")
    return [environment.instances[i] for i in unique]


def all_visible(environment: Environment) -> list[Instance]:
    return [i for i in environment.instances.values() if i.visible_at <= environment.clock.now()]


def describe_instances(call: Call) -> dict[str, Any]:
    request, environment = call.params, call.environment
    ids = request.get("InstanceIds") or []
    if ids and "MaxResults" in request:
        raise bad_combination("The parameter instancesSet cannot be used with the parameter maxResults")
    filters = compile_filters(request.get("Filters"), INSTANCE_FILTERS)
    _check_dry_run(request)
    chosen = find_visible(environment, ids) if ids else all_visible(environment)
    if filters:
        chosen = [i for i in chosen if matches_filters(filters, instance_facts(environment, i))]
    chosen.sort(key=_sort_key)
    page_items, token = paginate(chosen, request, _sort_key, low=5, high=1000)
    return {"Reservations": _group_by_reservation(environment, page_items), "NextToken": token}


def _sort_key(instance: Instance) -> int:
    return instance.sequence


def _group_by_reservation(environment: Environment, instances: list[Instance]) -> list[dict[str, Any]]:
    groups = groupby(instances, key=lambda instance: instance.reservation_id)
    return [
        {
            "ReservationId": reservation_id,
            "OwnerId": environment.account,
            "Groups": [],
            "Instances": [instance_xml(environment, instance) for instance in members],
        }
        for reservation_id, members in groups
    ]


def is_protected(instance: Instance) -> bool:
    return bool(instance.data.get("DisableApiTermination"))


def terminate_instances(call: Call) -> dict[str, Any]:
    """All or none: a missing or protected ID prevents all terminations."""
    instances = _named_instances(call, "TerminateInstances")
    for instance in instances:
        if is_protected(instance):
            raise AwsError(
                "OperationNotPermitted",
                f"The instance '{instance.id}' may not be terminated. Modify its 'disableApiTermination' instance "
                "attribute and try again.",
            )
    return {"TerminatingInstances": [_terminate(call.environment, instance) for instance in instances]}


def _terminate(environment: Environment, instance: Instance) -> dict[str, Any]:
    before = state_of(instance)
    if instance.state not in UNSTOPPABLE:
        terminate(environment, instance)
    return {"InstanceId": instance.id, "CurrentState": state_of(instance), "PreviousState": before}


def terminate(environment: Environment, instance: Instance) -> None:
    """Start the shutdown of an instance, as requested by its owner."""
    _set_reason(environment, instance)
    environment.enter_state(instance, "shutting-down")


def _set_reason(environment: Environment, instance: Instance) -> None:
    instance.reason = f"User initiated ({environment.now():%Y-%m-%d %H:%M:%S} GMT)"
    instance.reason_code = "Client.UserInitiatedShutdown"
    instance.reason_message = "Client.UserInitiatedShutdown: User initiated shutdown"


def stop_instances(call: Call) -> dict[str, Any]:
    instances = _named_instances(call, "StopInstances")
    for instance in instances:
        if instance.state in UNSTOPPABLE or instance.state == "pending":
            raise _incorrect_state(instance, "stopped")
        if instance.lifecycle == "spot":
            raise AwsError(
                "UnsupportedOperation", f"You can't stop the Spot Instance '{instance.id}' because it is one-time."
            )
    return {
        "StoppingInstances": [
            _change_state(call.environment, i, "stopping", ("stopping", "stopped")) for i in instances
        ]
    }


def start_instances(call: Call) -> dict[str, Any]:
    instances = _named_instances(call, "StartInstances")
    for instance in instances:
        if instance.state in UNSTOPPABLE or instance.state == "stopping":
            raise _incorrect_state(instance, "started")
    return {
        "StartingInstances": [_change_state(call.environment, i, "pending", ("pending", "running")) for i in instances]
    }


def reboot_instances(call: Call) -> dict[str, Any]:
    instances = _named_instances(call, "RebootInstances")
    for instance in instances:
        if instance.state not in ("pending", "running"):
            raise _incorrect_state(instance, "rebooted")
    for instance in instances:
        call.environment.reboot(instance)
    return {"Return": True}


def _change_state(environment: Environment, instance: Instance, state: str, already: tuple[str, str]) -> dict[str, Any]:
    before = state_of(instance)
    if instance.state not in already:
        if state == "stopping":
            _set_reason(environment, instance)
        else:
            instance.reason, instance.reason_code = "", None
            instance.launch_time = environment.now().replace(microsecond=0)
        environment.enter_state(instance, state)
    return {"InstanceId": instance.id, "CurrentState": state_of(instance), "PreviousState": before}


def _incorrect_state(instance: Instance, verb: str) -> AwsError:
    return AwsError(
        "IncorrectInstanceState",
        f"The instance '{instance.id}' is not in a state from which it can be {verb}.",
    )


def _named_instances(call: Call, action: str) -> list[Instance]:
    ids = call.params.get("InstanceIds")
    if not ids:
        raise missing_parameter("InstanceId")
    instances = find_visible(call.environment, ids)
    call.permit_each(action, "instance", {i.id: i.tags for i in instances})
    _check_dry_run(call.params)
    return instances


def _check_dry_run(request: dict[str, Any]) -> None:
    if request.get("DryRun"):
        raise dry_run_ok()
