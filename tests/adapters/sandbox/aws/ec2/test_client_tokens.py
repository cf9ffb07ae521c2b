"""Client tokens: what a durable launch rests on. A lost answer may be asked for again without buying twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.support.sandbox.aws.kit import FakeAwsClient, instance_ids, raises_code


def test_the_same_token_gives_the_same_instances(kit: FakeAwsClient) -> None:
    overrides = kit.overrides("m5.large")
    first = kit.create_fleet(overrides, 3, ClientToken="group-1")
    repeated = kit.create_fleet(overrides, 3, ClientToken="group-1")
    assert (repeated["FleetId"], instance_ids(repeated)) == (first["FleetId"], instance_ids(first))
    assert kit.control.list_instances()["launched"] == 3


def test_another_request_under_the_token_is_a_mismatch(kit: FakeAwsClient) -> None:
    kit.create_template()
    overrides = kit.overrides("m5.large")
    kit.create_fleet(overrides, 1, ClientToken="group-1")
    with raises_code("IdempotentParameterMismatch"):
        kit.create_fleet(overrides, 2, ClientToken="group-1")
    assert kit.control.list_instances()["launched"] == 1


def test_another_token_is_another_fleet(kit: FakeAwsClient) -> None:
    overrides = kit.overrides("m5.large")
    assert instance_ids(kit.create_fleet(overrides, ClientToken="a")) != instance_ids(
        kit.create_fleet(overrides, ClientToken="b")
    )


def test_an_answer_without_capacity_is_remembered_too(kit: FakeAwsClient) -> None:
    kit.control.set_pool(0)
    assert kit.create_fleet(kit.overrides("m5.large"), ClientToken="t")["Instances"] == []
    kit.control.clear_pools()
    assert kit.create_fleet(kit.overrides("m5.large"), ClientToken="t")["Instances"] == []
    assert len(instance_ids(kit.create_fleet(kit.overrides("m5.large"), ClientToken="t-2"))) == 1


def test_after_a_lost_answer_the_token_finds_what_was_done(kit: FakeAwsClient) -> None:
    kit.create_template()
    overrides = kit.overrides("m5.large")
    kit.control.add_fault("answer-lost", service="ec2", action="CreateFleet", times=1)
    with pytest.raises(ConnectionClosedError):
        kit.create_fleet(overrides, 2, ClientToken="group-1")
    assert kit.control.list_instances()["launched"] == 2
    assert len(instance_ids(kit.create_fleet(overrides, 2, ClientToken="group-1"))) == 2
    assert kit.control.list_instances()["launched"] == 2


def test_the_answer_is_remembered_when_the_template_is_gone(kit: FakeAwsClient) -> None:
    template_id = kit.create_template()
    overrides = kit.overrides("m5.large")
    first = kit.create_fleet(overrides, ClientToken="group-1")
    kit.ec2.delete_launch_template(LaunchTemplateId=template_id)
    assert instance_ids(kit.create_fleet(overrides, ClientToken="group-1")) == instance_ids(first)


def test_without_a_token_a_lost_answer_costs_an_instance(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.add_fault("answer-lost", service="ec2", action="CreateFleet", times=1, http=500)
    with pytest.raises(ClientError):
        kit.create_fleet(kit.overrides("m5.large"))
    kit.create_fleet(kit.overrides("m5.large"))
    assert kit.control.list_instances()["launched"] == 2


def test_calls_at_the_same_time_with_one_token_make_one_fleet(kit: FakeAwsClient) -> None:
    kit.create_template()
    overrides = kit.overrides("m5.large")
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: kit.create_fleet(overrides, 1, ClientToken="one"), range(16)))
    assert len({response["FleetId"] for response in responses}) == 1
    assert kit.control.list_instances()["launched"] == 1


def test_many_fleets_at_the_same_time_share_no_address(kit: FakeAwsClient) -> None:
    kit.create_template()
    overrides = kit.overrides("m5.large")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: kit.create_fleet(overrides, 5), range(16)))
    found = kit.control.list_instances()["instances"]
    assert len({instance["private_ip"] for instance in found}) == 80
