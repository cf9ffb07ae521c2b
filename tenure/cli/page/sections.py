"""The sections of the cluster page. Each is read on its own, so that a fault of one leaves the others current.

Nodes come from Temporal's visibility, which is cheap. Sentences of blockers, pending pods and the disruption plan come
from the worker, and each read of them costs Temporal actions, so they are read less often.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from cachetools import TTLCache
from temporalio.client import Client

from tenure.cli.nodes import events, get, stuck, why
from tenure.cli.nodes.workflows import NodeClaimSummary, format_iso, list_commands, list_stopped_workflows, query_states
from tenure.cli.temporal_client import Connection
from tenure.controller.temporal.queries import query_invalid_objects
from workflows import ids, search_attributes

EVENT_PERIOD: Final = timedelta(hours=24)
SENTENCE_SECONDS: Final = 60.0

Content = dict[str, Any]


@dataclass(frozen=True)
class Section:
    read: Callable[[], Awaitable[Content]]
    interval_seconds: float


def cluster_sections(client: Client, connection: Connection) -> Mapping[str, Section]:
    """By name, as in `page.js`."""
    readers = {
        "nodes": (NodesReader().read, 5.0),
        "attention": (read_attention, 30.0),
        "pods": (read_pending_pods, 30.0),
        "commands": (read_commands, 5.0),
        "plan": (read_plan, 60.0),
        "events": (read_events, 15.0),
    }
    return {name: Section(partial(read, client, connection), seconds) for name, (read, seconds) in readers.items()}


class NodesReader:
    """Reads the sentence of a blocker again when the blocker changes, and after a minute."""

    def __init__(self) -> None:
        self._explained: TTLCache[tuple[str, str, datetime | None], NodeClaimSummary] = TTLCache(
            maxsize=10_000, ttl=SENTENCE_SECONDS
        )

    async def read(self, client: Client, connection: Connection) -> Content:
        found = await get.read(client, connection.cluster, (), "", connection.page_url)
        unexplained = [one for one in found if one.blocked_by and _blocker_key(one) not in self._explained]
        for before, after in zip(unexplained, await get.with_verdicts(client, unexplained), strict=True):
            if after.sentence:
                self._explained[_blocker_key(before)] = after
        return get.nodes_as_json([self._with_sentence(one) for one in found])

    def _with_sentence(self, nodeclaim: NodeClaimSummary) -> NodeClaimSummary:
        known = self._explained.get(_blocker_key(nodeclaim))
        return replace(nodeclaim, blocked_by=known.blocked_by, sentence=known.sentence) if known else nodeclaim


def _blocker_key(nodeclaim: NodeClaimSummary) -> tuple[str, str, datetime | None]:
    return nodeclaim.workflow_id, nodeclaim.blocked_by, nodeclaim.since


async def read_attention(client: Client, connection: Connection) -> Content:
    """As `tenure stuck`, without nodes and pending pods, which have sections of their own."""
    now, cluster = datetime.now(UTC), connection.cluster
    items, stopped, invalid, paused = await asyncio.gather(
        stuck.list_stuck_items(client, cluster, now),
        list_stopped_workflows(client, cluster),
        query_invalid_objects(client, cluster),
        stuck.list_paused_objects(client, cluster),
    )
    items += map(stuck.stopped_item, stopped)
    data = stuck.stuck_result([], [], {}, paused, items, now, invalid.objects).data
    return {key: data[key] for key in ("late", "paused", "invalidObjects")}


async def read_pending_pods(client: Client, connection: Connection) -> Content:
    found = await why.query_disruption_status(
        client, connection.cluster, pending_pods=True, clearing_pods=True, timeout=stuck.PENDING_PODS_TIMEOUT
    )
    return {
        "groups": [one.model_dump(mode="json") for one in found.pending_pods],
        "more": found.more,
        "nodePoolsNotReady": found.nodepools_not_ready,
        "unknown": found.blocked,
    }


async def read_plan(client: Client, connection: Connection) -> Content:
    """As `tenure plan`."""
    return why.as_json(await why.query_disruption_status(client, connection.cluster))


async def read_commands(client: Client, connection: Connection) -> Content:
    """Disruption commands that are being executed."""
    prefix = ids.disruption(connection.cluster, "")
    found = await list_commands(client, connection.cluster)
    states = await query_states(client, [one.id for one in found], stuck.BlockedState)

    def as_json(one: Any) -> Content:
        attributes, state = one.typed_search_attributes, states.get(one.id)
        return {
            "name": one.id.removeprefix(prefix),
            "nodePool": attributes.get(search_attributes.NODE_POOL),
            "step": attributes.get(search_attributes.PHASE),
            "since": format_iso(attributes.get(search_attributes.PHASE_SINCE)),
            "deadline": format_iso(attributes.get(search_attributes.DEADLINE)),
            "blockedBy": state.blocked_by if state else "",
            "workflowUrl": connection.page_url(one.id) or None,
        }

    return {"commands": [as_json(one) for one in found]}


async def read_events(client: Client, connection: Connection) -> Content:
    """AWS events, newest first."""
    reader = events.NodeEventReader(client, connection.cluster, connection.page_url)
    after = datetime.now(UTC) - EVENT_PERIOD
    rows = events.select_rows(await reader.list_node_events(after), after)
    found: Content = events.as_json(rows[::-1], None)
    return {"events": found["events"]}
