"""The activities of each task queue, for `worker.py` and the tests' worker. Register a new activity here."""

from collections.abc import Callable
from typing import Any

from activities.disruption import DisruptionActivities
from activities.garbage_collection.collector import GarbageCollector
from activities.interruption.activities import NodeInterruptionActivities
from activities.nodeclaim.annotations import AnnotationActivities
from activities.nodeclaim.drain import DrainActivities
from activities.nodeclaim.eviction import BatchedFirstEviction
from activities.nodeclaim.hooks import HookActivities
from activities.nodeclaim.instance import InstanceActivities
from activities.nodeclaim.launch import LaunchActivities
from activities.nodeclaim.recovery import RecoveryActivities
from activities.nodeclaim.registration import RegistrationActivities
from activities.nodeclaim.repair import RebootActivities, RepairActivities
from activities.nodeclass import NodeClassActivities
from activities.nodepool.allowed_disruptions import AllowedDisruptionsActivities
from activities.nodepool.rollout import RolloutActivities
from activities.nodepool.static_capacity import ReplicaActivities
from activities.nodepool.status import NodePoolActivities
from activities.planner_host import PlannerHost, PlannerHostActivities
from activities.ports.core import Ports

Activities = list[Callable[..., Any]]


def list_activities(ports: Ports) -> Activities:
    """Activities of the main queue: of a node in the order of its life, of NodePools and EC2NodeClasses, and of garbage
    collection."""
    return [*_node_activities(ports), *_nodepool_activities(ports), GarbageCollector(ports).collect_garbage]


def list_launch_activities(ports: Ports) -> Activities:
    """Activities that call CreateFleet. They have their own queue and slots, so that waiting calls delay no others."""
    launches = LaunchActivities(ports)
    return [launches.launch_one, launches.launch_group]


def list_drain_activities(ports: Ports) -> Activities:
    """Activities that wait for pods, instances and hooks; an interruption burst has hundreds of them. The main queue
    has drains and terminations too, for those that were scheduled before this queue existed."""
    first_evictions = BatchedFirstEviction()
    return [
        DrainActivities(ports, first_evictions).drain_node,
        NodeInterruptionActivities(ports, first_evictions).publish_interruption_events,
        HookActivities(ports).run_hook,
        InstanceActivities(ports).terminate_instance,
    ]


def list_planner_activities(host: PlannerHost) -> Activities:
    """Activities of the plan queue, which only the process that hosts the watch polls."""
    planning = PlannerHostActivities(host)
    return [
        planning.plan_capacity,
        planning.compute_disruption,
        planning.create_replacements,
        planning.preview_disruption,
    ]


def _node_activities(ports: Ports) -> Activities:
    launches, recovery, registration = LaunchActivities(ports), RecoveryActivities(ports), RegistrationActivities(ports)
    disruption, instances = DisruptionActivities(ports), InstanceActivities(ports)
    first_evictions = BatchedFirstEviction()
    drains, rebooting = DrainActivities(ports, first_evictions), RebootActivities(ports)
    return [
        launches.prepare_launch,
        launches.prepare_launch_group,
        launches.fail_launch_group,
        recovery.recover_state,
        recovery.nodeclaim_exists,
        registration.register_node,
        registration.initialize_node,
        AnnotationActivities(ports).record_not_ready_intervals,
        disruption.disrupt_nodeclaim,
        disruption.restore_schedulable,
        disruption.publish_event,
        NodeInterruptionActivities(ports, first_evictions).publish_interruption_events,
        disruption.begin_command,
        disruption.finish_command,
        disruption.roll_back_command,
        RepairActivities(ports).repair_node,
        rebooting.observe_reboot,
        rebooting.end_reboot,
        drains.drain_node,
        drains.uncordon_node,
        instances.stop_instance,
        instances.start_instance,
        instances.terminate_instance,
        instances.read_instance_status,
    ]


def _nodepool_activities(ports: Ports) -> Activities:
    classes, rollouts = NodeClassActivities(ports), RolloutActivities(ports)
    return [
        NodePoolActivities(ports).update_nodepool_status,
        AllowedDisruptionsActivities(ports).read_allowed_disruptions,
        AnnotationActivities(ports).sync_pause_annotation,
        ReplicaActivities(ports).reconcile_replicas,
        classes.resolve_node_class,
        classes.finalize_node_class,
        classes.pin_amis,
        rollouts.observe_rollout,
        rollouts.publish_rollout_status,
        rollouts.query_health_gate,
    ]
