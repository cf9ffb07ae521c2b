"""What EC2 reports of instances in DescribeInstanceStatus, before anything is made of it."""

from datetime import datetime
from typing import Literal

from model.base import Message, Value
from model.interruptions import Notice

CheckKind = Literal["instanceStatus", "systemStatus"]


class FailedCheck(Value):
    kind: CheckKind
    since: datetime | None = None
    """ImpairedSince; None: EC2 does not say."""


class StatusReport(Value):
    """One instance that has something to report."""

    instance_id: str
    failed: tuple[FailedCheck, ...] = ()
    events: tuple[Notice, ...] = ()
    """Scheduled ones; `at` is when they were read."""


class OpenNotice(Message):
    """What a node was told by its instance's status, and what is not over yet."""

    instance_id: str
    notice: Notice
