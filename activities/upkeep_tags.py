"""Names for instances whose Node has joined: Name, the NodeClaim and the cluster, for whoever looks at EC2's console.

Slow on purpose, and in an order that dice give: a scale-up of hundreds holds up no launch, and an instance that may
not be tagged holds up no other.
"""

import random
import time
from datetime import UTC, datetime

from temporalio import activity

from activities.errors import faults_mapped
from activities.heartbeats import heartbeating
from activities.ports import Claims, Events, Instances
from activities.upkeep import UNREADABLE, Tally, why
from activities.upkeep_lists import Lists
from activities.upkeep_ports import Leftovers
from model import labels
from model.faults import Forbidden
from model.upkeep import ClaimMark, UpkeepAsked, UpkeepDone
from policy.upkeep import decide_untagged

PATIENCE = 240.0
"""Seconds after which a run leaves the rest to the next."""
GIVE_UP = 5
"""Refusals one after the other: it is not these instances that may not be tagged, it is this worker."""


class TagUpkeep:
    def __init__(
        self, *, claims: Claims, instances: Instances, lists: Lists, leftovers: Leftovers, events: Events
    ) -> None:
        self._claims, self._instances, self._lists = claims, instances, lists
        self._leftovers, self._events = leftovers, events

    @activity.defn
    @faults_mapped
    async def tag_instances(self, asked: UpkeepAsked) -> UpkeepDone:
        async with heartbeating():
            tally = Tally(asked)
            untagged = decide_untagged(await self._lists.claims.lately())
            random.shuffle(untagged)
            tally.looked_at = len(untagged)
            until, refused = time.monotonic() + PATIENCE, 0
            for claim in untagged:
                if time.monotonic() > until or refused >= GIVE_UP:
                    break
                try:
                    await self._tag(claim, asked.cluster, tally)
                    refused = 0
                except UNREADABLE as error:
                    refused = refused + 1 if isinstance(error, Forbidden) else 0
                    tally.failed("tags", claim.instance_id, why(error))
                    await self._say(claim, why(error))
            return tally.done()

    async def _tag(self, claim: ClaimMark, cluster: str, tally: Tally) -> None:
        """Only keys that are not there: what a person wrote stays. The NodeClaim remembers that it was done."""
        instance = await self._instances.get(claim.instance_id)
        if instance is None:
            return
        wanted = {
            labels.TAG_NAME: claim.node_name,
            labels.TAG_NODECLAIM: claim.name,
            labels.TAG_EKS_CLUSTER_NAME: cluster,
        }
        absent = {key: value for key, value in wanted.items() if key not in instance.tags}
        if absent:
            await self._leftovers.tag(claim.instance_id, absent)
            tally.collected("tags", claim.instance_id, keys=sorted(absent))
        done = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
        await self._claims.patch(claim.name, claim.uid, annotations=done, now=datetime.now(UTC))

    async def _say(self, claim: ClaimMark, reason: str) -> None:
        message = f"instance {claim.instance_id} could not be tagged: {reason}"
        await self._events.publish(
            kind="NodeClaim", name=claim.name, uid=claim.uid, reason="TaggingFailed", message=message, warning=True
        )
