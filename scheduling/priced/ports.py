"""When two host ports cannot be on one node (reference 2.7)."""

from model.facts import HostPort


def clash(one: HostPort, other: HostPort) -> bool:
    """The same port of the same protocol; an empty address is every address."""
    same = one.port == other.port and one.protocol == other.protocol
    return same and (one.address == other.address or "" in (one.address, other.address))
