"""EvictionRequests of a drain: a responder delays its pod, and the Eviction API follows a request that fails."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.nodeclaim.drain import DrainActivities
from tenure.model.disruption.drain import DrainStatus
from tenure.model.errors import Forbidden
from tenure.model.nodeclaim.requests import CancelDrainRequest, DrainRequest
from tenure.model.provider_results import EvictionProgress
from tests.unit.activities.builders import REF, FakeCluster, run_activity
from tests.unit.activities.nodeclaim.test_drain import AT_ONCE, delete_nodeclaim

NOW = datetime.now(UTC)


def progress(*, age: timedelta = timedelta(0), **fields: Any) -> EvictionProgress:
    return EvictionProgress.model_validate({"created": datetime.now(UTC) - age, "observed": True, **fields})


def add_pods(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "moved", has_responders=True)
    cluster.pods.add("node-a", "web")


async def status_of(cluster: FakeCluster) -> DrainStatus:
    """The status of a drain after one pass."""
    result = await run_activity(cluster.draining.drain_node, AT_ONCE)
    assert result.status is not None
    return result.status


async def test_responder_delays_only_its_pod_and_is_named(cluster: FakeCluster) -> None:
    add_pods(cluster)
    expected = NOW + timedelta(minutes=5)
    cluster.eviction_requests.progress = progress(responder="acme.example/mover", message="40 %", expected=expected)
    status = await status_of(cluster)
    assert (cluster.pods.evicted, cluster.eviction_requests.requested) == (["web"], ["moved"])
    (blocker,) = status.eviction_blockers
    assert blocker.summary == "default/moved: responder acme.example/mover handles its EvictionRequest: 40 %"
    assert blocker.hint == f"expected to complete at {expected.isoformat(timespec='seconds')}"
    assert (status.blocker_code, status.blocked_since is not None, status.is_observed) == (
        "EvictionRequested",
        True,
        False,
    )


@pytest.mark.parametrize(
    ("observed", "cause"),
    [
        (False, "no controller has observed its EvictionRequest yet"),
        (True, "its EvictionRequest has no active responder"),
    ],
)
async def test_drain_waits_for_the_controller(cluster: FakeCluster, observed: bool, cause: str) -> None:
    add_pods(cluster)
    cluster.eviction_requests.progress = progress(observed=observed)
    assert (await status_of(cluster)).blocker_summary == f"default/moved: {cause}"
    assert cluster.pods.evicted == ["web"]


@pytest.mark.parametrize(
    "found",
    [
        None,
        progress(failed="NoFurtherResponder"),
        progress(failed="EvictionInvalid", observed=False),
        progress(observed=False, age=timedelta(minutes=1)),
    ],
    ids=["not served", "failed", "invalid", "without a controller"],
)
async def test_eviction_api_is_used_without_a_working_request(
    cluster: FakeCluster, found: EvictionProgress | None
) -> None:
    add_pods(cluster)
    cluster.eviction_requests.progress = found
    assert (await run_activity(cluster.draining.drain_node, DrainRequest(claim=REF))).outcome == "drained"
    assert cluster.pods.evicted == ["moved", "web"]
    assert cluster.eviction_requests.requested == ["moved"]


async def test_eviction_api_is_used_if_the_request_is_rejected(cluster: FakeCluster) -> None:
    add_pods(cluster)
    cluster.eviction_requests.faults["request"] = [Forbidden("evictionrequests")]
    assert (await run_activity(cluster.draining.drain_node, DrainRequest(claim=REF))).outcome == "drained"
    assert cluster.pods.evicted == ["moved", "web"]


async def test_no_request_is_made_while_the_setting_is_off(cluster: FakeCluster) -> None:
    add_pods(cluster)
    cluster.eviction_requests.progress = progress()
    cluster.draining = DrainActivities(cluster.build_ports(cluster.workflows, requests=False))
    assert (await run_activity(cluster.draining.drain_node, DrainRequest(claim=REF))).outcome == "drained"
    assert cluster.eviction_requests.requested == []


async def test_undone_drain_withdraws_its_requests(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.pods.add("node-a", "moved", has_responders=True)
    cluster.pods.add("node-a", "web")
    assert await run_activity(cluster.draining.uncordon_node, CancelDrainRequest(claim=REF, why="a pause"))
    assert cluster.eviction_requests.withdrawn == ["moved"]
