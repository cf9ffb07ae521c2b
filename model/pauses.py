"""A pause as an annotation: what a workflow knows of it, and what it has written there.

`policy/pauses.py` has the form of the annotation, `workflows/brakes.py` keeps workflow and annotation in step.
"""

from datetime import datetime
from typing import Literal

from model.base import Message
from model.messages import Pause


class Mirror(Message):
    """What the annotation says, so that a change by a person is told apart from the workflow's own."""

    stands: str = ""
    """The annotation as far as it is known: as it was written last, or as a person changed it since."""
    seen: str = ""
    """As the watch showed it last."""
    echoes: tuple[str, ...] = ()
    """What the workflow wrote and the watch has not shown yet; empty for an annotation that was taken off."""
    written: datetime | None = None
    """When the last of these was."""
    number: int = 0
    """Of the watch's last word of the cluster's annotation; of others their own observations say it."""
    told: Pause | None = None
    """The pause that an event told of last."""


class PauseSeen(Message):
    """Signal to the Cluster workflow: the annotation of the worker's namespace."""

    number: int = 0
    text: str = ""


class MirrorAsked(Message):
    """Write a pause onto its object, or take it off, and say so in an event."""

    kind: Literal["Cluster", "NodePool", "NodeClaim"]
    name: str = ""
    """Empty for the cluster: whose namespace it is the worker knows."""
    uid: str = ""
    """Of a NodeClaim."""
    node_name: str = ""
    """Of a NodeClaim's Node, from which the annotation is taken off too."""
    write: bool = True
    """False: the annotation is as it should be."""
    text: str = ""
    """Empty: the annotation is taken off."""
    only: str = ""
    """Taken off only where it says this: a person may have changed it in the meantime."""
    event: str = ""
    message: str = ""
    warning: bool = False
