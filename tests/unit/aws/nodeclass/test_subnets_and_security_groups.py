"""Resolved subnets and security groups are cached for their own refresh intervals."""

from typing import cast

from tenure.aws.client.client import AwsClients
from tenure.aws.nodeclass.subnets_and_security_groups import FreeAddresses, Networks
from tests.support.aws.builders import build_nodeclass
from tests.unit.aws.fakes import FakeClients, FakeClock

RESPONSES = {
    "describe_subnets": [{"SubnetId": "subnet-1", "AvailabilityZone": "us-west-2a"}],
    "describe_security_groups": [{"GroupId": "sg-1"}],
}


async def test_subnets_and_security_groups_have_own_refresh_intervals() -> None:
    clock, clients = FakeClock(), FakeClients(RESPONSES)
    networks = Networks(cast(AwsClients, clients), FreeAddresses(), subnet_seconds=60, group_seconds=300, clock=clock)
    for seconds in (0, 59, 61, 299, 301):
        clock.now = float(seconds)
        await networks.find_subnets(build_nodeclass())
        await networks.find_security_groups(build_nodeclass())
    assert clients.call_counts == {"describe_subnets": 3, "describe_security_groups": 2}
