"""Bound keys and the gate they must pass. A key without a policy is never stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox.aws.settings import SimSettings

if TYPE_CHECKING:
    from sandbox.aws.ec2.launch import Prepared
    from sandbox.aws.ec2.pools import Pool
    from sandbox.aws.ec2.world import World
    from sandbox.aws.request import AwsCall
    from sandbox.aws.standin import StandIn


class Gate:
    def __init__(self, region: str) -> None:
        self.region = region

    def plain(self, world: World, action: str) -> None: ...
    def create_fleet(self, world: World, fleet_tags: dict[str, str], pools: list[Pool]) -> None: ...
    def run_instances(self, world: World, prepared: Prepared, template_id: str | None) -> None: ...
    def each(self, world: World, action: str, kind: str, tagged: dict[str, dict[str, str]]) -> None: ...
    def create(self, world: World, action: str, kind: str, tags: dict[str, str]) -> None: ...
    def tagging(self, world: World, action: str, tagged: dict[str, dict[str, str]], tags: dict[str, str]) -> None: ...
    def service_call(self, standin: StandIn, call: AwsCall) -> None: ...


class Keyring:
    def __init__(self, settings: SimSettings) -> None:
        self._settings = settings
        self._policies: dict[str, list[Any]] = {}

    def gate(self, access_key: str, region: str) -> Gate | None:
        return Gate(region) if access_key in self._policies else None

    def restore(self) -> None:
        """Keep only what was bound at the start."""
        self._policies.clear()
