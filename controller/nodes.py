"""What a Node that changed means, beyond its new form: since when its taints are there, and whether pods care."""

from datetime import datetime

from model.facts import NodeFact


def timed(new: NodeFact, old: NodeFact | None, now: datetime) -> NodeFact:
    """With a time for every taint. Few taints say when they were added; the others are there since they were seen."""
    known = old.tainted if old is not None and old.uid == new.uid else {}
    times = {one.name: new.tainted.get(one.name) or known.get(one.name) or now for one in new.taints}
    return new.model_copy(update={"tainted": times}) if times != new.tainted else new


def concerns_pods(old: NodeFact | None, new: NodeFact | None) -> bool:
    """Whether pods may have lost or found a place by it."""
    if old is None or new is None:
        return any(one is not None and one.deleting for one in (old, new))
    return (old.deleting, old.ready, old.taints) != (new.deleting, new.ready, new.taints)
