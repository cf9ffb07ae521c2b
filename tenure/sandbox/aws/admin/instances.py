"""The control API for instances (list with changes, actions of AWS or of users) and for images (publish, release,
deprecate, remove).
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

from tenure.sandbox.aws.ec2.call import new_id
from tenure.sandbox.aws.ec2.instances import actions
from tenure.sandbox.aws.ec2.records import Image, Instance
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.services import eventbridge
from tenure.sandbox.aws.state.eks_images import FAMILIES, publish_release
from tenure.sandbox.aws.state.initial_state import set_parameter

Body = dict[str, Any]
LONGEST_WAIT = 60.0
ALIVE = frozenset({"pending", "running", "stopping", "stopped"})


def list_instances(fake_aws: FakeAws, body: Body) -> Any:
    """All instances, or with `after` those changed since that revision. `wait`: maximum seconds to wait for one."""
    environment = fake_aws.default_environment
    after = int(body.get("after", -1))
    _await_change(environment, after, min(LONGEST_WAIT, float(body.get("wait", 0))))
    changed = [i for i in environment.instances.values() if i.revision > after]
    return {
        "revision": environment.revision,
        "launched": environment.launched,
        "terminated": environment.terminated,
        "alive": sum(i.state in ALIVE for i in environment.instances.values()),
        "gone": [one for revision, one in environment.deleted if revision > after] if after >= 0 else [],
        "instances": [_to_json(instance) for instance in changed],
    }


def _await_change(environment: Environment, after: int, seconds: float) -> None:
    environment.run_due_transitions()
    end = time.monotonic() + seconds
    while environment.revision <= after and (left := end - time.monotonic()) > 0:
        environment.moved.wait(left)


def _to_json(instance: Instance) -> Body:
    return {
        "id": instance.id,
        "state": instance.state,
        "instance_type": instance.instance_type,
        "zone": instance.zone,
        "zone_id": instance.zone_id,
        "capacity_type": "spot" if instance.lifecycle == "spot" else "on-demand",
        "lifecycle": instance.lifecycle,
        "image_id": instance.image_id,
        "image_name": instance.image_name,
        "platform": instance.platform,
        "efa_interfaces": sum(one.interface_type.startswith("efa") for one in instance.interfaces),
        "architecture": instance.architecture,
        "subnet_id": instance.subnet_id,
        "private_ip": instance.private_ip,
        "launch_time": instance.launch_time.isoformat(),
        "fleet_id": instance.fleet_id,
        "capacity_reservation_id": instance.capacity_reservation_id,
        "placement_group_id": instance.group_id,
        "partition": instance.partition,
        "volumes": {volume.device: volume.size for volume in instance.volumes},
        "revision": instance.revision,
        "reboots": instance.reboots,
        "tags": instance.tags,
    }


def list_fleets(fake_aws: FakeAws, body: Body) -> Any:
    """All requested fleets with token, target and result."""
    return {
        "fleets": [
            {
                "id": fleet.id,
                "client_token": fleet.client_token,
                "target": fleet.request.get("TargetCapacitySpecification"),
                "overrides": sum(len(c.get("Overrides", ())) for c in fleet.request["LaunchTemplateConfigs"]),
                "instances": [i for group in fleet.response["Instances"] for i in group["InstanceIds"]],
                "errors": [error["ErrorCode"] for error in fleet.response["Errors"]],
                "tags": fleet.tags,
            }
            for fleet in fake_aws.default_environment.fleets.values()
        ]
    }


def _get_instance(environment: Environment, body: Body) -> Instance:
    environment.run_due_transitions()
    return environment.instances[body["id"]]


def stop(fake_aws: FakeAws, body: Body) -> Any:
    """Stop an instance of any kind, as AWS can."""
    fake_aws.default_environment.enter_state(_get_instance(fake_aws.default_environment, body), "stopping")
    return {"ok": True}


def start(fake_aws: FakeAws, body: Body) -> Any:
    fake_aws.default_environment.enter_state(_get_instance(fake_aws.default_environment, body), "pending")
    return {"ok": True}


def terminate(fake_aws: FakeAws, body: Body) -> Any:
    """Terminate it out of band."""
    actions.terminate(fake_aws.default_environment, _get_instance(fake_aws.default_environment, body))
    return {"ok": True}


def set_status(fake_aws: FakeAws, body: Body) -> Any:
    """Set the result of DescribeInstanceStatus: `instance`, `system`, `ebs` (ok, impaired, ...), scheduled `events`."""
    seconds = body.get("impaired_seconds") or 0.0
    since = None if seconds < 0 else fake_aws.default_environment.now() - dt.timedelta(seconds=seconds)
    status = _get_instance(fake_aws.default_environment, body).status
    status.update({key: body[key] for key in ("instance", "system", "ebs", "events") if key in body})
    status["impaired_since"] = since
    return {"ok": True}


def interrupt_spot(fake_aws: FakeAws, body: Body) -> Any:
    """Send the warning to the queue, and terminate the instance after `notice_seconds` (120) unless `keep`."""
    environment = fake_aws.default_environment
    instance = _get_instance(environment, body)
    eventbridge.send_event(
        fake_aws.settings, eventbridge.spot_interruption(fake_aws.settings, environment.now(), instance.id)
    )
    if not body.get("keep"):
        environment.schedule_reclaim(instance, float(body.get("notice_seconds", 120)))
    return {"ok": True}


def recommend_rebalance(fake_aws: FakeAws, body: Body) -> Any:
    instance = _get_instance(fake_aws.default_environment, body)
    eventbridge.send_event(
        fake_aws.settings,
        eventbridge.rebalance_recommendation(fake_aws.settings, fake_aws.default_environment.now(), instance.id),
    )
    return {"ok": True}


def announce_health_event(fake_aws: FakeAws, body: Body) -> Any:
    """Send an AWS Health event about `ids`; `detail` overrides the default one."""
    event = eventbridge.health_event(
        fake_aws.settings, fake_aws.default_environment.now(), list(body["ids"]), **body.get("detail", {})
    )
    eventbridge.send_event(fake_aws.settings, event)
    return {"arn": event["detail"]["eventArn"]}


def send_message(fake_aws: FakeAws, body: Body) -> Any:
    """Send a message unchanged to the cluster's queue."""
    return {"id": eventbridge.send_message(fake_aws.settings, body["message"])}


