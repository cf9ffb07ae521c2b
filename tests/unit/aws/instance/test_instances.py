"""Batches of instance IDs of which EC2 rejects one."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import fault_of
from tenure.aws.instance.instances import AwsInstances
from tenure.aws.instancetype.capacity_reservations import Reservations
from tenure.aws.interruption.zonal_shift import ZonalShifts
from tests.support.aws.builders import SETTINGS
from tests.unit.aws.client.test_errors import client_error
from tests.unit.aws.fakes import Named

LIVE, MALFORMED = "i-0123456789abcdef0", "i-banana"


class FakeEc2:
    """Replaces AwsClients, with one instance. Like EC2, a filter accepts any text, and a list of IDs does not."""

    def __init__(self) -> None:
        self.ec2 = Named()

    async def paginate(self, method: str, key: str, pick: Callable[[Any], Any], **request: Any) -> list[Any]:
        return [pick({"Instances": [{"InstanceId": LIVE, "State": {"Name": "running"}}]})]

    async def call(self, method: str, **request: Any) -> dict[str, Any]:
        if MALFORMED in request["InstanceIds"]:
            raise fault_of(client_error("InvalidInstanceID.Malformed"), method)
        change = {"InstanceId": LIVE, "CurrentState": {"Name": "shutting-down"}, "PreviousState": {"Name": "running"}}
        return {"TerminatingInstances": [change]}


async def test_malformed_instance_id_does_not_affect_others_of_its_batch() -> None:
    clients = cast(AwsClients, FakeEc2())
    instances = AwsInstances(clients, SETTINGS, ZonalShifts(clients, SETTINGS), Reservations(clients, SETTINGS))
    found, missing = await asyncio.gather(instances.get(LIVE), instances.get(MALFORMED))
    assert found and found.state == "running" and missing is None
    was_running, was_missing = await asyncio.gather(instances.terminate(LIVE), instances.terminate(MALFORMED))
    assert was_running and not was_missing
