"""The whole stand-in as one object: settings, clock, the worlds of the regions, moto, counters, faults, rates,
bound keys.

`app` answers AWS calls with it, `sim` the control API, `seed` fills it, `snapshot` keeps it.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import tenure.sandbox.aws.services.sqs  # noqa: F401  (moto's CloudFormation finds the type there)
from tenure.sandbox.aws.ec2.state import World
from tenure.sandbox.aws.http.faults import Faults
from tenure.sandbox.aws.http.moto import Moto
from tenure.sandbox.aws.http.rate_limits import CallRates, Counters
from tenure.sandbox.aws.iam.credentials import Keyring
from tenure.sandbox.aws.services.sqs import quicken
from tenure.sandbox.aws.settings import SimSettings
from tenure.sandbox.aws.state.clock import SimClock
from tenure.sandbox.aws.state.zonal_shifts import ZonalShifts


class StandIn:
    def __init__(self, settings: SimSettings) -> None:
        self.settings = settings
        self._first_settings = replace(settings)
        self.clock = SimClock(settings.clock_scale)
        self.counters = Counters()
        self.faults = Faults()
        self.rates = CallRates()
        self.keys = Keyring(settings)
        self.moto = Moto()
        quicken()
        self.zonal_shifts = ZonalShifts(self.clock)
        self._worlds: dict[str, World] = {}
        self._lock = threading.Lock()

    def world(self, region: str) -> World:
        with self._lock:
            if region not in self._worlds:
                self._worlds[region] = World(self.settings, self.clock, region)
            return self._worlds[region]

    @property
    def home(self) -> World:
        """The region that is seeded and that the control API speaks of."""
        return self.world(self.settings.region)

    def restore_settings(self) -> None:
        """As they were at the start, in place: worlds and handlers hold this very object."""
        vars(self.settings).update(vars(self._first_settings))

    def worlds(self) -> dict[str, World]:
        return self._worlds
