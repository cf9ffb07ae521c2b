"""What EC2 lately said cannot be had, as this process heard it: asked for again only after some minutes.

The provisioning workflow keeps the durable marks that planning heeds; these spare a launch the round trip.
"""

from typing import Final

from aws.cache import Expiring
from aws.errors import SERVICE_LINKED_ROLE, SUBNET_FULL
from aws.network import FreeAddresses
from model.launches import FleetAnswer

_MARK_SECONDS: Final = 180.0


class Unavailable:
    """Marks by capacity type, instance type and zone; each new refusal renews its mark."""

    def __init__(self, free: FreeAddresses) -> None:
        self._free = free
        self._marks: Expiring[bool] = Expiring(_MARK_SECONDS, limit=20_000)

    def learn(self, answer: FleetAnswer) -> None:
        for error in answer.errors:
            if error.code in SUBNET_FULL:
                self._free.full(error.subnet_id)
            elif error.code in SERVICE_LINKED_ROLE:
                self._marks.put(error.capacity_type, True)
            elif error.insufficient and error.instance_type:
                self._marks.put((error.capacity_type, error.instance_type, error.zone), True)

    def covers(self, instance_type: str, zone: str, capacity_type: str) -> bool:
        return bool(self._marks.get(capacity_type) or self._marks.get((capacity_type, instance_type, zone)))
