"""Every activity of the main task queue but the watch, made from ports: what `worker.py` and the tests' worker run.

A new activity is written in its own file and named here once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from activities.capacity_reservations import ReservationActivities
from activities.disruption import CommandActivities, DisruptionActivities
from activities.garbage_collection.aws import InstanceUpkeep, LaunchUpkeep, TagUpkeep
from activities.garbage_collection.base import Lists, RunUpkeep
from activities.garbage_collection.kubernetes import ClaimUpkeep, LeaseUpkeep
from activities.interruption.activities import NodeInterruptionActivities
from activities.nodeclaim.annotations import AbsenceActivities, Annotated, PauseActivities
from activities.nodeclaim.drain import DrainActivities
from activities.nodeclaim.eviction import FirstLooks
from activities.nodeclaim.hooks import HookActivities
from activities.nodeclaim.instance import CyclingActivities, TerminationActivities
from activities.nodeclaim.launch import LaunchActivities
from activities.nodeclaim.recovery import RecallActivities
from activities.nodeclaim.registration import JoiningActivities
from activities.nodeclaim.repair import RepairActivities
from activities.nodeclass import NodeClassActivities
from activities.nodepool.budgets import AllowanceActivities
from activities.nodepool.rollout import GateActivities, RolloutActivities
from activities.nodepool.static_capacity import ReplicaActivities
from activities.nodepool.status import PoolActivities
from activities.planner_host import DisruptingActivities
from activities.ports.core import (
    Claims,
    Events,
    Fleet,
    Instances,
    Machines,
    NodeClasses,
    NodeClassResolver,
    Nodes,
    Pods,
    Pools,
    Reservations,
)
from activities.ports.disruption import Budgets, DisruptionHost, DrainPorts, HookPorts, Loads, Rollouts
from activities.ports.garbage_collection import UpkeepPorts
from activities.workflow_client import Lives


@dataclass(frozen=True)
class Ports:
    """The outside world as activities see it. Where one is made from adapters, mypy proves that they fit."""

    claims: Claims
    annotated: Annotated
    """NodeClaims too."""
    nodes: Nodes
    pods: Pods
    events: Events
    pools: Pools
    node_classes: NodeClasses
    fleet: Fleet
    instances: Instances
    resolver: NodeClassResolver
    reservations: Reservations
    lives: Lives
    machines: Machines
    gates: GateActivities
    """Of roll-outs through NodePools; `rollouts` are those of Deployments, which drains restart."""
    upkeep: UpkeepPorts
    loads: Loads
    hooks: HookPorts
    budgets: Budgets
    rollouts: Rollouts
    pauses: PauseActivities
    qps: float = 200.0
    """Requests a second that the API server may be sent."""

    @property
    def drained(self) -> DrainPorts:
        return DrainPorts(
            claims=self.claims,
            nodes=self.nodes,
            pods=self.pods,
            instances=self.instances,
            events=self.events,
            budgets=self.budgets,
            rollouts=self.rollouts,
        )


def activities_of(ports: Ports) -> list[Callable[..., Any]]:
    """In the order of a node's life; then those of NodePools and EC2NodeClasses; then upkeep."""
    return [*_of_nodes(ports), *_of_pools(ports), *_of_upkeep(ports)]


def launches_of(ports: Ports) -> list[Callable[..., Any]]:
    """Those that call CreateFleet: they have a queue and slots of their own, so that waiting calls hold up nothing."""
    launching = _launching(ports)
    return [launching.launch_alone, launching.launch_group]


def drains_of(ports: Ports) -> list[Callable[..., Any]]:
    """Those that wait for pods and instances to go, and for hooks: likewise, since a storm has hundreds of them; and
    the word of AWS, once the pods were told to go. Drains and terminations are on the main queue too: lives from before
    this queue have theirs scheduled there."""
    looks = FirstLooks()
    draining, telling = _draining(ports, looks), _telling(ports, looks)
    return [draining.drain_node, telling.tell_notices, _hooks(ports).run_hook, _ending(ports).terminate_node]


def deciding_of(host: DisruptionHost) -> list[Callable[..., Any]]:
    """Those of voluntary disruption that only the process that hosts the watch can answer: for the plan queue."""
    deciding = DisruptingActivities(host)
    return [deciding.decide_disruption, deciding.make_replacements]


def _launching(ports: Ports) -> LaunchActivities:
    return LaunchActivities(
        claims=ports.claims,
        node_classes=ports.node_classes,
        fleet=ports.fleet,
        instances=ports.instances,
        events=ports.events,
        lives=ports.lives,
        machines=ports.machines,
    )


def _draining(ports: Ports, looks: FirstLooks) -> DrainActivities:
    return DrainActivities(ports.drained, qps=ports.qps, first_looks=looks)


