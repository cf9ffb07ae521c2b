"""What a Node that changed means, beyond its new form: since when its taints are there, and whether pods care."""

from datetime import datetime

from model.facts import NodeFact


def timed(new: NodeFact, old: NodeFact | None, now: datetime) -> NodeFact:
    """With a time for every taint, and for every resource that is not allocatable (any more). Few taints say when they
    were added, and resources never do: they are there, or missing, since they were seen to be."""
    before = old if old is not None and old.uid == new.uid else None
    known = before.tainted if before else {}
    taints = {one.name: new.tainted.get(one.name) or known.get(one.name) or now for one in new.taints}
    missing = _missing(new, before, now)
    if (taints, missing) == (new.tainted, new.missing):
        return new
    return new.model_copy(update={"tainted": taints, "missing": missing})


def _missing(new: NodeFact, before: NodeFact | None, now: datetime) -> dict[str, datetime]:
    had = {*before.allocatable, *before.missing} if before else set[str]()
    since = before.missing if before else {}
    return {key: since.get(key, now) for key in {*new.capacity, *had} if not new.allocatable.get(key)}


def concerns_pods(old: NodeFact | None, new: NodeFact | None) -> bool:
    """Whether pods may have lost or found a place by it."""
    if old is None or new is None:
        return any(one is not None and one.deleting for one in (old, new))
    before, after = ((one.deleting, one.ready, one.taints, one.missing.keys()) for one in (old, new))
    return before != after
