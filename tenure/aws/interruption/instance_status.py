"""The port `InstanceStatuses`: three filtered lists of DescribeInstanceStatus (reference 2.2, 5.1).

The lists are almost empty even in an account with thousands of instances, and a terminated instance cannot make a call
fail.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from tenure.aws.client.client import AwsClients
from tenure.clock import utc_now
from tenure.model.interruption.messages import CheckKind, FailedCheck, InterruptionMessage, StatusReport

EVENT_CODES: Final = ("instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop")
_FILTERS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("instance-status.status", ("impaired",)),
    ("system-status.status", ("impaired",)),
    ("event.code", EVENT_CODES),
)
_PAGE: Final = 1000
_CHECKS: Final[Mapping[str, CheckKind]] = {"InstanceStatus": "instanceStatus", "SystemStatus": "systemStatus"}
_FAILED: Final = "failed"
_PREFIXES: Final[Mapping[str, str]] = {"[completed]": "over", "[canceled]": "withdrawn", "[cancelled]": "withdrawn"}
"""Prefix of the description of completed and cancelled events, which EC2 lists for up to a week."""


class AwsInstanceStatuses:
    """Raises model.faults."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients

    async def read(self) -> Sequence[StatusReport]:
        """Every instance in the region with a failing status check or a scheduled event."""
        found = await asyncio.gather(*(self._list(name, values) for name, values in _FILTERS))
        now = utc_now()
        raw = {one["InstanceId"]: one for listed in found for one in listed}
        return tuple(_report(one, now) for one in raw.values())

    async def _list(self, name: str, values: tuple[str, ...]) -> list[Mapping[str, Any]]:
        return await self._clients.paginate(
            self._clients.ec2.describe_instance_status,
            "InstanceStatuses",
            lambda item: item,
            Filters=[{"Name": name, "Values": list(values)}],
            PaginationConfig={"PageSize": _PAGE},
        )


def _report(raw: Mapping[str, Any], now: datetime) -> StatusReport:
    return StatusReport(
        instance_id=raw["InstanceId"],
        failed_checks=tuple(_failed_checks(raw)),
        events=tuple(_parse_event(one, now) for one in raw.get("Events") or () if one.get("Code") in EVENT_CODES),
    )


def _failed_checks(raw: Mapping[str, Any]) -> Iterator[FailedCheck]:
    """The longest failing check per kind. Checks of attached EBS volumes do not count."""
    for name, kind in _CHECKS.items():
        details = [one for one in (raw.get(name) or {}).get("Details") or () if one.get("Status") == _FAILED]
        if details:
            known = [since for one in details if (since := one.get("ImpairedSince"))]
            yield FailedCheck(kind=kind, since=min(known) if known else None)


def _parse_event(raw: Mapping[str, Any], now: datetime) -> InterruptionMessage:
    description = " ".join(str(raw.get("Description") or "").split())
    starts = raw.get("NotBefore")
    prefix = description.partition(" ")[0].lower()
    return InterruptionMessage.model_validate(
        {
            "kind": "scheduledChange",
            "id": raw.get("InstanceEventId") or f"{raw['Code']}/{starts.isoformat() if starts else ''}",
            "source": "status",
            "at": now,
            "starts": starts,
            "ends": raw.get("NotAfter"),
            "code": raw["Code"],
            "status": _PREFIXES.get(prefix, "announced"),
            "text": description[:300],
        }
    )
