"""What AWS says of a node is said on its NodeClaim and its Node, and written down where it outlives its workflow."""

from temporalio import activity

from activities.errors import faults_mapped
from activities.first_looks import FirstLooks
from activities.pauses import Annotated
from activities.ports import Events, Nodes
from model.labels import EXPECTED_BACK, INTERRUPTIONS
from model.lanes import LANE
from model.remembered import NoticesTold


class InterruptionActivities:
    def __init__(
        self, *, claims: Annotated, nodes: Nodes, events: Events, first_looks: FirstLooks | None = None
    ) -> None:
        """`first_looks` of drains, after which the word is given."""
        self._claims, self._nodes, self._events = claims, nodes, events
        self._first_looks = first_looks or FirstLooks()

    @activity.defn
    @faults_mapped
    async def tell_notices(self, told: NoticesTold) -> None:
        """Write first: what is said may be said twice, what is not written is lost."""
        LANE.set("crowd")
        await self._first_looks.others()
        ref = told.claim
        if told.write:
            back = told.expected_back.isoformat(timespec="seconds") if told.expected_back else None
            await self._claims.annotate(ref.name, {INTERRUPTIONS: told.text or None, EXPECTED_BACK: back}, uid=ref.uid)
        if not told.said:
            return
        node = await self._nodes.get(ref.node_name) if ref.node_name else None
        objects = [("NodeClaim", ref.name, ref.uid)]
        if node is not None and node.provider_id == ref.provider_id:
            objects.append(("Node", node.name, node.uid))
        for said in told.said:
            for kind, name, uid in objects:
                await self._events.publish(
                    kind=kind, name=name, uid=uid, reason=said.reason, message=said.message, warning=said.warning
                )
