"""Promise 4 over a whole day, on Temporal's time-skipping server with the ports faked."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.aws.instance.instances import instance_facts
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult
from tenure.model.nodeclaim.state import Phase
from tenure.model.provider_results import InstanceFacts
from tests.support.controller.builders import pool
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import query_state
from tests.support.workflows.nodeclaim_workflows import BUSY, ready_nodeclaim
from tests.unit.controller.test_drift import DriftHarness, a_class
from workflows import ids
from workflows.garbage_collection import GarbageCollectionWorkflow

HOURS = 24
LEFT = {
    "capacityReservations": [{"id": "cr-another"}],
    "conditions": [{"type": labels.CAPACITY_RESERVATIONS_READY, "status": "True"}],
}
"""What a worker with the gate on had written to the class's status."""


def in_open_reservation(instance_id: str, preference: str) -> InstanceFacts:
    """As EC2 describes it, read with the gate off."""
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
    """The watch's look at such a node, whose class has a list that was left there."""
    drifts = DriftHarness()
    drifts.apply_objects("nodepools", pool())
    drifts.apply_objects("ec2nodeclasses", a_class(**LEFT))
    drifts.launch(labels={labels.NODEPOOL: "general", labels.CAPACITY_TYPE: labels.ON_DEMAND})
    drifts.instances.running["i-c1"] = in_open_reservation("i-c1", preference)
    return drifts


@pytest.mark.row("003-a")
@pytest.mark.parametrize("preference", ["open", "capacity-reservations-only"])
async def test_a_day_in_an_open_reservation_changes_nothing_of_a_node(preference: str) -> None:
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
            # Who waits for a result there has time run on, and this one comes by itself.
            with skipping.auto_time_skipping_disabled():
                done = await _sync_capacity_types(fake)
            assert (done.checked, done.collected, done.fault) == (0, 0, "")
            await skipping.sleep(timedelta(hours=1))
        state = await query_state(handle)
        assert (state.phase, state.drift) == (Phase.READY, "")
        assert (claim["metadata"]["labels"], fake.nodes.found["node-a"]) == before
        assert not set(labels.RESERVATION_LABELS) & before[0].keys()
        assert before[0][labels.CAPACITY_TYPE] == labels.ON_DEMAND
        assert "deletionTimestamp" not in claim["metadata"] and fake.instances.terminated == []
    assert drifts.instances.lists == HOURS * 12


async def _sync_capacity_types(fake: WorkerHarness) -> GarbageCollectionResult:
    return await fake.client.execute_workflow(
        GarbageCollectionWorkflow.run,
        GarbageCollectionRequest(cluster=fake.cluster, task="capacity-types"),
        id=ids.garbage_collection(fake.cluster, "capacity-types"),
        task_queue=ids.task_queue(fake.cluster),
    )
