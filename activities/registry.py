"""Every activity of the main task queue but the watch, made from ports: what `worker.py` and the tests' worker run.

A new activity is written in its own file and named here once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from activities.capacity_reservations import ReservationActivities
from activities.disruption import CommandActivities, DisruptionActivities
from activities.garbage_collection.aws import InstanceCollector, InstanceTagger, LaunchResourceCollector
from activities.garbage_collection.base import RunCollector, SharedLists
from activities.garbage_collection.kubernetes import LeaseCollector, NodeClaimCollector
from activities.interruption.activities import NodeInterruptionActivities
from activities.nodeclaim.annotations import Annotated, NotReadyActivities, PauseActivities
from activities.nodeclaim.drain import DrainActivities
from activities.nodeclaim.eviction import BatchedFirstEviction
from activities.nodeclaim.hooks import HookActivities
from activities.nodeclaim.instance import StopStartActivities, TerminationActivities
from activities.nodeclaim.launch import LaunchActivities
from activities.nodeclaim.recovery import RecoveryActivities
from activities.nodeclaim.registration import RegistrationActivities
from activities.nodeclaim.repair import RepairActivities
from activities.nodeclass import NodeClassActivities
from activities.nodepool.budgets import AllowedDisruptionsActivities
from activities.nodepool.rollout import GateActivities, RolloutActivities
from activities.nodepool.static_capacity import ReplicaActivities
from activities.nodepool.status import NodePoolActivities
from activities.planner_host import DisruptionPlanningActivities
from activities.ports.core import (
    Claims,
    Events,
    Fleet,
    Instances,
    NodeClasses,
    NodeClassResolver,
    Nodes,
    Pods,
    Pools,
    Reservations,
)
from activities.ports.disruption import Budgets, DisruptionHost, DrainPorts, HookPorts, Loads, Rollouts
from activities.ports.garbage_collection import GarbageCollectionPorts
from activities.workflow_client import NodeClaimWorkflows


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
    nodeclaim_workflows: NodeClaimWorkflows
    gates: GateActivities
    """Of roll-outs through NodePools; `rollouts` are those of Deployments, which drains restart."""
    garbage_collection: GarbageCollectionPorts
    loads: Loads
    hooks: HookPorts
    budgets: Budgets
    rollouts: Rollouts
    pauses: PauseActivities
    qps: float = 200.0
    """Requests a second that the API server may be sent."""

    @property
    def drain_ports(self) -> DrainPorts:
        return DrainPorts(
            claims=self.claims,
            nodes=self.nodes,
            pods=self.pods,
            instances=self.instances,
            events=self.events,
            budgets=self.budgets,
            rollouts=self.rollouts,
        )


def list_activities(ports: Ports) -> list[Callable[..., Any]]:
    """In the order of a node's life; then those of NodePools and EC2NodeClasses; then upkeep."""
    return [*_node_activities(ports), *_nodepool_activities(ports), *_garbage_collection_activities(ports)]


def list_launch_activities(ports: Ports) -> list[Callable[..., Any]]:
    """Those that call CreateFleet: they have a queue and slots of their own, so that waiting calls hold up nothing."""
    launches = _launch_activities(ports)
    return [launches.launch_one, launches.launch_group]


def list_drain_activities(ports: Ports) -> list[Callable[..., Any]]:
    """Those that wait for pods and instances to go, and for hooks: likewise, since a storm has hundreds of them; and
    the word of AWS, once the pods were told to go. Drains and terminations are on the main queue too: lives from before
    this queue have theirs scheduled there."""
    first_evictions = BatchedFirstEviction()
    drains, interruptions = _drain_activities(ports, first_evictions), _interruption_activities(ports, first_evictions)
    return [
        drains.drain_node,
        interruptions.publish_interruption_events,
        _hook_activities(ports).run_hook,
        _termination_activities(ports).terminate_instance,
    ]


def list_planner_activities(host: DisruptionHost) -> list[Callable[..., Any]]:
    """Those of voluntary disruption that only the process that hosts the watch can answer: for the plan queue."""
    planning = DisruptionPlanningActivities(host)
    return [planning.compute_disruption, planning.create_replacements]


def _launch_activities(ports: Ports) -> LaunchActivities:
    return LaunchActivities(
        claims=ports.claims,
        node_classes=ports.node_classes,
        fleet=ports.fleet,
        instances=ports.instances,
        events=ports.events,
        nodeclaim_workflows=ports.nodeclaim_workflows,
    )


def _drain_activities(ports: Ports, first_evictions: BatchedFirstEviction) -> DrainActivities:
    return DrainActivities(ports.drain_ports, qps=ports.qps, first_evictions=first_evictions)


