"""The facts about the cluster while eks:DescribeCluster fails."""

from typing import Any, cast

import pytest

from tenure.aws.client.client import AwsClients
from tenure.aws.eks_cluster import Clusters
from tenure.model.errors import Fault, Forbidden, Throttled, TryLater
from tests.support.aws.builders import SETTINGS
from tests.unit.aws.fakes import FakeClock, Named


class FakeEks:
    """Replaces AwsClients."""

    def __init__(self) -> None:
        self.eks, self.calls = Named(), 0
        self.fault: Fault | None = None

    async def call(self, method: str, **request: Any) -> dict[str, Any]:
        self.calls += 1
        if self.fault:
            raise self.fault
        return {"cluster": {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"}}}


@pytest.mark.parametrize("fault", [Throttled("too many requests"), TryLater("503")])
async def test_launches_use_last_facts_while_eks_does_not_respond(fault: Fault) -> None:
    eks, clock = FakeEks(), FakeClock()
    clusters = Clusters(cast(AwsClients, eks), SETTINGS, clock=clock)
    eks.fault = fault
    with pytest.raises(type(fault)):
        await clusters.facts()
    eks.fault = None
    known = await clusters.facts()
    eks.fault, clock.now = fault, 301.0
    assert await clusters.facts() == await clusters.facts() == known and known.cidr
    assert eks.calls == 3, "launches do not wait for a call each"


async def test_denied_call_is_reported() -> None:
    eks, clock = FakeEks(), FakeClock()
    clusters = Clusters(cast(AwsClients, eks), SETTINGS, clock=clock)
    await clusters.facts()
    eks.fault, clock.now = Forbidden("not authorized"), 301.0
    with pytest.raises(Forbidden):
        await clusters.facts()
