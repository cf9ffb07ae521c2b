"""Why a node is bought, in a sentence that stays with its NodeClaim and with its workflow."""

from collections.abc import Sequence
from typing import Final

from model.facts import PodFact
from model.resources import PODS
from scheduling.emission import Fill

_NAMED: Final = 3


def why(fill: Fill, pods: Sequence[PodFact], homes: int) -> str:
    """For whom, of which pool, what it is meant to be, at which price in US dollars an hour, and how full.

    The types of the fill are to be cheapest first."""
    rows, priced = fill.rows, _priced(fill)
    among = f"the cheapest of {len(rows)} instance types" if len(rows) > 1 else "the only one"
    return (
        f"{_named(pods)}: no room on {homes} nodes; {priced[0]} $/h is {among} of pool "
        f"{fill.offer.name} that fit, {_filled(fill, int(rows[0]))}{_next(priced[1:])}"
    )


def _priced(fill: Fill) -> list[str]:
    """The cheapest types, each with its price."""
    prices, names = fill.offer.prices(fill.option), fill.offer.table.names
    return [f"{names[row]} at {float(prices[row]):.4g}" for row in fill.rows[:_NAMED]]


def _next(priced: Sequence[str]) -> str:
    """What would have come after the one that is bought."""
    return f"; before {' and '.join(priced)}" if priced else ""


def _named(pods: Sequence[PodFact]) -> str:
    names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods[:_NAMED])
    more = len(pods) - _NAMED
    return f"{len(pods)} pods ({names} and {more} more)" if more > 0 else names


def _filled(fill: Fill, row: int) -> str:
    """Of what DaemonSets leave, in percent."""
    table, room = fill.offer.table, fill.offer.template.room[row]
    asked = [(key, column) for key, column in table.columns.items() if fill.used[column] and key != PODS]
    shares = [f"{round(100 * int(fill.used[column]) / int(room[column]))} % {key}" for key, column in asked]
    return f"filled to {', '.join(shares)}" if shares else "for pods that ask for nothing"
