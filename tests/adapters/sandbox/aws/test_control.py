"""The control API: counters, the list of instances for balances and simulators, reset, and a kept state."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tenure.sandbox.aws.admin.client import ControlError
from tests.support.sandbox.aws.kit import StandInKit, ids, start, stop


def test_calls_are_counted_with_their_errors_and_by_key(kit: StandInKit) -> None:
    kit.control.clear_counters()
    kit.ec2.describe_instances()
    kit.client("ec2", key="other").describe_instances()
    with pytest.raises(ClientError):
        kit.describe("i-0123456789abcdef0")
    assert kit.control.counters()["ec2:DescribeInstances"] == {
        "count": 3,
        "errors": 1,
        "codes": {"InvalidInstanceID.NotFound": 1},
    }
    assert kit.control.counters("other")["ec2:DescribeInstances"]["count"] == 1
    assert kit.control.count("ec2:CreateFleet") == 0


def test_launched_and_terminated_balance(kit: StandInKit) -> None:
    launched = kit.launch(count=3)
    kit.ec2.terminate_instances(InstanceIds=launched[:2])
    kit.control.advance(3)
    found = kit.control.instances()
    assert (found["launched"], found["terminated"], found["alive"]) == (3, 2, 1)
    states = {one["id"]: one["state"] for one in found["instances"]}
    assert [states[one] for one in launched] == ["terminated", "terminated", "running"]


def test_an_instance_tells_what_its_boot_depends_on(kit: StandInKit) -> None:
    efa = [{"DeviceIndex": 0, "InterfaceType": "efa", "Groups": [kit.group()]}]
    kit.template(NetworkInterfaces=efa)
    kit.fleet(kit.overrides("m5.large", zones="a"), capacity_type="spot")
    (one,) = kit.control.instances()["instances"]
    assert (one["efa_interfaces"], one["platform"], one["lifecycle"]) == (1, None, "spot")
    assert one["image_name"].startswith("amazon-eks-node-al2023-x86_64-standard-1.34-")


def test_changes_since_a_revision_and_who_is_gone(kit: StandInKit) -> None:
    first, second = kit.launch(count=2)
    seen = kit.control.instances()["revision"]
    kit.ec2.terminate_instances(InstanceIds=[first])
    changed = kit.control.instances(after=seen)
    assert [(one["id"], one["state"]) for one in changed["instances"]] == [(first, "shutting-down")]
    kit.control.advance(70)
    later = kit.control.instances(after=changed["revision"])
    assert later["gone"] == [first]
    assert [one["id"] for one in later["instances"]] == [second]


def test_waiting_for_a_change_ends_with_it(kit: StandInKit) -> None:
    kit.template()
    seen = kit.control.instances()["revision"]
    answers: list[dict[str, Any]] = []
    waiter = threading.Thread(target=lambda: answers.append(kit.control.instances(after=seen, wait=20)))
    waiter.start()
    (one,) = ids(kit.fleet(kit.overrides("m5.large")))
    waiter.join(timeout=20)
    assert [instance["id"] for instance in answers[0]["instances"]] == [one]


def test_launches_tell_token_target_and_outcome(kit: StandInKit) -> None:
    kit.template()
    kit.control.set_pool(1)
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), 2, ClientToken="group-1")
    (launch,) = kit.control.launches()
    assert launch["client_token"] == "group-1"
    assert launch["target"]["TotalTargetCapacity"] == 2
    assert launch["instances"] == ids(answer)
    assert launch["errors"] == ["InsufficientInstanceCapacity"]


def test_out_of_band_stops_starts_and_terminations(kit: StandInKit) -> None:
    (one,) = kit.launch()
    kit.control.advance(2)
    kit.control.stop_instance(one)
    kit.control.advance(3)
    assert kit.describe(one)["State"]["Name"] == "stopped"
    kit.control.start_instance(one)
    kit.control.terminate_instance(one)
    assert kit.describe(one)["State"]["Name"] == "shutting-down"


def test_reset_brings_the_seed_back(kit: StandInKit) -> None:
    kit.launch()
    kit.profile()
    kit.control.set_pool(0)
    kit.control.add_fault("5xx", service="sqs")
    kit.control.reset()
    assert kit.control.instances()["instances"] == []
    assert kit.ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert kit.iam.list_instance_profiles()["InstanceProfiles"] == []
    assert kit.control.faults() == []
    assert len(kit.subnets()) == 3
    assert kit.image().startswith("ami-")
    assert len(kit.launch()) == 1


def test_what_makes_no_sense_is_refused_with_a_reason(kit: StandInKit) -> None:
    with pytest.raises(ControlError, match="cannot be set"):
        kit.control.configure(colour="blue")
    with pytest.raises(ControlError, match="must not be negative"):
        kit.control.advance(-1)
    with pytest.raises(ControlError, match="not found"):
        kit.control.stop_instance("i-nothing")


def test_a_kept_state_is_there_at_the_next_start(tmp_path: Path) -> None:
    process, url = start(f"--state-dir={tmp_path}")
    try:
        kit = StandInKit(url)
        (one,) = kit.launch()
        kit.profile()
        kit.client("sqs").send_message(QueueUrl=f"{url}/123456789012/demo", MessageBody="kept")
        before, subnets = kit.describe(one), kit.subnets()
    finally:
        stop(process)
    process, url = start(f"--state-dir={tmp_path}")
    try:
        again = StandInKit(url)
        assert again.describe(one)["PrivateIpAddress"] == before["PrivateIpAddress"]
        assert again.subnets() == subnets
        assert len(again.iam.list_instance_profiles()["InstanceProfiles"]) == 1
        received = again.client("sqs").receive_message(QueueUrl=f"{url}/123456789012/demo")
        assert [message["Body"] for message in received["Messages"]] == ["kept"]
        (fresh,) = again.launch()
        assert again.describe(fresh)["PrivateIpAddress"] != before["PrivateIpAddress"]
        again.ec2.terminate_instances(InstanceIds=[one])
        again.control.advance(4)
        assert again.describe(one)["State"]["Name"] == "terminated"
    finally:
        stop(process)


def test_an_instance_runs_after_its_pending_seconds_without_being_asked() -> None:
    process, url = start("--pending-seconds=3", "--clock-scale=1")
    try:
        kit = StandInKit(url)
        (one,) = kit.launch()
        seen = next(i["revision"] for i in kit.control.instances()["instances"] if i["id"] == one)
        changed = kit.control.instances(after=seen, wait=20)["instances"]
        assert [i["state"] for i in changed] == ["running"]
    finally:
        stop(process)


def test_a_blocks_end_comes_without_being_asked_for() -> None:
    process, url = start("--pending-seconds=0", "--clock-scale=1")
    try:
        kit = StandInKit(url)
        block = kit.control.make_reservation(kind="capacity-block", lasts=1827)
        only = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": block},
        }
        market = {"MarketType": "capacity-block"}
        kit.template(CapacityReservationSpecification=only, InstanceMarketOptions=market)
        (one,) = ids(kit.fleet(kit.overrides("m5.large", zones="a"), capacity_type="capacity-block"))
        kit.control.advance(24)
        seen, states = kit.control.instances(), [""]
        while states != ["shutting-down"]:
            states = [i["state"] for i in seen["instances"] if i["id"] == one] or states
            seen = kit.control.instances(after=seen["revision"], wait=20)
            assert seen["instances"] or states == ["shutting-down"], "nothing changed in 20 seconds"
    finally:
        stop(process)
