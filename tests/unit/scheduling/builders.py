"""Builders of the facts from which a plan is made."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final

from tenure.apis.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ZONE
from tenure.model.extra_capacity import BufferFact
from tenure.model.facts import (
    CSINodeFact,
    DaemonSetFact,
    Expression,
    NamespaceFact,
    NodeClaimFact,
    NodeFact,
    NodePoolFact,
    PodDisruptionBudgetFact,
    PodFact,
    PreferredTerm,
    StorageClassFact,
    Taint,
    Term,
    Toleration,
    VolumeClaimFact,
    VolumeFact,
)
from tenure.model.instance_types import Catalogue, InstanceType, Offering
from tenure.model.nodeoverlays import OverlayFact
from tenure.model.plan import Plan, PlannedNodeClaim
from tenure.scheduling.cluster_state import Change, ClusterState
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Fact, FactKind

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GIB = 1 << 30
ZONES = ("a", "b", "c")
_numbers = count()


def expressions(*written: str) -> tuple[Expression, ...]:
    """Expressions from texts such as `key operator value value`, optionally followed by `minValues=n`."""
    return tuple(_expression(text.split()) for text in written)


def _expression(parts: list[str]) -> Expression:
    min_values_count = int(parts.pop().removeprefix("minValues=")) if parts[-1].startswith("minValues=") else None
    return Expression(key=parts[0], operator=parts[1], values=tuple(parts[2:]), min_values=min_values_count)


def pod(
    name: str = "",
    *,
    cpu: float = 1,
    memory: float = 1,
    extra: dict[str, int] | None = None,
    selector: dict[str, str] | None = None,
    terms: tuple[tuple[Expression, ...], ...] = (),
    preferred: dict[str, int] | None = None,
    tolerations: tuple[Toleration, ...] = (),
    node: str = "",
    age: float = 0,
    **more: object,
) -> PodFact:
    """An unschedulable pod, or one bound to `node`. Units: `cpu` in cores, `memory` in GiB, `age` in seconds."""
    name = name or f"pod-{next(_numbers):05}"
    fields: dict[str, object] = {
        "uid": name,
        "namespace": "default",
        "name": name,
        "requests": {"cpu": int(cpu * 1000), "memory": int(memory * GIB), "pods": 1, **(extra or {})},
        "created": NOW - timedelta(seconds=age),
        "node_name": node,
        "phase": "Running" if node else "Pending",
        "unschedulable": not node,
        "node_selector": selector or {},
        "required_terms": terms,
        "preferred_terms": tuple(
            PreferredTerm(weight=weight, expressions=expressions(text)) for text, weight in (preferred or {}).items()
        ),
        "tolerations": tolerations,
        **more,
    }
    return PodFact.model_validate(fields)


def pods(number: int, **same: object) -> list[PodFact]:
    return [pod(**same) for _ in range(number)]  # type: ignore[arg-type]


def instance_type(
    name: str,
    *,
    cpu: int = 8,
    memory: int = 16,
    price: float | None = None,
    zones: tuple[str, ...] = ZONES,
    capacity_types: tuple[str, ...] = ("on-demand",),
    extra: dict[str, int] | None = None,
    labels: dict[str, str] | None = None,
    available: bool = True,
    ebs_attachments: int | None = None,
) -> InstanceType:
    """An instance type with an overhead of 100 millicores and 512 MiB; the default price is 0.05 $/h per CPU."""
    cost = cpu * 0.05 if price is None else price
    all_labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "karpenter.k8s.aws/instance-family": name.partition(".")[0],
        "karpenter.k8s.aws/instance-cpu": str(cpu),
        **(labels or {}),
    }
    return InstanceType(
        name=name,
        labels={key: (value,) for key, value in all_labels.items()},
        capacity={"cpu": cpu * 1000, "memory": memory * GIB, "pods": 58, **(extra or {})},
        overhead={"cpu": 100, "memory": GIB // 2},
        ebs_attachments=ebs_attachments,
        offerings=tuple(
            Offering(
                zone=zone,
                zone_id=f"id-{zone}",
                capacity_type=capacity_type,
                price=cost * (0.4 if capacity_type == "spot" else 1),
                available=available,
            )
            for zone in zones
            for capacity_type in capacity_types
        ),
    )


COMMON = (
    instance_type("m.large", cpu=2, memory=8),
    instance_type("m.xlarge", cpu=4, memory=16),
    instance_type("m.2xlarge", cpu=8, memory=32),
)


def pool(name: str = "default", *requirements: str, **more: object) -> NodePoolFact:
    fields: dict[str, object] = {
        "name": name,
        "uid": f"uid-{name}",
        "ready": True,
        "node_class": "default",
        "requirements": expressions(*requirements),
        "hash": "7",
        **more,
    }
    return NodePoolFact.model_validate(fields)


def daemonset(name: str, of: PodFact) -> DaemonSetFact:
    return DaemonSetFact(uid=f"ds-{name}", namespace="kube-system", name=name, pod=of)


def node(name: str, *, cpu: float = 8, memory: float = 16, **more: object) -> NodeFact:
    """A ready node without a NodeClaim."""
    resources = {"cpu": int(cpu * 1000), "memory": int(memory * GIB), "pods": 58}
    fields: dict[str, object] = {
        "name": name,
        "provider_id": f"aws:///a/{name}",
        "labels": {ZONE: "a", INSTANCE_TYPE: "m.2xlarge", CAPACITY_TYPE: "on-demand"},
        "capacity": resources,
        "allocatable": resources,
        "ready": True,
        "ready_changed": NOW - timedelta(hours=1),
        "created": NOW - timedelta(hours=1),
        **more,
    }
    return NodeFact.model_validate(fields)


def nodeclaim(name: str, *, of: str = "default", on: NodeFact | None = None, **more: object) -> NodeClaimFact:
    """A NodeClaim before its launch, or an initialized one `on` a node."""
    fields: dict[str, object] = {
        "name": name,
        "uid": f"uid-{name}",
        "created": NOW - timedelta(seconds=30),
        "pool": of,
        "node_class": "default",
        "labels": {NODEPOOL: of},
    }
    if on is not None:
        ready = dict.fromkeys(("launched", "registered", "initialized"), True)
        amounts = {"capacity": on.capacity, "allocatable": on.allocatable}
        fields |= {"provider_id": on.provider_id, "node_name": on.name, **amounts, **ready}
    return NodeClaimFact.model_validate({**fields, **more})


def launched_nodeclaim(
    name: str, planned: PlannedNodeClaim, instance_type: InstanceType, zone: str = "a", **more: object
) -> NodeClaimFact:
    """The launched NodeClaim of a planned one."""
    labels = {key: values[0] for key, values in instance_type.labels.items()}
    fields: dict[str, object] = {
        "labels": {
            **planned.labels,
            **labels,
            INSTANCE_TYPE: instance_type.name,
            ZONE: zone,
            CAPACITY_TYPE: "on-demand",
        },
        "requirements": planned.requirements,
        "taints": planned.taints,
        "startup_taints": planned.startup_taints,
        "requests": planned.requests,
        "capacity": instance_type.capacity,
        "allocatable": instance_type.allocatable(),
        "provider_id": f"aws:///{zone}/i-{name}",
        "launched": True,
        **more,
    }
    return nodeclaim(name, of=planned.pool, **fields)  # type: ignore[arg-type]


def overlay(name: str, *requirements: str, **more: object) -> OverlayFact:
    return OverlayFact.model_validate({"name": name, "requirements": expressions(*requirements), **more})


def toleration(key: str = "", value: str = "", effect: str = "") -> Toleration:
    return Toleration(key=key, value=value, effect=effect, operator="Equal" if value else "Exists")


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Taint:
    return Taint(key=key, value=value, effect=effect)


EBS = "ebs.csi.aws.com"


def pvc(name: str, *, volume: str = "", of: str = "", **more: object) -> VolumeClaimFact:
    """A claim bound to `volume`, or an unbound one of StorageClass `of`."""
    fields: dict[str, object] = {"namespace": "default", "name": name, "volume": volume, "bound": bool(volume)}
    return VolumeClaimFact.model_validate({**fields, "storage_class": of, **more})


def volume(name: str, *terms: str | Term, driver: str = EBS, **more: object) -> VolumeFact:
    """A PersistentVolume. Each term has one or several expressions; without terms, every node can use it."""
    found = tuple(expressions(one) if isinstance(one, str) else one for one in terms)
    return VolumeFact.model_validate({"name": name, "driver": driver, "terms": found or None, **more})


def storage_class(name: str, *terms: str | Term, driver: str = EBS, waits: bool = True) -> StorageClassFact:
    found = tuple(expressions(one) if isinstance(one, str) else one for one in terms)
    return StorageClassFact(name=name, driver=driver, waits=waits, topologies=found)


def csi_node(name: str, limit: int, driver: str = EBS) -> CSINodeFact:
    return CSINodeFact(name=name, limits={driver: limit})


_KIND_AND_KEY: Final[Mapping[type, tuple[FactKind, str]]] = {
    PodFact: ("pod", "uid"),
    NodeFact: ("node", "name"),
    NodeClaimFact: ("claim", "name"),
    NodePoolFact: ("pool", "name"),
    DaemonSetFact: ("daemonset", "uid"),
    NamespaceFact: ("namespace", "name"),
    VolumeClaimFact: ("volume_claim", "key"),
    VolumeFact: ("volume", "name"),
    StorageClassFact: ("storage_class", "name"),
    CSINodeFact: ("csi_node", "name"),
    OverlayFact: ("overlay", "name"),
    BufferFact: ("buffer", "uid"),
    PodDisruptionBudgetFact: ("pod_budget", "key"),
}


def change(fact: Fact) -> Change:
    kind, key = _KIND_AND_KEY[type(fact)]
    return Change(kind=kind, key=getattr(fact, key), fact=fact)


class Cluster:
    """A cluster state with facts, which makes plans."""

    def __init__(
        self,
        *facts: Fact,
        instance_types: tuple[InstanceType, ...] = COMMON,
        settings: PlanSettings | None = None,
    ) -> None:
        self.state = ClusterState(settings)
        self.state.set_catalogue(Catalogue(by_node_class={"default": instance_types}))
        self.add(*facts)

    def add(self, *facts: Fact) -> None:
        self.state.apply([change(fact) for fact in facts])

    def plan(self, after: float = 0, **more: object) -> Plan:
        """Make a plan `after` seconds from NOW."""
        return self.state.provision(now=NOW + timedelta(seconds=after), **more)  # type: ignore[arg-type]

    def commit(self, plan: Plan, after: float = 0) -> dict[str, PlannedNodeClaim]:
        """Create the NodeClaims of the plan as the controller does: they have names but are not yet in the caches."""
        named = {f"claim-{next(_numbers)}": planned for planned in plan.claims}
        self.state.commit(named, now=NOW + timedelta(seconds=after))
        return named


def types_of(planned: PlannedNodeClaim) -> tuple[str, ...]:
    return next(one.values for one in planned.requirements if one.key == INSTANCE_TYPE)


def values_of(planned: PlannedNodeClaim, key: str) -> tuple[str, ...]:
    return next((one.values for one in planned.requirements if one.key == key), ())


def reasons(plan: Plan) -> list[str]:
    return [one.reason for one in plan.unschedulable]
