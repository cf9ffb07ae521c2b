"""Devices of Dynamic Resource Allocation in facts: those that Nodes publish, as amounts that plans treat as resources.

`device_demands` has the rule for amounts.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tenure.apis.labels import INSTANCE_TYPE
from tenure.controller.cache.device_demands import Demand, DemandGroups, Templates, build_groups, match_templates
from tenure.controller.cache.tables import discard_member, set_or_remove
from tenure.kube.client import resources
from tenure.kube.client.list_watch import Delta
from tenure.kube.facts import resource_claims as claims
from tenure.kube.facts.resource_claims import PREFIX, Claim, ClaimError, ClaimReference, ClaimSpec, DeviceClass
from tenure.kube.facts.resource_slices import (
    Device,
    DeviceKey,
    PoolKey,
    Slice,
    build_variables,
    list_published_drivers,
    resource_slice,
    usable_devices,
)
from tenure.model.facts import NodeClaimFact, NodeFact, PodFact
from tenure.model.instance_types import Catalogue, DevicesByNodeClass, DeviceTemplate, TypeDevices
from tenure.model.nodeclaim.names import parse_dra_drivers

Json = Mapping[str, Any]
Amounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Resolution:
    """The claims of one pod."""

    demands: Mapping[Demand, int] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class _ClaimingPod:
    """A pod that is neither finished nor deleted."""

    uid: str
    namespace: str
    node: str
    references: tuple[ClaimReference, ...]
    problem: str = ""


class Devices:
    """The facts while pods with ResourceClaims are refused: pods, Nodes and NodeClaims have no devices."""

    devices_of_types: DevicesByNodeClass
    """The amounts that pods request; empty without such pods or templates."""

    def __init__(self) -> None:
        self.devices_of_types = {}

    def has_claims(self, pod: Json) -> bool:
        """Whether `observe_pod` must read the pod."""
        return False

    def observe_pod(self, pod: Json) -> Json:
        """The pod as if it had no claims. `apply_to_pod` adds its devices to its fact."""
        return pod

    def forget_pod(self, uid: str) -> None:
        pass

    def observe_node(self, name: str) -> None:
        """The Node is new or different."""

    def on_delta(self, plural: str, delta: Delta) -> None:
        """Raises KeyError for an object without its required fields; the last known form stays."""

    def set_catalogue(self, catalogue: Catalogue) -> bool:
        """Use the device templates of these instance types. Returns whether they are different."""
        return False

    def drain(self) -> tuple[frozenset[str], frozenset[str]]:
        """UIDs of the pods and names of the Nodes whose facts may have changed since the last call."""
        return frozenset(), frozenset()

    def apply_to_pod(self, pod: PodFact) -> PodFact:
        """The pod with its devices, or the reason for which its claims cannot be planned. Another reason stays."""
        return pod

    def apply_to_node(self, node: NodeFact) -> NodeFact:
        """The Node with its free devices. Bound pods whose devices are not known yet use some of them."""
        return node

    def apply_to_nodeclaim(self, nodeclaim: NodeClaimFact, node: str) -> NodeClaimFact:
        """The NodeClaim with the devices that its Node will have, and the drivers that have not published them.

        `node`: the name of its Node; empty without one.
        """
        return nodeclaim


class DeviceIndex(Devices):
    """Device facts of Nodes and pods. After a change, `drain` names the pods and Nodes whose facts may be different."""

    def __init__(self) -> None:
        super().__init__()
        self._pods: dict[str, _ClaimingPod] = {}
        self._resolved: dict[str, _Resolution] = {}
        self._claims: dict[str, Claim] = {}
        self._templates: dict[str, ClaimSpec] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._slices: dict[str, Slice] = {}
        self._slices_by_node: dict[str, dict[str, Slice]] = {}
        self._nodes_by_pool: dict[PoolKey, set[str]] = {}
        self._users: dict[str, set[str]] = {}
        """By claim: UIDs of pods that reference it."""
        self._by_node: dict[str, set[str]] = {}
        """By Node: UIDs of the bound pods with claims."""
        self._devices: dict[str, list[Device]] = {}
        """Usable devices by Node."""
        self._allocated: Counter[DeviceKey] = Counter()
        self._groups = DemandGroups()
        self._demands: Counter[Demand] = Counter()
        """The number of pods with each demand."""
        self._grouped: frozenset[Demand] = frozenset()
        self._types: dict[str, dict[str, Templates]] = {}
        """By EC2NodeClass and instance type."""
        self._template_devices: dict[tuple[str, str], Device] = {}
        """By driver and pool, so that results of selectors are kept."""
        self._stale_groups = False
        self._changed_pods: set[str] = set()
        self._changed_nodes: set[str] = set()

    # --- changes ---

    def has_claims(self, pod: Json) -> bool:
        return bool(pod["spec"].get("resourceClaims"))

    def observe_pod(self, pod: Json) -> Json:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        phase = (pod.get("status") or {}).get("phase")
        self._set_pod(uid, None if phase in ("Succeeded", "Failed") else _read_claiming_pod(pod))
        return {**pod, "spec": claims.without_claims(spec)}

    def forget_pod(self, uid: str) -> None:
        self._set_pod(uid, None)

    def observe_node(self, name: str) -> None:
        if name in self._devices or name in self._by_node:
            self._changed_nodes.add(name)

    def on_delta(self, plural: str, delta: Delta) -> None:
        metadata = delta.object["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
        handlers: Mapping[str, Callable[[str, Json | None], None]] = {
            resources.RESOURCE_SLICES.plural: self._set_slice,
            resources.RESOURCE_CLAIMS.plural: self._set_claim,
            resources.RESOURCE_CLAIM_TEMPLATES.plural: self._set_template,
            resources.DEVICE_CLASSES.plural: self._set_class,
        }
        handlers[plural](key, None if delta.is_deleted else delta.object)

    def set_catalogue(self, catalogue: Catalogue) -> bool:
        templates = {
            node_class: found
            for node_class, types in catalogue.by_node_class.items()
            if (
                found := {one.name: self._read_templates(one.device_templates) for one in types if one.device_templates}
            )
        }
        is_changed = templates != self._types
        self._stale_groups |= is_changed
        self._types = templates
        return is_changed

    def _read_templates(self, templates: Iterable[DeviceTemplate]) -> Templates:
        return tuple((self._template_device(one), one.count) for one in templates)

    def _template_device(self, template: DeviceTemplate) -> Device:
        key = template.driver, template.pool
        known = self._template_devices.get(key)
        if known is None:
            variables = build_variables(template.driver, template.model_dump(include={"attributes", "capacity"}))
            known = self._template_devices[key] = Device((*key, template.name), variables)
        return known

    def _set_pod(self, uid: str, new: _ClaimingPod | None) -> None:
        old = self._pods.get(uid)
        if new == old:
            return
        for one in (old, new):
            for claim in filter(None, [reference.claim for reference in one.references] if one else ()):
                users = self._users.setdefault(claim, set())
                (users.add if one is new else users.discard)(uid)
                self._changed_pods |= users
                if not users:
                    del self._users[claim]
            if one is not None and one.node:
                bound = self._by_node.setdefault(one.node, set())
                (bound.add if one is new else bound.discard)(uid)
                self._changed_nodes.add(one.node)
                if not bound:
                    del self._by_node[one.node]
        set_or_remove(self._pods, uid, new)
        self._changed_pods.add(uid)

    def _set_slice(self, name: str, raw: Json | None) -> None:
        old = self._slices.get(name)
        if old is not None and raw is not None and old.version == raw["metadata"].get("resourceVersion"):
            return
        new = resource_slice(raw) if raw is not None else None
        set_or_remove(self._slices, name, new)
        for one in (old, new):
            if one is not None:
                by_name = self._slices_by_node.setdefault(one.node, {})
                set_or_remove(by_name, name, one if one is new else None)
                if any(other.pool == one.pool for other in by_name.values()):
                    self._nodes_by_pool.setdefault(one.pool, set()).add(one.node)
                else:
                    discard_member(self._nodes_by_pool, one.pool, one.node)
                self._devices[one.node] = usable_devices(by_name.values()) if one.node else []
                self._changed_nodes.add(one.node)
                if not by_name:
                    del self._slices_by_node[one.node], self._devices[one.node]
        self._stale_groups = True

    def _set_claim(self, key: str, raw: Json | None) -> None:
        new = claims.resource_claim(raw) if raw is not None else None
        old = self._claims.get(key)
        if new == old:
            return
        set_or_remove(self._claims, key, new)
        before, after = old.devices if old else (), new.devices if new else ()
        self._allocated.subtract(before)
        self._allocated.update(after)
        for device in {*before, *after}:
            if not self._allocated[device]:
                del self._allocated[device]
            self._changed_nodes |= self._nodes_by_pool.get(device[:2], set())
        users = self._users.get(key, set())
        self._changed_pods |= users
        self._changed_nodes |= {pod.node for uid in users if (pod := self._pods.get(uid)) and pod.node}

    def _set_template(self, key: str, raw: Json | None) -> None:
        set_or_remove(self._templates, key, None if raw is None else claims.claim_spec(raw["spec"].get("spec") or {}))
        self._changed_pods |= {
            uid for uid, pod in self._pods.items() if any(one.template == key for one in pod.references)
        }

    def _set_class(self, name: str, raw: Json | None) -> None:
        set_or_remove(self._classes, name, None if raw is None else claims.device_class(raw))
        self._changed_pods |= self._pods.keys()

    def drain(self) -> tuple[frozenset[str], frozenset[str]]:
        if not (self._changed_pods or self._changed_nodes or self._stale_groups):
            return frozenset(), frozenset()
        for uid in self._changed_pods:
            pod = self._pods.get(uid)
            new = self._resolve(pod) if pod else None
            self._demands.subtract(self._resolved[uid].demands.keys() if uid in self._resolved else ())
            self._demands.update(new.demands.keys() if new else ())
            set_or_remove(self._resolved, uid, new)
            self._changed_nodes |= {pod.node} if pod else set()
        self._demands += Counter()
        if self._stale_groups or self._demands.keys() != self._grouped:
            self._grouped, self._stale_groups = frozenset(self._demands), False
            types = {one for types in self._types.values() for one in types.values()}
            self._groups = build_groups(self._grouped, self._devices.values(), types)
            used = {one.expressions for one in self._grouped}
            for device in chain(*self._devices.values(), self._template_devices.values()):
                device.retain_results(used)
            self._update_types(types)
            self._changed_pods |= self._pods.keys()
            self._changed_nodes |= self._devices.keys()
        found = frozenset(self._changed_pods), frozenset(self._changed_nodes - {""})
        self._changed_pods, self._changed_nodes = set(), set()
        return found

    def _update_types(self, types: Iterable[Templates]) -> None:
        found = {one: self._devices_of_type(one) for one in types}
        by_class = {
            node_class: {name: found[one] for name, one in types.items() if found[one].amounts}
            for node_class, types in self._types.items()
        }
        self.devices_of_types = {name: one for name, one in by_class.items() if one}

    def _devices_of_type(self, templates: Templates) -> TypeDevices:
        amounts, drivers = Counter[str](), dict[str, set[str]]()
        satisfied, _ = match_templates(templates, self._groups.amounts)
        for demands, (device, count) in zip(satisfied, templates, strict=True):
            for name in {name for one in demands for name in self._groups.amounts[one]}:
                amounts[name] += count
            for one in demands:
                drivers.setdefault(one.name, set()).add(device.key[0])
        return TypeDevices(
            amounts=dict(sorted(amounts.items())),
            drivers={name: tuple(sorted(many)) for name, many in sorted(drivers.items())},
        )

    # --- facts ---

    def apply_to_pod(self, pod: PodFact) -> PodFact:
        resolved = self._resolved.get(pod.uid, _Resolution())
        other = "" if pod.unplannable.startswith(PREFIX) else pod.unplannable
        problem = resolved.problem or next(filter(None, map(self._groups.problems.get, resolved.demands)), "")
        devices: Amounts = ()
        if not (other or problem):
            devices = tuple(sorted(self._amounts(resolved.demands).items()))
        if (pod.unplannable, pod.devices) == (other or problem, devices):
            return pod
        return pod.model_copy(update={"unplannable": other or problem, "devices": devices})

    def apply_to_node(self, node: NodeFact) -> NodeFact:
        free = [one for one in self._devices.get(node.name, ()) if self._allocated[one.key] <= 0]
        amounts = Counter[str]()
        for device in free:
            amounts.update(self._amounts_of(device))
        for uid in self._by_node.get(node.name, ()):
            if not self._has_allocated_claims(self._pods[uid]):
                amounts.subtract(self._amounts(self._resolved.get(uid, _Resolution()).demands))
        devices = tuple(sorted((name, max(0, amount)) for name, amount in amounts.items()))
        return node if devices == node.devices else node.model_copy(update={"devices": devices})

    def apply_to_nodeclaim(self, nodeclaim: NodeClaimFact, node: str) -> NodeClaimFact:
        drivers = () if nodeclaim.initialized else parse_dra_drivers(nodeclaim.annotations)
        published = list_published_drivers(self._slices_by_node.get(node, {}).values()) if drivers else set()
        missing = tuple(one for one in drivers if one not in published)
        devices = tuple(sorted(self._expected_amounts(nodeclaim, missing).items())) if missing else ()
        if (nodeclaim.devices, nodeclaim.missing_drivers) == (devices, missing):
            return nodeclaim
        return nodeclaim.model_copy(update={"devices": devices, "missing_drivers": missing})

    def _expected_amounts(self, nodeclaim: NodeClaimFact, drivers: Collection[str]) -> Mapping[str, int]:
        """The amounts that every instance type has which the NodeClaim may get."""
        requirements = nodeclaim.requirements
        named = next((one.values for one in requirements if (one.key, one.operator) == (INSTANCE_TYPE, "In")), ())
        types = (nodeclaim.labels[INSTANCE_TYPE],) if INSTANCE_TYPE in nodeclaim.labels else named
        templates = self._types.get(nodeclaim.node_class, {})
        possible = [
            self._devices_of_type(tuple(one for one in templates.get(name, ()) if one[0].key[0] in drivers)).amounts
            for name in types
        ]
        first = possible[0] if possible else {}
        least = {name: min(one.get(name, 0) for one in possible) for name in first}
        return {name: amount for name, amount in least.items() if amount}

    def _amounts_of(self, device: Device) -> set[str]:
        """The amounts that the device is one of."""
        matching = (amounts for one, amounts in self._groups.amounts.items() if device.matches(one.expressions))
        return {name for amounts in matching for name in amounts}

    def _amounts(self, demands: Mapping[Demand, int]) -> dict[str, int]:
        found = Counter[str]()
        for demand, count in demands.items():
            for name in self._groups.amounts.get(demand, ()):
                found[name] += count
        return dict(found)

    def _has_allocated_claims(self, pod: _ClaimingPod) -> bool:
        known = [self._claims.get(one.claim) for one in pod.references]
        return all(one is not None and one.is_allocated for one in known)

    def _resolve(self, pod: _ClaimingPod) -> _Resolution:
        try:
            if pod.problem:
                raise ClaimError(pod.problem)
            demands = Counter[Demand]()
            for reference in pod.references:
                for request in self._find_spec(pod, reference).requests:
                    demands[self._find_demand(request)] += request.count
        except ClaimError as error:
            text = str(error)
            return _Resolution(problem=text if text.startswith(PREFIX) else f"{PREFIX}: {text}")
        except Exception as error:
            return _Resolution(problem=f"{PREFIX}: they cannot be read: {type(error).__name__}: {error}")
        return _Resolution(dict(demands))

    def _find_spec(self, pod: _ClaimingPod, reference: ClaimReference) -> ClaimSpec:
        """The claim of a pending pod. A bound pod counts with the claim that its successor gets."""
        claim = self._claims.get(reference.claim)
        if claim is not None and not pod.node and claim.is_allocated:
            raise ClaimError(
                f"ResourceClaim {reference.claim} is allocated: the pod can run only where its devices are"
            )
        if reference.template and (pod.node or claim is None):
            kind, name, found = "ResourceClaimTemplate", reference.template, self._templates.get(reference.template)
        else:
            kind, name, found = "ResourceClaim", reference.claim, claim.spec if claim else None
        if found is None:
            raise ClaimError(f"{kind} {name} does not exist")
        if not reference.template and claim is not None:
            if claim.is_deleting:
                raise ClaimError(f"ResourceClaim {name} is being deleted")
            if len({*self._users.get(name, ()), *claim.pods}) > 1:
                raise ClaimError(f"ResourceClaim {name} is shared by several pods, which Tenure does not support")
        if found.problem:
            raise ClaimError(f"{kind} {name}: {found.problem}")
        return found

    def _find_demand(self, request: claims.DeviceRequest) -> Demand:
        known = self._classes.get(request.device_class)
        if known is None:
            raise ClaimError(f"DeviceClass {request.device_class} does not exist")
        if known.problem:
            raise ClaimError(f"DeviceClass {request.device_class}: {known.problem}")
        return Demand(request.device_class, request.selectors, (*known.selectors, *request.selectors))


def _read_claiming_pod(pod: Json) -> _ClaimingPod:
    metadata, node = pod["metadata"], pod["spec"].get("nodeName") or ""
    try:
        return _ClaimingPod(metadata["uid"], metadata["namespace"], node, claims.claim_references(pod))
    except ClaimError as error:
        return _ClaimingPod(metadata["uid"], metadata["namespace"], node, (), str(error))
    except Exception as error:
        problem = f"{PREFIX}: it cannot be read: {type(error).__name__}"
        return _ClaimingPod(metadata["uid"], metadata["namespace"], node, (), problem)
