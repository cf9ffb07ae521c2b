"""Promise 4 over a whole day, on Temporal's time-skipping server with fake ports."""

from datetime import timedelta
from typing import Any

import pytest

from activities.capacity_reservations import ReservationCollector
from tenure.apis import labels
from tenure.aws.instance.instances import instance_facts
from tenure.model.nodeclaim.state import Phase
from tenure.model.provider_results import InstanceFacts
from tests.support.controller.builders import pool
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import query_state
from tests.support.workflows.nodeclaim_workflows import BUSY, ready_nodeclaim
from tests.unit.activities.builders import run_collection
from tests.unit.controller.test_drift import DriftHarness, resolved_nodeclass

HOURS = 24
STALE_STATUS = {
    "capacityReservations": [{"id": "cr-another"}],
    "conditions": [{"type": labels.CAPACITY_RESERVATIONS_READY, "status": "True"}],
}
"""The class's status as a worker with the gate on wrote it."""


def in_open_reservation(instance_id: str, preference: str) -> InstanceFacts:
    """The facts that the worker reads of such an instance with the gate off."""
    raw: dict[str, Any] = {
        "InstanceId": instance_id,
        "State": {"Name": "running"},
        "InstanceType": "m6i.large",
        "Placement": {"AvailabilityZone": "us-west-2a"},
        "ImageId": "ami-new",
        "SubnetId": "subnet-a",
        "SecurityGroups": [{"GroupId": "sg-1"}, {"GroupId": "sg-2"}],
        "CapacityReservationId": "cr-open",
        "CapacityReservationSpecification": {"CapacityReservationPreference": preference},
    }
    return instance_facts(raw, reserved=False)


def drifts_with_reservation(preference: str) -> DriftHarness:
    """The drift pass of the watch for such a node. Its class still has reservations in its status."""
    drifts = DriftHarness()
    drifts.apply_objects("nodepools", pool())
    drifts.apply_objects("ec2nodeclasses", resolved_nodeclass(**STALE_STATUS))
    drifts.launch(labels={labels.NODEPOOL: "general", labels.CAPACITY_TYPE: labels.ON_DEMAND})
    drifts.instances.running["i-c1"] = in_open_reservation("i-c1", preference)
    return drifts


@pytest.mark.row("003-a")
@pytest.mark.parametrize("preference", ["open", "capacity-reservations-only"])
async def test_node_in_open_reservation_does_not_change_in_a_day(preference: str) -> None:
    drifts = drifts_with_reservation(preference)
    async with time_skipping() as skipping, WorkerHarness.on(skipping).running_worker() as fake:
        fake.reservations.enabled = False
        handle = await ready_nodeclaim(
            fake, labels={labels.NODEPOOL: "default", labels.CAPACITY_TYPE: labels.ON_DEMAND}
        )
        claim = fake.claims.found["a"]
        (instance,) = list(fake.instances.running)
        fake.instances.running[instance] = in_open_reservation(instance, preference)
        before = dict(claim["metadata"]["labels"]), fake.nodes.found["node-a"]
        for hour in range(HOURS):
            for minute in range(0, 60, 5):
                assert await drifts.run_pass((hour * 60 + minute) * 60) == ""
            await fake.signal_observed(handle, **BUSY, drift=drifts.reason())
            result = await run_collection(ReservationCollector(fake.ports()).sync_capacity_types)
            assert (result.checked, result.collected, result.fault) == (0, 0, "")
            await skipping.sleep(timedelta(hours=1))
        state = await query_state(handle)
        assert (state.phase, state.drift) == (Phase.READY, "")
        assert (claim["metadata"]["labels"], fake.nodes.found["node-a"]) == before
        assert not set(labels.RESERVATION_LABELS) & before[0].keys()
        assert before[0][labels.CAPACITY_TYPE] == labels.ON_DEMAND
        assert "deletionTimestamp" not in claim["metadata"] and fake.instances.terminated == []
    assert drifts.instances.lists == HOURS * 12
