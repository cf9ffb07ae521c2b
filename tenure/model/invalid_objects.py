"""Objects that raised an error when they were read, reported by the process that hosts the watch."""

from tenure.model.base import Message


class InvalidObject(Message):
    kind: str
    name: str
    """`namespace/name`; the name alone without a namespace."""
    reason: str
    """A short code such as `InvalidField`, for metrics."""
    message: str
    """The field, its value and the problem, in at most 300 characters."""


class InvalidObjectReport(Message):
    """What the ClusterWatch workflow knows, for `tenure stuck` and `tenure doctor`."""

    objects: tuple[InvalidObject, ...] = ()
    omitted: int = 0
    """How many there are beyond `objects`."""
