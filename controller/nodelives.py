"""What the watch makes of NodeClaims' lives beside telling their workflows: rules, how long they take, who is overdue.

`session.py` lets it look after every burst of changes, before workflows are told.
"""

from controller.dirty import Dirty
from controller.overdue_gauges import OverdueGauges
from controller.policies import Policies
from controller.startup import Startup


class NodeLives:
    def __init__(self, policies: Policies, startup: Startup, gauges: OverdueGauges) -> None:
        self.policies, self.startup, self._gauges = policies, startup, gauges

    def look(self, dirty: Dirty, known: bool) -> None:
        """`known`: all policies, and the NodePools that they select."""
        if self.policies.look(dirty, known):
            self.startup.forget_expected()
        self.startup.look(dirty)
        self._gauges.look(dirty)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self.policies.run()
        finally:
            self._gauges.close()
