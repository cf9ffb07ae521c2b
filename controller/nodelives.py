"""What the watch makes of NodeClaims' lives beside telling their workflows: rules, pauses, how long they take, who is
overdue.

`session.py` lets it look after every burst of changes, before workflows are told.
"""

from typing import Any

from controller.brake import ClusterBrake
from controller.dirty import Dirty
from controller.overdue_gauges import OverdueGauges
from controller.policies import Policies
from controller.startup import Startup


class NodeLives:
    def __init__(self, policies: Policies, startup: Startup, gauges: OverdueGauges, brake: ClusterBrake) -> None:
        self.policies, self.startup, self.brake, self._gauges = policies, startup, brake, gauges

    def look(self, dirty: Dirty, known: bool) -> None:
        """`known`: all policies, and the NodePools that they select."""
        if self.policies.look(dirty, known):
            self.startup.forget_expected()
        self.brake.look(dirty)
        self.startup.look(dirty)
        self._gauges.look(dirty)

    def of_pool(self, name: str, pause: str) -> dict[str, Any]:
        """What `pool_digest` tells of a NodePool beyond its own status; `pause`: its annotation."""
        return {"pauses": (pause, self.brake.text), "rules": self.policies.rules_of(name)}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self.policies.run()
        finally:
            self._gauges.close()
