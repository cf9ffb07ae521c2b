"""Rollouts of drift: the state of a NodePool from live objects, its events, and health gates.

A health gate is an instant query to Prometheus (`GET /api/v1/query`). A failed query blocks the rollout, and does not
count as passed or failed. `tenure/policy/rollout/decision.py` decides in the NodePool workflow
(`workflows/rollout.py`).
"""

import asyncio
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
from temporalio import activity

from activities.ports.core import NodeFact, Ports, publish_event_on
from activities.runtime import call_for_each, map_faults
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.base import format_number
from tenure.model.nodeclaim.node_identity import identify_nodes
from tenure.model.provider_results import DrainPod
from tenure.model.rollout import (
    GateResult,
    HealthGate,
    ObservedRollout,
    RolloutNotification,
    RolloutRequest,
    RolloutTarget,
)
from tenure.policy.rollout.plan import is_made_of, target_of

MAX_NODES: Final = 100
"""Only the pods of the youngest new nodes are read, since each node is one call."""
_ERROR_MAX_CHARS: Final = 200
"""Characters of an error of Prometheus."""


class RolloutActivities:
    def __init__(self, ports: Ports) -> None:
        self._pools, self._claims, self._nodes, self._pods = ports.pools, ports.claims, ports.nodes, ports.pods
        self._node_classes, self._events = ports.node_classes, ports.events
        self._url = ports.prometheus_url.rstrip("/")
        self._redacted_url = re.sub(r"//[^/@]*@", "//", self._url)
        """Without user name and password."""

    @activity.defn
    @map_faults
    async def observe_rollout(self, request: RolloutRequest) -> ObservedRollout:
        """Empty for a deleted NodePool. The workflow adds rules, permit requests and permits."""
        pool = await self._pools.get(request.name)
        if pool is None:
            return ObservedRollout()
        node_class = await self._node_classes.get(pool.spec.template.spec.node_class_ref.name)
        claims = await self._claims.list(labels={labels.NODEPOOL: request.name})
        live_nodes = await self._nodes.list(labels={labels.NODEPOOL: request.name})
        nodes = {uid: one.node for uid, one in identify_nodes(claims, live_nodes).items()}
        drifted = [claim for claim in claims if claim.is_true(labels.DRIFTED)]
        target = target_of(pool, node_class)
        new = [one for one in claims if _is_new(one, nodes[one.uid], target)]
        pods = await self._pods_on(new, nodes) if request.pods else ()
        return ObservedRollout(
            target=target,
            drifted=tuple(sorted(claim.uid for claim in drifted)),
            departing=tuple(sorted(one.uid for one in drifted if _is_terminating(one, nodes[one.uid]))),
            updated_nodes=len(new),
            ready=sum(node.ready for claim in new if (node := nodes[claim.uid])),
            pods=len(pods),
            pods_ready=sum(pod.ready for pod in pods),
            stored_state=pool.metadata.annotations.get(labels.ROLLOUT, ""),
        )

    @activity.defn
    @map_faults
    async def publish_rollout_status(self, request: RolloutNotification) -> None:
        """Publish events, and write the state to the annotation."""
        pool = await self._pools.get(request.name)
        if pool is None:
            return
        for event in request.events:
            await publish_event_on(self._events, "NodePool", pool, event.reason, event.message)
        if request.stored_state != pool.metadata.annotations.get(labels.ROLLOUT, ""):
            now = utc_now()
            await self._pools.patch_status(request.name, annotations={labels.ROLLOUT: request.stored_state}, now=now)

    async def _pods_on(self, new: Iterable[NodeClaim], nodes: Mapping[str, NodeFact | None]) -> Sequence[DrainPod]:
        """Pods on the youngest new nodes that are not terminating and would be rescheduled."""
        youngest = sorted(new, key=_created_at, reverse=True)[:MAX_NODES]
        names = [node.name for claim in youngest if (node := nodes[claim.uid])]
        now = utc_now()
        found = await call_for_each(names, lambda name: self._pods.on_node(name, now=now))
        return [pod for pods in found for pod in pods if pod.reschedulable and pod.deletion is None]

    @activity.defn
    @map_faults
    async def query_health_gate(self, gate: HealthGate) -> GateResult:
        """The worst of all series decides."""
        values = await self._query_prometheus(gate)
        if isinstance(values, str):
            return GateResult(gate=gate.id, outcome="unknown", why=values)
        worst = max(values) if gate.below is not None else min(values)
        limit = gate.below if gate.below is not None else gate.above
        if limit is None:
            return GateResult(gate=gate.id, outcome="unknown", why="it has no limit: set below or above")
        passed = worst < limit if gate.below is not None else worst > limit
        expected = f"{'below' if gate.below is not None else 'above'} {format_number(limit, 6)}"
        why = "" if passed else f"{gate.name}: {format_number(worst, 6)} is not {expected}"
        return GateResult(gate=gate.id, outcome="passed" if passed else "failed", value=worst, why=why)

    async def _query_prometheus(self, gate: HealthGate) -> list[float] | str:
        """A number for each series, or an error message."""
        if not self._url:
            return "the worker's PROMETHEUS_URL is not set"
        seconds = gate.timeout.total_seconds()
        timeout = aiohttp.ClientTimeout(total=seconds)
        parameters = {"query": gate.query, "timeout": f"{seconds:g}s"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{self._url}/api/v1/query", params=parameters) as response,
            ):
                payload = await response.json(content_type=None)
        except TimeoutError:
            return f"no response from {self._redacted_url} within {seconds:g}s"
        except (aiohttp.ClientError, ValueError, asyncio.IncompleteReadError) as error:
            return f"no response from {self._redacted_url}: {str(error) or type(error).__name__}"[:_ERROR_MAX_CHARS]
        return _parse_payload(payload, response.status)


def _is_new(claim: NodeClaim, node: NodeFact | None, target: RolloutTarget | None) -> bool:
    """Whether the NodeClaim is initialized, matches the target and is not terminating.

    Drift of an older node may be detected only after the target has changed; its hash annotations show it immediately.
    """
    if target is None or not claim.is_true(labels.INITIALIZED_CONDITION) or claim.is_true(labels.DRIFTED):
        return False
    return is_made_of(claim, target) and not _is_terminating(claim, node)


def _is_terminating(claim: NodeClaim, node: NodeFact | None) -> bool:
    return claim.metadata.is_deleting or (node is not None and node.being_disrupted)


def _created_at(claim: NodeClaim) -> datetime:
    return claim.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)


def _parse_payload(payload: Any, code: int) -> list[float] | str:
    if not isinstance(payload, Mapping) or payload.get("status") != "success":
        message = payload.get("error", "") if isinstance(payload, Mapping) else ""
        return f"Prometheus returned {code} {message}".strip()[:_ERROR_MAX_CHARS]
    try:
        values = list(_values(payload["data"]))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        return f"invalid response from Prometheus: {error!r}"[:_ERROR_MAX_CHARS]
    if not values:
        return "the query returned no series"
    return "the query returned NaN" if any(math.isnan(one) for one in values) else values


def _values(data: Mapping[str, Any]) -> Iterator[float]:
    """Raises ValueError for a result that is neither a scalar nor an instant vector."""
    kind, result = data["resultType"], data["result"]
    if kind == "scalar":
        yield float(result[1])
    elif kind == "vector":
        yield from (float(one["value"][1]) for one in result)
    else:
        raise ValueError(f"a {kind}: invalid result, expected a query with a numeric result")
