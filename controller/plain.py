"""How `caches.py` reads the kinds of which it keeps each object as it comes.

By the plural of each resource: what the planner calls it, by what it is known, and how raw JSON becomes its fact.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kube import resources
from kube.budgets import pod_budget_fact
from kube.errors import Json
from kube.facts import namespace_fact, overlay_fact
from kube.listwatch import Delta
from kube.pod_facts import daemonset_fact
from scheduling.facts import Fact, Kind


def _uid(metadata: Json) -> str:
    return str(metadata["uid"])


def _name(metadata: Json) -> str:
    return str(metadata["name"])


def _path(metadata: Json) -> str:
    return f"{metadata['namespace']}/{metadata['name']}"


_READERS: Final[Mapping[str, tuple[Kind, Callable[[Json], str], Callable[[Json], Fact]]]] = {
    resources.DAEMON_SETS.plural: ("daemonset", _uid, daemonset_fact),
    resources.NAMESPACES.plural: ("namespace", _name, namespace_fact),
    resources.NODE_OVERLAYS.plural: ("overlay", _name, overlay_fact),
    resources.POD_DISRUPTION_BUDGETS.plural: ("pod_budget", _path, pod_budget_fact),
}
KINDS: Final = frozenset(_READERS)


def heard(plural: str, delta: Delta) -> tuple[Kind, str, Fact | None]:
    """The kind, the key and the fact; None for an object that is gone. Raises ValueError and KeyError."""
    kind, key, read = _READERS[plural]
    return kind, key(delta.object["metadata"]), None if delta.gone else read(delta.object)
