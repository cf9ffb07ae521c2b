"""What upkeep sees, in memory: marks of the fake world's objects, Leases, and what is left over in the cloud."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tenure.kube.adapters.garbage_collection import claim_mark, node_class_mark
from tenure.model.garbage_collection import ClaimMark, LeaseMark, NodeClassMark, NodeMark, ProfileMark, TemplateMark
from tests.support.fakes.faulty import Faulty
from tests.support.fakes.kubernetes import FakeClaims, FakeNodeClasses, FakeNodes

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class FakeInventory(Faulty):
    known_claims: FakeClaims
    known_nodes: FakeNodes
    known_classes: FakeNodeClasses
    known_leases: dict[str, LeaseMark] = field(default_factory=dict)

    def lease(self, name: str, *, renewed_ago: float = 3600, owner: str = "") -> None:
        """`renewed_ago` in seconds."""
        until = datetime.now(UTC) - timedelta(seconds=renewed_ago - 60)
        self.known_leases[name] = LeaseMark(
            name=name, uid=f"lease-{name}", version="1", owners=(owner,) if owner else (), alive_until=until
        )

    async def claims(self) -> Sequence[ClaimMark]:
        return [claim_mark(one) for one in self.known_claims.found.values()]

    async def nodes(self) -> Sequence[NodeMark]:
        return [self._mark(name) for name in self.known_nodes.found]

    async def node(self, name: str) -> NodeMark | None:
        return self._mark(name) if name in self.known_nodes.found else None

    async def node_classes(self) -> Sequence[NodeClassMark]:
        return [node_class_mark(one.to_object()) for one in self.known_classes.found.values()]

    async def leases(self) -> Sequence[LeaseMark]:
        return list(self.known_leases.values())

    async def node_lease(self, name: str) -> LeaseMark | None:
        return self.known_leases.get(name)

    async def delete_lease(self, lease: LeaseMark) -> bool:
        if self.known_leases.get(lease.name) != lease:
            return False
        del self.known_leases[lease.name]
        return True

    def _mark(self, name: str) -> NodeMark:
        node = self.known_nodes.found[name]
        return NodeMark(
            name=node.name,
            uid=node.uid,
            provider_id=node.provider_id,
            ready=node.ready,
            finalizers=node.finalizers,
            created=LONG_AGO,
        )

    async def delete_node(self, node: NodeMark) -> bool:
        return self.known_nodes.found.pop(node.name, None) is not None


@dataclass
class FakeLeftovers(Faulty):
    made_templates: dict[str, TemplateMark] = field(default_factory=dict)
    made_profiles: dict[str, ProfileMark] = field(default_factory=dict)
    tagged: dict[str, dict[str, str]] = field(default_factory=dict)

    async def templates(self) -> Sequence[TemplateMark]:
        return list(self.made_templates.values())

    async def delete_template(self, template: TemplateMark) -> None:
        self.made_templates.pop(template.id, None)

    async def profiles(self) -> Sequence[ProfileMark]:
        return list(self.made_profiles.values())

    async def delete_profile(self, profile: ProfileMark) -> None:
        self.made_profiles.pop(profile.name, None)

    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        self.tagged.setdefault(instance_id, {}).update(tags)


@dataclass
class FakeGroups(Faulty):
    under_way: set[str] = field(default_factory=set)
    asked: list[set[str]] = field(default_factory=list)

    async def open(self, group_ids: Set[str]) -> Set[str]:
        self.asked.append(set(group_ids))
        return self.under_way & group_ids
