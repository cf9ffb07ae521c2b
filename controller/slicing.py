"""In a storm, NodeClaims are dealt out over slices of the capacity pools (docs/decisions/storms-are-spread.md).

`planning.py` asks it for each plan; a launch group has one slice, and asks for what is in it alone at first.
"""

from collections.abc import Callable, Sequence

from model.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE, ZONE_ID
from model.plans import PlannedClaim
from model.pool_slices import PoolSlice, slices
from model.requirements import Requirements


def dealt(planned: Sequence[PlannedClaim], zones_of: Callable[[str], Sequence[str]]) -> list[PoolSlice | None]:
    """A slice for each claim, in turn; None for those that no slice suits. `zones_of` an EC2NodeClass."""
    found: list[PoolSlice | None] = []
    for number, claim in enumerate(planned):
        choice = _choice(claim, zones_of(claim.node_class))
        found.append(choice[number % len(choice)] if len(choice) > 1 else None)
    return found


def _choice(claim: PlannedClaim, zones: Sequence[str]) -> Sequence[PoolSlice]:
    """None where it is not spot, or where a slice may lack the variety that is asked for."""
    wanted = Requirements.of(claim.requirements)
    types = next((one.values for one in claim.requirements if one.key == INSTANCE_TYPE and one.operator == "In"), ())
    varied = any(one.min_values for one in claim.requirements)
    if varied or ZONE_ID in wanted or CAPACITY_TYPE not in wanted or not wanted[CAPACITY_TYPE].has(SPOT):
        return ()
    return slices(types, [zone for zone in zones if ZONE not in wanted or wanted[ZONE].has(zone)])
