"""A bought node as a fill, of which `scheduling/emission.py` makes a NodeClaim."""

import numpy as np

from scheduling.emission import Fill
from scheduling.priced.places import Places


def fill_of(places: Places, number: int) -> Fill:
    """A bought node with what it holds, and every type that could stand in for the one it is meant to be."""
    one = places.bought[number]
    lane = places.lanes[one.lane]
    table = lane.offer.table
    used = places.used(number)
    taken = np.array([used[places.columns[key]] for key in table.resources], dtype=np.int64)
    rows = np.flatnonzero(lane.option.types)
    fitting = rows[(lane.offer.template.room[rows] >= taken).all(axis=1)]
    for key in lane.offer.budget.limits:
        if key in table.columns:
            # No larger than what was counted against the limit when it was bought.
            column = table.capacity[:, table.columns[key]]
            fitting = fitting[column[fitting] <= column[one.rows].max()]
    return Fill(lane.offer, lane.option, taken, fitting)
