"""All AWS checks of `tenure doctor`, put together."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aws.client import AwsClients
from aws.cluster import Clusters
from aws.doctor.account import Caller, check_caller, check_cluster, check_zones
from aws.doctor.events import check_events
from aws.doctor.permissions import check_permissions
from aws.doctor.quotas import check_quotas
from aws.doctor.selectors import Selectors
from aws.doctor.trial import Trials
from aws.images import Images
from aws.network import FreeAddresses, Networks
from aws.settings import AwsSettings
from aws.zonal_shift import ZonalShifts
from model.findings import Finding
from model.interruptions import EventKind
from model.kinds import EC2NodeClass, NodePool

Policies = Callable[[Caller], Sequence[Mapping[str, Any]]]
"""The shipped statements, rendered for the caller's account."""


class AwsDoctor:
    """Reads only. Close it when done."""

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        self._clients = AwsClients(settings)
        self._clusters = Clusters(self._clients, settings)

    async def check(
        self,
        *,
        policies: Policies,
        role: str,
        queue: str,
        node_classes: Sequence[EC2NodeClass],
        pools: Sequence[NodePool],
        ignored: frozenset[EventKind] = frozenset(),
    ) -> list[Finding]:
        """In the order in which a person would mend things; nothing else is asked where the credentials fail.
        `ignored`: kinds of events that every NodePool's LifecyclePolicies ignore."""
        caller, found = await check_caller(self._clients)
        if not caller.arn:
            return found
        selectors = Selectors(
            self._clients, Networks(self._clients, FreeAddresses()), Images(self._clients, self._clusters)
        )
        trials = Trials(self._clients, self._settings)
        parts = await asyncio.gather(
            check_cluster(self._clusters, self._settings.cluster_name),
            check_zones(ZonalShifts(self._clients, self._settings)),
            check_permissions(self._clients, caller, policies(caller), role=role),
            *(selectors.check(one) for one in node_classes),
            *(trials.launch(one) for one in node_classes),
            trials.clean_up(),
            check_events(self._clients, queue, ignored=ignored),
            check_quotas(self._clients, pools),
        )
        return [*found, *(one for part in parts for one in part)]

    def close(self) -> None:
        self._clients.close()
