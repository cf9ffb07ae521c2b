"""Instances whose ID or termination EC2 rejects."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import pytest

from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import fault_of
from tenure.aws.instance.instances import AwsInstances
from tenure.aws.instancetype.capacity_reservations import Reservations
from tenure.aws.interruption.zonal_shift import ZonalShifts
from tenure.model.errors import Forbidden
from tests.support.aws.builders import SETTINGS
from tests.unit.aws.client.test_errors import client_error
from tests.unit.aws.fakes import Named

LIVE, TERMINATED, MALFORMED = "i-0123456789abcdef0", "i-0123456789abcdef1", "i-banana"


class FakeEc2:
    """Replaces AwsClients, with instances by state. Like EC2, a filter accepts any text, and a list of IDs does not."""

    def __init__(self, states: Mapping[str, str], denied: Collection[str] = (), missing: Collection[str] = ()) -> None:
        self.ec2, self.states, self.denied, self.missing = Named(), states, denied, missing

    async def paginate(self, method: str, key: str, pick: Callable[[Any], Any], **request: Any) -> list[Any]:
        found = [{"InstanceId": name, "State": {"Name": state}} for name, state in self.states.items()]
        return [pick({"Instances": found})]

    async def call(self, method: str, **request: Any) -> dict[str, Any]:
        ids = {*request["InstanceIds"]}
        if MALFORMED in ids:
            raise fault_of(client_error("InvalidInstanceID.Malformed"), method)
        if method == "terminate_instances" and ids & {*self.denied}:
            raise fault_of(client_error("UnauthorizedOperation"), method)
        if method == "describe_instances" or ids & {*self.missing}:
            raise fault_of(client_error("InvalidInstanceID.NotFound"), method)
        change = {"InstanceId": LIVE, "CurrentState": {"Name": "shutting-down"}, "PreviousState": {"Name": "running"}}
        return {"TerminatingInstances": [change]}


def instances_of(clients: FakeEc2) -> AwsInstances:
    faked = cast(AwsClients, clients)
    return AwsInstances(faked, SETTINGS, ZonalShifts(faked, SETTINGS), Reservations(faked, SETTINGS))


async def test_malformed_instance_id_does_not_affect_others_of_its_batch() -> None:
    instances = instances_of(FakeEc2({LIVE: "running"}))
    found, missing = await asyncio.gather(instances.get(LIVE), instances.get(MALFORMED))
    assert found and found.state == "running" and missing is None
    was_running, was_missing = await asyncio.gather(instances.terminate(LIVE), instances.terminate(MALFORMED))
    assert was_running and not was_missing


async def test_instance_that_disappears_during_its_termination_counts_as_gone() -> None:
    instances = instances_of(FakeEc2({LIVE: "running", TERMINATED: "running"}, missing=[TERMINATED]))
    was_running, was_missing = await asyncio.gather(instances.terminate(LIVE), instances.terminate(TERMINATED))
    assert was_running is True and was_missing is False


@pytest.mark.parametrize("states", [{}, {TERMINATED: "terminated"}])
async def test_terminated_instance_counts_as_gone_if_its_termination_is_denied(states: dict[str, str]) -> None:
    """The shipped IAM policy has conditions on tags, which EC2 removes from a terminated instance."""
    instances = instances_of(FakeEc2({LIVE: "running", **states}, denied=[TERMINATED]))
    assert await instances.terminate(TERMINATED) is False
    was_running, was_missing = await asyncio.gather(instances.terminate(LIVE), instances.terminate(TERMINATED))
    assert was_running and not was_missing


async def test_denied_termination_of_running_instance_is_reported() -> None:
    with pytest.raises(Forbidden):
        await instances_of(FakeEc2({LIVE: "running"}, denied=[LIVE])).terminate(LIVE)
