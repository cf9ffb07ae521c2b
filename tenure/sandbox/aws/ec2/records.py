"""Mutable records of EC2: instances with volumes and interfaces, fleets, launch templates, images, reservations.

View and handler modules render them for clients.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
PoolKey = tuple[str, str, str]


@dataclass
class Volume:
    id: str
    device: str
    size: int
    volume_type: str
    encrypted: bool
    delete_on_termination: bool
    tags: dict[str, str]
    iops: int | None = None
    throughput: int | None = None
    snapshot_id: str | None = None
    kms_key_id: str | None = None


@dataclass
class NetworkInterface:
    id: str
    attachment_id: str
    mac: str
    device_index: int
    card_index: int
    interface_type: str
    private_ip: str | None
    public_ip: str | None
    groups: list[tuple[str, str]]
    tags: dict[str, str]
    description: str
    ipv4_prefixes: list[str] = field(default_factory=list)
    ipv6: list[str] = field(default_factory=list)
    ipv6_prefixes: list[str] = field(default_factory=list)


@dataclass
class Instance:
    """One instance. `data` is the launch-template data merged with the chosen override."""

    id: str
    sequence: int
    reservation_id: str
    launch_index: int
    instance_type: str
    image_id: str
    architecture: str
    root_device: str
    platform: str | None
    image_name: str
    zone: str
    zone_id: str
    subnet_id: str
    vpc_id: str
    private_ip: str
    lifecycle: str
    client_token: str
    launch_time: dt.datetime
    data: dict[str, Any]
    tags: dict[str, str]
    groups: list[tuple[str, str]]
    interfaces: list[NetworkInterface]
    volumes: list[Volume]
    profile: tuple[str, str] | None
    state: str = "pending"
    fleet_id: str | None = None
    spot_request_id: str | None = None
    capacity_reservation_id: str | None = None
    group_id: str | None = None
    group_name: str = ""
    partition: int | None = None
    pools: list[PoolKey] = field(default_factory=list)
    vcpus: int = 0
    counted: bool = False
    timer: int = 0
    revision: int = 0
    reboots: int = 0
    visible_at: float = 0.0
    reason: str = ""
    reason_code: str | None = None
    reason_message: str | None = None
    # Code and text of the reason why it never reaches `running`, if any.
    failure: tuple[str, str] | None = None
    status: dict[str, Any] = field(default_factory=dict)
    view: Any = None
    facts: dict[str, list[str]] | None = None

    def invalidate_view(self) -> None:
        """Drop the cached XML and filter values."""
        self.view = None
        self.facts = None


@dataclass
class Fleet:
    id: str
    client_token: str | None
    created: dt.datetime
    request: dict[str, Any]
    tags: dict[str, str]
    response: dict[str, Any]


@dataclass
class LaunchTemplate:
    id: str
    name: str
    created: dt.datetime
    created_by: str
    tags: dict[str, str]
    versions: list[dict[str, Any]]
    default_version: int = 1
    visible_at: float = 0.0


@dataclass
class Image:
    id: str
    name: str
    owner: str
    owner_alias: str | None
    architecture: str
    created: dt.datetime
    description: str
    root_device: str
    volumes: list[dict[str, Any]]
    platform: str | None = None
    deprecation: dt.datetime | None = None
    public: bool = True
    state: str = "available"
    tags: dict[str, str] = field(default_factory=dict)


@dataclass
class Reservation:
    id: str
    instance_type: str
    zone: str
    zone_id: str
    platform: str
    tenancy: str
    total: int
    owner: str
    created: dt.datetime
    start: dt.datetime
    end: dt.datetime | None
    match_criteria: str
    kind: str
    tags: dict[str, str]
    state: str = "active"
    used: int = 0
    interruptible: bool = False
    # Start and end on the stand-in's clock.
    starts_at: float = 0.0
    ends_at: float | None = None
    reclaimed: bool = False


@dataclass
class PlacementGroup:
    id: str
    name: str
    strategy: str
    partitions: int | None
    spread_level: str | None
    tags: dict[str, str]
    state: str = "available"
