"""Commands: candidates, replacements, and the target node of each pod.

A command whose moves are unknown, as after a failover, is simulated again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tenure.model.base import format_number, format_short_list
from tenure.model.disruption.decision import Command, CommandKind, Method, Move, Rejection
from tenure.model.facts import PodFact
from tenure.model.plan import PlannedNodeClaim, UnschedulablePod
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import ClusterSnapshot
from tenure.scheduling.disruption.replacement import Replacement
from tenure.scheduling.disruption.simulation import MovingPods, run_attempt
from tenure.scheduling.nodepool_template import RejectionReason
from tenure.scheduling.packing.planning_pass import PackingOptions, resolve_volume_requirements

COMMAND_KINDS: Final[Mapping[Method, CommandKind]] = {
    "Unhealthy": "repair",
    "Empty": "empty",
    "Expired": "expiry",
    "Drifted": "drift",
}
"""By reason. The number of nodes determines the kind of a command for Underutilized."""


def build_command(
    reason: Method,
    kind: CommandKind,
    removals: Sequence[Candidate],
    replacement: Replacement,
    rejected: Sequence[Rejection] = (),
) -> Command:
    before = sum(one.price for one in removals)
    command = Command(
        reason=reason,
        kind=kind,
        candidates=tuple(one.to_command_candidate() for one in removals),
        replacements=replacement.nodeclaims,
        moves=tuple(_build_moves(removals, replacement)),
        terminate_first=replacement.terminate_first,
        price_before=before,
        price_after=replacement.price,
        price_at_most=replacement.at_most,
        rejected=tuple(rejected),
    )
    return command.model_copy(update={"why": _describe_command(command)})


def _build_moves(removals: Sequence[Candidate], replacement: Replacement) -> list[Move]:
    """None for a static NodePool, whose pods are not simulated."""
    replacement_by_uid = {
        uid: number for number, nodeclaim in enumerate(replacement.nodeclaims) for uid in nodeclaim.pods
    }
    if any(one.is_static for one in removals):
        return []
    return [
        Move(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            source=one.node_name,
            target=replacement.moves.get(pod.uid, ""),
            replacement=replacement_by_uid.get(pod.uid, -1),
        )
        for one in removals
        for pod in one.pods
    ]


def _describe_command(command: Command) -> str:
    named = format_short_list(command.node_names)
    if command.reason == "Empty":
        return f"{named}: no pod must move, saves {format_number(command.price_before)} $/h"
    if command.terminate_first:
        return f"{named}: deleted before its replacement is launched ({command.terminate_first})"
    if command.replacements and not command.moves:
        return f"{named}: {command.replacements[0].why}"
    staying = sum(one.replacement < 0 for one in command.moves)
    parts = [f"{staying} pods fit on other nodes"] if staying else []
    if command.replacements:
        parts.append(f"{len(command.moves) - staying} pods get {len(command.replacements)} new nodes")
    before, after, at_most = map(format_number, (command.price_before, command.price_after, command.price_at_most))
    sums = f"costs {after} $/h instead of {before} (at most {at_most})"
    return f"{named}: {'; '.join((*parts, sums))}"


_ANY_PRICE: Final = float("inf")


def apply_in_flight_command(snapshot: ClusterSnapshot, command: Command, candidates: Iterable[Candidate]) -> None:
    """Apply a running command to the snapshot. Budgets count it already."""
    names = {one.claim for one in command.candidates}
    removals = [one.for_method(command.reason) for one in candidates if one.nodeclaim.name in names]
    moves = _recorded_moves(snapshot, command, removals)
    new_nodeclaims = () if command.claims else command.replacements
    snapshot.apply_removal(removals, moves, new_nodeclaims)
    assigned = {*moves, *(uid for nodeclaim in new_nodeclaims for uid in nodeclaim.pods)}
    unplanned = {pod.uid: pod for one in removals for pod in one.pods if pod.uid not in assigned}
    if unplanned:
        snapshot.assign_pods(unplanned, *_simulate_assignments(snapshot, unplanned))


def _simulate_assignments(
    snapshot: ClusterSnapshot, pods: Mapping[str, PodFact]
) -> tuple[Mapping[str, str], list[PlannedNodeClaim]]:
    """Place pods of deleted nodes on existing nodes, even uninitialized ones, and on new NodeClaims. Pods that fit
    nowhere use no capacity."""
    try:
        rejected, attached = list[UnschedulablePod](), snapshot.volume_attachments[1].values()
        shaped_pods = list(
            resolve_volume_requirements(
                [(snapshot.get_shape(pod), pod) for pod in pods.values()],
                snapshot.facts,
                snapshot.offers,
                attached,
                rejected,
            )
        )
        packing_attempt = run_attempt(
            snapshot, (), MovingPods(shaped_pods, None), snapshot.offers_below(_ANY_PRICE, ()), PackingOptions()
        )
        planned = [
            packing_attempt.planned_nodeclaims.build(number)
            for number in range(len(packing_attempt.packing.node_arrays.new_nodes))
        ]
    except Exception:
        # Optional precision: a failure here must not fail the next simulation.
        return {}, []
    return packing_attempt.packing.nominations, [one for one in planned if not isinstance(one, RejectionReason)]


def _recorded_moves(snapshot: ClusterSnapshot, command: Command, removals: Sequence[Candidate]) -> dict[str, str]:
    """Pod UID to the name of the existing node."""
    movable_uids = {pod.uid for one in removals for pod in one.pods}
    existing_nodes = snapshot.existing_nodes
    by_nodeclaim = {node.nodeclaim: node.name for node in existing_nodes.nodes if node.nodeclaim}
    moves: dict[str, str] = {}
    for one in command.moves:
        created_name = command.claims[one.replacement] if 0 <= one.replacement < len(command.claims) else ""
        target = by_nodeclaim.get(created_name, "") if created_name else one.target
        if target in existing_nodes.index and one.pod_uid in movable_uids:
            moves[one.pod_uid] = target
    return moves
