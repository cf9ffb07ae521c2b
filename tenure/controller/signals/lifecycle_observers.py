"""What the watch makes of NodeClaims' lives beside telling their workflows: rules, pauses, how long they take, who is
overdue, and when they leave room for others to go.

`session.py` lets it look after every burst of changes, before workflows are told.
"""

from collections.abc import Sequence
from typing import Any

from tenure.controller.cache.dirty import Dirty
from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.lifecycle_policies import Policies
from tenure.controller.metrics.nodeclaims import LifeGauges, OverdueGauges
from tenure.controller.metrics.nodepools import PoolGauges
from tenure.controller.signals.disruption_trigger import Rooms
from tenure.controller.startup_durations import Startup


class NodeLives:
    def __init__(
        self,
        policies: Policies,
        startup: Startup,
        gauges: Sequence[OverdueGauges | LifeGauges | PoolGauges],
        brake: ClusterBrake,
        rooms: Rooms,
    ) -> None:
        self.policies, self.startup, self.brake, self._gauges, self._rooms = policies, startup, brake, gauges, rooms

    def look(self, dirty: Dirty, known: bool, *, counted: bool) -> None:
        """`known`: all policies, and the NodePools that they select; `counted`: NodeClaims, Nodes and pods are."""
        if self.policies.look(dirty, known):
            self.startup.forget_expected()
        self.brake.look(dirty)
        self.startup.look(dirty)
        for gauge in self._gauges:
            gauge.look(dirty)
        self._rooms.look(dirty, known and counted)

    def of_pool(self, name: str, pause: str) -> dict[str, Any]:
        """What `pool_digest` tells of a NodePool beyond its own status; `pause`: its annotation."""
        policies = self.policies
        return {
            "pauses": (pause, self.brake.text),
            "rules": policies.rules_of(name),
            "unread": policies.unread_of(name),
            "freed": self._rooms.freed(name),
        }

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self.policies.run()
        finally:
            for gauge in self._gauges:
                gauge.close()
