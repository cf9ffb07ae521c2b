"""The AWS stand-in as one object: settings, clock, environments by region, moto, counters, faults, rates, bound keys.

`http.application` serves AWS calls with it, `admin.server` the control API. `state` initializes and stores it.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import tenure.sandbox.aws.services.sqs  # noqa: F401  (registers the type for moto's CloudFormation)
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.http.faults import Faults
from tenure.sandbox.aws.http.moto import Moto
from tenure.sandbox.aws.http.rate_limits import CallRates, Counters
from tenure.sandbox.aws.iam.credentials import AccessKeys
from tenure.sandbox.aws.services.sqs import patch_moto
from tenure.sandbox.aws.settings import SimSettings
from tenure.sandbox.aws.state.clock import SimClock
from tenure.sandbox.aws.state.zonal_shifts import ZonalShifts


class FakeAws:
    def __init__(self, settings: SimSettings) -> None:
        self.settings = settings
        self._first_settings = replace(settings)
        self.clock = SimClock(settings.clock_scale)
        self.counters = Counters()
        self.faults = Faults()
        self.rates = CallRates()
        self.keys = AccessKeys(settings)
        self.moto = Moto()
        patch_moto()
        self.zonal_shifts = ZonalShifts(self.clock)
        self.access_entries: dict[str, dict[str, dict[str, Any]]] = {}
        """By cluster and principal."""
        self._environments: dict[str, Environment] = {}
        self._lock = threading.Lock()

    def environment(self, region: str) -> Environment:
        with self._lock:
            if region not in self._environments:
                self._environments[region] = Environment(self.settings, self.clock, region)
            return self._environments[region]

    @property
    def default_environment(self) -> Environment:
        """The region that has the initial state and that the control API uses."""
        return self.environment(self.settings.region)

    def restore_settings(self) -> None:
        """Restore the settings of the start in place, because environments and handlers share the object."""
        vars(self.settings).update(vars(self._first_settings))

    def environments(self) -> dict[str, Environment]:
        return self._environments