def _interruption_activities(ports: Ports, first_evictions: BatchedFirstEviction) -> NodeInterruptionActivities:
    return NodeInterruptionActivities(
        claims=ports.annotated, nodes=ports.nodes, events=ports.events, first_evictions=first_evictions
    )


def _hook_activities(ports: Ports) -> HookActivities:
    return HookActivities(ports.hooks, claims=ports.claims, nodes=ports.nodes, instances=ports.instances)


def _termination_activities(ports: Ports) -> TerminationActivities:
    return TerminationActivities(claims=ports.claims, nodes=ports.nodes, instances=ports.instances)


def _node_activities(ports: Ports) -> list[Callable[..., Any]]:
    claims, nodes, pods, events = ports.claims, ports.nodes, ports.pods, ports.events
    launches = _launch_activities(ports)
    recovery = RecoveryActivities(
        claims=claims,
        nodes=nodes,
        node_classes=ports.node_classes,
        fleet=ports.fleet,
        instances=ports.instances,
    )
    registration = RegistrationActivities(claims=claims, nodes=nodes, events=events)
    disruption = DisruptionActivities(claims=claims, nodes=nodes, pods=pods, events=events)
    commands = CommandActivities(claims=claims, nodes=nodes, pods=pods, events=events)
    first_evictions = BatchedFirstEviction()
    drains = _drain_activities(ports, first_evictions)
    repairs = RepairActivities(claims=claims, nodes=nodes, instances=ports.instances, events=events)
    stop_start = StopStartActivities(instances=ports.instances)
    terminations = _termination_activities(ports)
    return [
        launches.prepare_launch,
        launches.prepare_launch_group,
        launches.fail_launch_group,
        recovery.recover_state,
        recovery.nodeclaim_exists,
        registration.register_node,
        registration.initialize_node,
        NotReadyActivities(claims=claims).record_not_ready_intervals,
        disruption.delete_nodeclaim,
        disruption.restore_schedulable,
        disruption.publish_event,
        _interruption_activities(ports, first_evictions).publish_interruption_events,
        commands.begin_command,
        commands.finish_command,
        commands.roll_back_command,
        repairs.repair_node,
        drains.drain_node,
        drains.uncordon_node,
        stop_start.stop_instance,
        stop_start.start_instance,
        terminations.terminate_instance,
        terminations.instance_is_running,
    ]


def _nodepool_activities(ports: Ports) -> list[Callable[..., Any]]:
    pools = NodePoolActivities(pools=ports.pools, claims=ports.claims, node_classes=ports.node_classes)
    allowed_disruptions = AllowedDisruptionsActivities(
        pools=ports.pools, claims=ports.claims, nodes=ports.nodes, events=ports.events
    )
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
    rollouts = RolloutActivities(
        pools=ports.pools,
        claims=ports.claims,
        nodes=ports.nodes,
        pods=ports.pods,
        node_classes=ports.node_classes,
        events=ports.events,
    )
    return [
        pools.update_nodepool_status,
        allowed_disruptions.read_allowed_disruptions,
        ports.pauses.sync_pause_annotation,
        replicas.reconcile_replicas,
        classes.resolve_node_class,
        classes.finalize_node_class,
        classes.pin_amis,
        rollouts.observe_rollout,
        rollouts.publish_rollout_status,
        ports.gates.query_health_gate,
    ]


def _garbage_collection_activities(ports: Ports) -> list[Callable[..., Any]]:
    claims, found, events, inventory = ports.claims, ports.instances, ports.events, ports.garbage_collection.inventory
    orphaned_resources = ports.garbage_collection.orphaned_resources
    lists = SharedLists(instances=found, inventory=inventory)
    groups = ports.garbage_collection.groups
    instances = InstanceCollector(instances=found, inventory=inventory, lists=lists, groups=groups, events=events)
    objects = NodeClaimCollector(claims=claims, instances=found, inventory=inventory, lists=lists, events=events)
    launches = LaunchResourceCollector(instances=found, inventory=inventory, orphaned_resources=orphaned_resources)
    tags = InstanceTagger(
        claims=claims, instances=found, lists=lists, orphaned_resources=orphaned_resources, events=events
    )
    leases = LeaseCollector(inventory=inventory)
    reserved = ReservationActivities(
        claims=claims, nodes=ports.nodes, instances=found, reservations=ports.reservations, events=events
    )
    return [
        reserved.sync_capacity_types,
        reserved.release_expiring_reservations,
        instances.terminate_orphaned_instances,
        objects.collect_nodeclaims,
        objects.collect_nodes,
        launches.collect_launch_templates,
        launches.collect_instance_profiles,
        tags.tag_instances,
        leases.collect_leases,
        RunCollector(ports.garbage_collection.temporal).delete_uneventful_run,
    ]
