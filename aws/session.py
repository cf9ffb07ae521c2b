"""A botocore session that holds service models without their prose, reads times without guessing at their form, and of
an instance what somebody here asks for.

With botocore's own, six services' models take 36 MB, and of the time that a list of instances takes two thirds go to
the parsing of their times, and half of the rest to what nobody reads (docs/decisions/memory-of-a-worker.md).
"""

import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from botocore.loaders import JSONFileLoader
from botocore.session import Session, get_session
from botocore.utils import parse_timestamp

_OPENED_BY: Final[dict[str, Any]] = {".json": open, ".json.gz": gzip.open}

OF_AN_INSTANCE: Final = frozenset(
    {
        "CapacityReservationId",
        "CapacityReservationSpecification",
        "CpuOptions",
        "IamInstanceProfile",
        "ImageId",
        "InstanceId",
        "InstanceLifecycle",
        "InstanceType",
        "LaunchTime",
        "Placement",
        "RootDeviceType",
        "SecurityGroups",
        "SpotInstanceRequestId",
        "State",
        "SubnetId",
        "Tags",
    }
)
"""Members of EC2's Instance; the others are left where they come from. A test compares them with who reads them."""


def session() -> Session:
    made = get_session()
    made.get_component("data_loader").file_loader = Terse()
    made.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=moment)
    return made


class Terse(JSONFileLoader):
    """Files of botocore's data, in plain dicts."""

    def load_file(self, file_path: str) -> Any:
        """None where there is none, as botocore asks for."""
        for ending, opened in _OPENED_BY.items():
            if Path(file_path + ending).is_file():
                with opened(file_path + ending, "rb") as file:
                    return _of_use(json.load(file, object_hook=_without_prose))
        return None


def moment(value: Any) -> datetime:
    """Of EC2's `2026-06-01T12:00:00.000Z`; all else is botocore's to read. Raises ValueError."""
    if isinstance(value, str) and value[4:5] == "-":
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    read: datetime = parse_timestamp(value)
    return read


def _of_use(loaded: Any) -> Any:
    if isinstance(loaded, dict) and (loaded.get("metadata") or {}).get("serviceId") == "EC2":
        members = loaded["shapes"]["Instance"]["members"]
        loaded["shapes"]["Instance"]["members"] = {name: members[name] for name in members if name in OF_AN_INSTANCE}
    return loaded


def _without_prose(one: dict[str, Any]) -> dict[str, Any]:
    """A shape's member may be called documentation too, and is no text."""
    if isinstance(one.get("documentation"), str):
        one["documentation"] = ""
    return one