def count_messages(fake_aws: FakeAws, body: Body) -> Any:
    return {"queued": eventbridge.count_queued_messages(fake_aws.settings)}


def add_image(fake_aws: FakeAws, body: dict[str, Any]) -> Any:
    """Add a public image owned by Amazon (or `owner`), or change the one with this `id`; point `parameters` at it."""
    environment = fake_aws.default_environment
    created = _parse_time(body.get("created")) or environment.now()
    image = Image(
        id=body.get("id") or new_id("ami"),
        name=body["name"],
        owner=body.get("owner", "602401143452"),
        owner_alias=body.get("owner_alias", "amazon"),
        architecture=body.get("architecture", "x86_64"),
        created=created,
        description=body.get("description", ""),
        root_device="/dev/xvda",
        volumes=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3"}}],
        deprecation=_parse_time(body.get("deprecation")),
        public=bool(body.get("public", True)),
        tags=dict(body.get("tags", {})),
    )
    environment.images[image.id] = image
    for name in body.get("parameters", ()):
        set_parameter(fake_aws, name, image.id)
    return {"id": image.id}


def release(fake_aws: FakeAws, body: dict[str, Any]) -> Any:
    """Release a family for one Kubernetes minor version or all; `latest` parameters name the release at once."""
    family, environment = body["family"], fake_aws.default_environment
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}")
    found = publish_release(family, body["version"], environment.now() - dt.timedelta(hours=1), body.get("minor"))
    for one in found:
        environment.images[one.image.id] = one.image
        for name in one.parameters:
            set_parameter(fake_aws, name, one.image.id)
    return {"images": {one.image.name: one.image.id for one in found}}


def deprecate_image(fake_aws: FakeAws, body: dict[str, Any]) -> Any:
    fake_aws.default_environment.images[body["id"]].deprecation = fake_aws.default_environment.now()
    return {"ok": True}


def remove_image(fake_aws: FakeAws, body: dict[str, Any]) -> Any:
    del fake_aws.default_environment.images[body["id"]]
    return {"ok": True}


def _parse_time(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
