"""The control API: call counters, the list of instances for tests and simulators, reset, and stored state."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tenure.sandbox.aws.admin.client import ControlError
from tests.support.sandbox.aws.kit import FakeAwsClient, instance_ids, start_fake_aws, stop_process


def test_calls_and_errors_are_counted_by_key(kit: FakeAwsClient) -> None:
    kit.control.clear_counters()
    kit.ec2.describe_instances()
    kit.client("ec2", key="other").describe_instances()
    with pytest.raises(ClientError):
        kit.describe_instance("i-0123456789abcdef0")
    assert kit.control.get_counters()["ec2:DescribeInstances"] == {
        "count": 3,
        "errors": 1,
        "codes": {"InvalidInstanceID.NotFound": 1},
    }
    assert kit.control.get_counters("other")["ec2:DescribeInstances"]["count"] == 1
    assert kit.control.count_calls("ec2:CreateFleet") == 0


def test_launched_and_terminated_instances_are_counted(kit: FakeAwsClient) -> None:
    launched = kit.launch_instances(count=3)
    kit.ec2.terminate_instances(InstanceIds=launched[:2])
    kit.control.advance_clock(3)
    found = kit.control.list_instances()
    assert (found["launched"], found["terminated"], found["alive"]) == (3, 2, 1)
    states = {one["id"]: one["state"] for one in found["instances"]}
    assert [states[one] for one in launched] == ["terminated", "terminated", "running"]


def test_instance_list_has_fields_for_the_node_simulator(kit: FakeAwsClient) -> None:
    efa = [{"DeviceIndex": 0, "InterfaceType": "efa", "Groups": [kit.security_group_id()]}]
    kit.create_template(NetworkInterfaces=efa)
    kit.create_fleet(kit.overrides("m5.large", zones="a"), capacity_type="spot")
    (one,) = kit.control.list_instances()["instances"]
    assert (one["efa_interfaces"], one["platform"], one["lifecycle"]) == (1, None, "spot")
    assert one["image_name"].startswith("amazon-eks-node-al2023-x86_64-standard-1.34-")


def test_changes_since_a_revision_include_removed_instances(kit: FakeAwsClient) -> None:
    first, second = kit.launch_instances(count=2)
    revision = kit.control.list_instances()["revision"]
    kit.ec2.terminate_instances(InstanceIds=[first])
    changed = kit.control.list_instances(after=revision)
    assert [(one["id"], one["state"]) for one in changed["instances"]] == [(first, "shutting-down")]
    kit.control.advance_clock(70)
    later = kit.control.list_instances(after=changed["revision"])
    assert later["gone"] == [first]
    assert [one["id"] for one in later["instances"]] == [second]


def test_error_of_a_route_is_a_response(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    with pytest.raises(ControlError, match="OverflowError"):
        kit.control.backdate(one, 1e300)
    assert kit.control.list_instances()["alive"] == 1


def test_fleets_are_listed_while_others_are_launched(kit: FakeAwsClient) -> None:
    kit.create_template()
    with ThreadPoolExecutor() as threads:
        launches = [threads.submit(kit.launch_instances) for _ in range(20)]
        while not all(one.done() for one in launches):
            kit.control.list_fleets()
    assert len(kit.control.list_fleets()) == len([one.result() for one in launches])


def test_wait_for_changes_returns_with_the_change(kit: FakeAwsClient) -> None:
    revision = kit.control.list_instances()["revision"]
    responses: list[dict[str, Any]] = []
    waiter = threading.Thread(target=lambda: responses.append(kit.control.list_instances(after=revision, wait=20)))
    waiter.start()
    (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large")))
    waiter.join(timeout=20)
    assert [instance["id"] for instance in responses[0]["instances"]] == [one]


def test_fleet_list_has_token_target_and_outcome(kit: FakeAwsClient) -> None:
    kit.control.set_pool(1)
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), 2, ClientToken="group-1")
    (launch,) = kit.control.list_fleets()
    assert launch["client_token"] == "group-1"
    assert launch["target"]["TotalTargetCapacity"] == 2
    assert launch["instances"] == instance_ids(response)
    assert launch["errors"] == ["InsufficientInstanceCapacity"]


def test_instance_is_stopped_started_and_terminated_out_of_band(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.control.advance_clock(2)
    kit.control.stop_instance(one)
    kit.control.advance_clock(3)
    assert kit.describe_instance(one)["State"]["Name"] == "stopped"
    kit.control.start_instance(one)
    kit.control.terminate_instance(one)
    assert kit.describe_instance(one)["State"]["Name"] == "shutting-down"


def test_reset_restores_the_initial_state(kit: FakeAwsClient) -> None:
    kit.launch_instances()
    kit.create_instance_profile()
    kit.control.set_pool(0)
    kit.control.add_fault("5xx", service="sqs")
    kit.control.reset()
    assert kit.control.list_instances()["instances"] == []
    assert kit.ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert kit.iam.list_instance_profiles()["InstanceProfiles"] == []
    assert kit.control.list_faults() == []
    assert len(kit.subnets()) == 3
    assert kit.image_id().startswith("ami-")
    assert len(kit.launch_instances()) == 1


def test_invalid_control_requests_are_rejected_with_a_reason(kit: FakeAwsClient) -> None:
    with pytest.raises(ControlError, match="cannot be set"):
        kit.control.configure(colour="blue")
    with pytest.raises(ControlError, match="must not be negative"):
        kit.control.advance_clock(-1)
    with pytest.raises(ControlError, match="not found"):
        kit.control.stop_instance("i-nothing")


def test_stored_state_is_loaded_at_the_next_start(tmp_path: Path) -> None:
    process, url = start_fake_aws(f"--state-dir={tmp_path}")
    try:
        kit = FakeAwsClient(url)
        (one,) = kit.launch_instances()
        kit.create_instance_profile()
        kit.client("sqs").send_message(QueueUrl=f"{url}/123456789012/demo", MessageBody="kept")
        before, subnets = kit.describe_instance(one), kit.subnets()
    finally:
        stop_process(process)
    process, url = start_fake_aws(f"--state-dir={tmp_path}")
    try:
        restarted = FakeAwsClient(url)
        assert restarted.describe_instance(one)["PrivateIpAddress"] == before["PrivateIpAddress"]
        assert restarted.subnets() == subnets
        assert len(restarted.iam.list_instance_profiles()["InstanceProfiles"]) == 1
        received = restarted.client("sqs").receive_message(QueueUrl=f"{url}/123456789012/demo")
        assert [message["Body"] for message in received["Messages"]] == ["kept"]
        (fresh,) = restarted.launch_instances()
        assert restarted.describe_instance(fresh)["PrivateIpAddress"] != before["PrivateIpAddress"]
        restarted.ec2.terminate_instances(InstanceIds=[one])
        restarted.control.advance_clock(4)
        assert restarted.describe_instance(one)["State"]["Name"] == "terminated"
    finally:
        stop_process(process)


def test_instance_runs_after_pending_seconds_without_requests() -> None:
    process, url = start_fake_aws("--pending-seconds=3", "--clock-scale=1")
    try:
        kit = FakeAwsClient(url)
        (one,) = kit.launch_instances()
        revision = next(i["revision"] for i in kit.control.list_instances()["instances"] if i["id"] == one)
        changed = kit.control.list_instances(after=revision, wait=20)["instances"]
        assert [i["state"] for i in changed] == ["running"]
    finally:
        stop_process(process)


def test_capacity_block_ends_without_requests() -> None:
    process, url = start_fake_aws("--pending-seconds=0", "--clock-scale=1")
    try:
        kit = FakeAwsClient(url)
        block = kit.control.make_reservation(kind="capacity-block", lasts=1827)
        only = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": block},
        }
        market = {"MarketType": "capacity-block"}
        kit.create_template(CapacityReservationSpecification=only, InstanceMarketOptions=market)
        (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a"), capacity_type="capacity-block"))
        kit.control.advance_clock(24)
        snapshot, states = kit.control.list_instances(), [""]
        while states != ["shutting-down"]:
            states = [i["state"] for i in snapshot["instances"] if i["id"] == one] or states
            snapshot = kit.control.list_instances(after=snapshot["revision"], wait=20)
            assert snapshot["instances"] or states == ["shutting-down"], "nothing changed in 20 seconds"
    finally:
        stop_process(process)
