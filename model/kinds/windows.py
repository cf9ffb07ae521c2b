"""A time that comes again and again, as LifecyclePolicies write it. `policy/windows.py` says when it is open."""

from typing import Annotated, Final

from model.kinds.meta import KubeModel
from model.kinds.schema import CRON, DURATION, Crd

ZONE_DOC: Final = "The time zone, by its name in the IANA database, such as Europe/Berlin. Unset: UTC."


class Window(KubeModel):
    """A time in which nodes may go."""

    schedule: Annotated[
        str,
        Crd("When the window opens, as a cron line or @daily and the like.", {"pattern": CRON}, required=True),
    ]
    duration: Annotated[str, Crd("How long it is open, such as 4h or 1h30m.", {"pattern": DURATION}, required=True)]
    time_zone: Annotated[str | None, Crd(ZONE_DOC + " Cron lines follow its summer time.", {"minLength": 1})] = None
