"""Client tokens, on which durable launches depend: a retry after a lost response launches nothing twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.support.sandbox.aws.kit import FakeAwsClient, instance_ids, raises_code


def test_same_token_returns_the_same_instances(kit: FakeAwsClient) -> None:
    overrides = kit.overrides("m5.large")
    first = kit.create_fleet(overrides, 3, ClientToken="group-1")
    repeated = kit.create_fleet(overrides, 3, ClientToken="group-1")
    assert (repeated["FleetId"], instance_ids(repeated)) == (first["FleetId"], instance_ids(first))
    assert kit.control.list_instances()["launched"] == 3


def test_different_request_with_the_same_token_is_a_mismatch(kit: FakeAwsClient) -> None:
    kit.create_template()
    overrides = kit.overrides("m5.large")
    kit.create_fleet(overrides, 1, ClientToken="group-1")
    with raises_code("IdempotentParameterMismatch"):
        kit.create_fleet(overrides, 2, ClientToken="group-1")
    assert kit.control.list_instances()["launched"] == 1


def test_another_token_creates_another_fleet(kit: FakeAwsClient) -> None:
    overrides = kit.overrides("m5.large")
    assert instance_ids(kit.create_fleet(overrides, ClientToken="a")) != instance_ids(
        kit.create_fleet(overrides, ClientToken="b")
    )


def test_response_without_capacity_is_remembered(kit: FakeAwsClient) -> None:
    kit.control.set_pool(0)
    assert kit.create_fleet(kit.overrides("m5.large"), ClientToken="t")["Instances"] == []
    kit.control.clear_pools()
    assert kit.create_fleet(kit.overrides("m5.large"), ClientToken="t")["Instances"] == []
    assert len(instance_ids(kit.create_fleet(kit.overrides("m5.large"), ClientToken="t-2"))) == 1


def test_retry_after_a_lost_response_returns_its_instances(kit: FakeAwsClient) -> None:
    kit.create_template()
    overrides = kit.overrides("m5.large")
    kit.control.add_fault("answer-lost", service="ec2", action="CreateFleet", times=1)
    with pytest.raises(ConnectionClosedError):
        kit.create_fleet(overrides, 2, ClientToken="group-1")
    assert kit.control.list_instances()["launched"] == 2
    assert len(instance_ids(kit.create_fleet(overrides, 2, ClientToken="group-1"))) == 2
    assert kit.control.list_instances()["launched"] == 2


def test_response_is_remembered_after_the_template_is_deleted(kit: FakeAwsClient) -> None:
    template_id = kit.create_template()
    overrides = kit.overrides("m5.large")
    first = kit.create_fleet(overrides, ClientToken="group-1")
    kit.ec2.delete_launch_template(LaunchTemplateId=template_id)
    assert instance_ids(kit.create_fleet(overrides, ClientToken="group-1")) == instance_ids(first)


def test_retry_without_token_launches_again(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.add_fault("answer-lost", service="ec2", action="CreateFleet", times=1, http=500)
    with pytest.raises(ClientError):
        kit.create_fleet(kit.overrides("m5.large"))
    kit.create_fleet(kit.overrides("m5.large"))
    assert kit.control.list_instances()["launched"] == 2


def test_concurrent_calls_with_one_token_create_one_fleet(kit: FakeAwsClient) -> None:
    kit.create_template()
    overrides = kit.overrides("m5.large")
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: kit.create_fleet(overrides, 1, ClientToken="one"), range(16)))
    assert len({response["FleetId"] for response in responses}) == 1
    assert kit.control.list_instances()["launched"] == 1


def test_concurrent_fleets_have_distinct_addresses(kit: FakeAwsClient) -> None:
    kit.create_template()
    overrides = kit.overrides("m5.large")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: kit.create_fleet(overrides, 5), range(16)))
    found = kit.control.list_instances()["instances"]
    assert len({instance["private_ip"] for instance in found}) == 80