def _telling(ports: Ports, looks: FirstLooks) -> NodeInterruptionActivities:
    return NodeInterruptionActivities(claims=ports.annotated, nodes=ports.nodes, events=ports.events, first_looks=looks)


def _hooks(ports: Ports) -> HookActivities:
    return HookActivities(ports.hooks, claims=ports.claims, nodes=ports.nodes, instances=ports.instances)


def _ending(ports: Ports) -> TerminationActivities:
    return TerminationActivities(claims=ports.claims, nodes=ports.nodes, instances=ports.instances)


def _of_nodes(ports: Ports) -> list[Callable[..., Any]]:
    claims, nodes, pods, events = ports.claims, ports.nodes, ports.pods, ports.events
    launching = _launching(ports)
    recalling = RecallActivities(
        claims=claims,
        nodes=nodes,
        node_classes=ports.node_classes,
        fleet=ports.fleet,
        instances=ports.instances,
        machines=ports.machines,
    )
    joining = JoiningActivities(claims=claims, nodes=nodes, events=events)
    disruption = DisruptionActivities(claims=claims, nodes=nodes, pods=pods, events=events)
    commands = CommandActivities(claims=claims, nodes=nodes, pods=pods, events=events)
    looks = FirstLooks()
    draining = _draining(ports, looks)
    repairing = RepairActivities(claims=claims, nodes=nodes, instances=ports.instances, events=events)
    cycling = CyclingActivities(instances=ports.instances)
    ending = _ending(ports)
    return [
        launching.prepare_launch,
        launching.prepare_group,
        launching.refuse_group,
        recalling.recall_life,
        recalling.claim_stands,
        joining.register_node,
        joining.initialize_node,
        AbsenceActivities(claims=claims).record_absences,
        disruption.disrupt_claim,
        disruption.put_back,
        disruption.report,
        _telling(ports, looks).tell_notices,
        commands.begin_command,
        commands.finish_command,
        commands.undo_command,
        repairing.repair_node,
        draining.drain_node,
        draining.keep_node,
        cycling.stop_instance,
        cycling.start_instance,
        ending.terminate_node,
        ending.instance_runs,
    ]


def _of_pools(ports: Ports) -> list[Callable[..., Any]]:
    pools = PoolActivities(pools=ports.pools, claims=ports.claims, node_classes=ports.node_classes)
    allowances = AllowanceActivities(pools=ports.pools, claims=ports.claims, nodes=ports.nodes, events=ports.events)
    replicas = ReplicaActivities(
        pools=ports.pools,
        claims=ports.claims,
        nodes=ports.nodes,
        node_classes=ports.node_classes,
        loads=ports.loads,
        events=ports.events,
    )
    classes = NodeClassActivities(
        node_classes=ports.node_classes,
        claims=ports.claims,
        pools=ports.pools,
        resolver=ports.resolver,
        events=ports.events,
    )
    rolling = RolloutActivities(
        pools=ports.pools,
        claims=ports.claims,
        nodes=ports.nodes,
        pods=ports.pods,
        node_classes=ports.node_classes,
        events=ports.events,
    )
    return [
        pools.update_pool,
        allowances.read_allowance,
        ports.pauses.mirror_pause,
        replicas.keep_replicas,
        classes.resolve_node_class,
        classes.remove_node_class,
        classes.pin_images,
        rolling.look_at_rollout,
        rolling.tell_rollout,
        ports.gates.ask_gate,
    ]


def _of_upkeep(ports: Ports) -> list[Callable[..., Any]]:
    claims, found, events, inventory = ports.claims, ports.instances, ports.events, ports.upkeep.inventory
    leftovers = ports.upkeep.leftovers
    lists = Lists(instances=found, inventory=inventory)
    groups = ports.upkeep.groups
    instances = InstanceUpkeep(instances=found, inventory=inventory, lists=lists, groups=groups, events=events)
    objects = ClaimUpkeep(claims=claims, instances=found, inventory=inventory, lists=lists, events=events)
    launches = LaunchUpkeep(instances=found, inventory=inventory, leftovers=leftovers)
    tags = TagUpkeep(claims=claims, instances=found, lists=lists, leftovers=leftovers, events=events)
    leases = LeaseUpkeep(inventory=inventory)
    reserved = ReservationActivities(
        claims=claims, nodes=ports.nodes, instances=found, reservations=ports.reservations, events=events
    )
    return [
        reserved.sync_capacity_types,
        reserved.end_expiring_reservations,
        instances.end_unowned_instances,
        objects.collect_claims,
        objects.collect_nodes,
        launches.collect_launch_templates,
        launches.collect_profiles,
        tags.tag_instances,
        leases.collect_leases,
        RunUpkeep(ports.upkeep.temporal).forget_run,
    ]
