"""The right that default topology spread needs, and the kinds that it reads, on a real API server."""

import pytest

from tenure.controller import settings
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.errors import BadInput
from tenure.settings import GATES


async def test_default_spread_without_its_right_stops_the_start(
    kube: KubeAdapters, kube_with_optional_rights: KubeAdapters
) -> None:
    with pytest.raises(BadInput, match=r"^SCHEDULER_CONFIG: services .*deploy/rbac/optional/scheduler-config\.yaml"):
        await settings.check(kube.client, GATES, has_default_spread=True)
    await settings.check(kube.client, GATES)
    await settings.check(kube_with_optional_rights.client, GATES, has_default_spread=True)
