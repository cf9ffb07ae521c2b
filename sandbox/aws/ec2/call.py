"""One EC2 request as a handler sees it: the parsed parameters, the world of its region, and who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandbox.aws.ec2.world import World
from sandbox.aws.wire.errors import AwsError

if TYPE_CHECKING:
    from sandbox.aws.ec2.launch import Prepared
    from sandbox.aws.ec2.pools import Pool
    from sandbox.aws.iam.gate import Gate


@dataclass(frozen=True)
class Call:
    """`starved` is a fault rule's answer for every pool of a fleet."""

    action: str
    params: dict[str, Any]
    world: World
    gate: Gate | None = None
    starved: AwsError | None = None

    def permit_fleet(self, fleet_tags: dict[str, str], pools: list[Pool]) -> None:
        """May this caller create such a fleet from these templates? Raises UnauthorizedOperation."""
        if self.gate is not None:
            self.gate.create_fleet(self.world, fleet_tags, pools)

    def permit_launch(self, prepared: Prepared, template_id: str | None) -> None:
        """May this caller launch this instance? Raises UnauthorizedOperation."""
        if self.gate is not None:
            self.gate.run_instances(self.world, prepared, template_id)

    def permit_each(self, action: str, kind: str, tagged: dict[str, dict[str, str]]) -> None:
        """May this caller do this to each of these resources, given their tags? Raises UnauthorizedOperation."""
        if self.gate is not None:
            self.gate.each(self.world, action, kind, tagged)

    def permit_create(self, action: str, kind: str, tags: dict[str, str]) -> None:
        """May this caller create such a resource with these tags? Raises UnauthorizedOperation."""
        if self.gate is not None:
            self.gate.create(self.world, action, kind, tags)

    def permit_tagging(self, action: str, tagged: dict[str, dict[str, str]], tags: dict[str, str]) -> None:
        """May this caller put (or remove) these tags on resources that carry those? Raises UnauthorizedOperation."""
        if self.gate is not None:
            self.gate.tagging(self.world, action, tagged, tags)
