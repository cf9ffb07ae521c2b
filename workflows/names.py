"""How the workflows of one cluster are named, for activities that speak to them. Satisfies `activities.lives.Names`."""

from dataclasses import dataclass

from temporalio.common import TypedSearchAttributes

from model.lifecycle import ClaimIdentity
from workflows import ids, visible


@dataclass(frozen=True)
class Names:
    cluster: str

    def life_of(self, claim_name: str, uid: str) -> str:
        return ids.nodeclaim(self.cluster, claim_name, uid)

    def provisioning_id(self) -> str:
        return ids.provisioning(self.cluster)

    def lives_of(self, claim_name: str) -> str:
        return ids.nodeclaim(self.cluster, claim_name, "")

    def task_queue(self) -> str:
        return ids.task_queue(self.cluster)

    def attributes(self, identity: ClaimIdentity) -> TypedSearchAttributes:
        return visible.claim_start(identity)
