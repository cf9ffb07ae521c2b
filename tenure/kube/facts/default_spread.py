"""Default topology spread of pods without constraints of their own (reference 1.15, 7.1).

The selector of a pod has the selectors of its Services and that of its controller, as in kube-scheduler. Pods that
neither selects stay without constraints.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from tenure.kube.facts.pod_topology import selector_expressions, spread_constraint
from tenure.model.facts import Expression, PodFact, Selector, SpreadConstraint

Json = Mapping[str, Any]
KINDS: Final = ("Service", "ReplicaSet", "StatefulSet", "ReplicationController")
"""Kinds whose selectors count."""

_SpreadsOf = Callable[[Selector], tuple[SpreadConstraint, ...]]


class DefaultSpread:
    """Call `update` with each object of `KINDS`; `apply` is idempotent."""

    def __init__(self, constraints: Iterable[Json] = ()) -> None:
        """`constraints`: as in a pod, without a selector."""
        self._constraints = [SpreadConstraint.model_validate(spread_constraint(one, {})) for one in constraints]
        self._services: dict[str, dict[str, Mapping[str, str]]] = {}
        """Selectors by namespace and name."""
        self._controllers: dict[str, tuple[bool, Selector]] = {}
        """By UID: whether its labels replace those of Services, and its selector."""
        self._changed_namespaces, self._changed_owners = set[str](), set[str]()
        self._spreads_of: _SpreadsOf = lru_cache(maxsize=4096)(self._with_selector)

    @property
    def is_on(self) -> bool:
        return bool(self._constraints)

    def update(self, kind: str, found: Json, *, is_deleted: bool = False) -> None:
        metadata, selector = found["metadata"], None if is_deleted else (found.get("spec") or {}).get("selector")
        if kind == "Service":
            self._update_service(metadata["namespace"], metadata["name"], selector)
        else:
            self._update_controller(kind, metadata["uid"], selector)

    def drain_concerned(self, pods: Iterable[PodFact]) -> list[PodFact]:
        """The pods whose selector may have changed since the last call."""
        namespaces, owners = self._changed_namespaces, self._changed_owners
        if not namespaces and not owners:
            return []
        self._changed_namespaces, self._changed_owners = set(), set()
        return [one for one in pods if one.namespace in namespaces or one.owner_uid in owners]

    def apply(self, pod: PodFact) -> PodFact:
        has_own = any(not one.is_default for one in pod.spreads)
        if not self._constraints or has_own or pod.daemonset or pod.mirror:
            return pod
        selector = self._selector_of(pod)
        spreads = self._spreads_of(selector) if selector else ()
        return pod if spreads == pod.spreads else pod.model_copy(update={"spreads": spreads})

    def _selector_of(self, pod: PodFact) -> Selector:
        services = self._services.get(pod.namespace, {})
        exact: dict[str, str] = {}
        for _, selector in sorted(services.items()):
            if selector.items() <= pod.labels.items():
                exact |= selector
        replaces, expressions = self._controllers.get(pod.owner_uid, (False, ()))
        if replaces:
            exact |= {one.key: one.values[0] for one in expressions}
            expressions = ()
        return (*_exact_expressions(exact), *expressions)

    def _with_selector(self, selector: Selector) -> tuple[SpreadConstraint, ...]:
        return tuple(one.model_copy(update={"selector": selector, "is_default": True}) for one in self._constraints)

    def _update_service(self, namespace: str, name: str, selector: Mapping[str, str] | None) -> None:
        """A Service without a selector selects nothing, and an empty one adds nothing. Raises an error for a selector
        that is no map of strings, since it would be raised for each pod of the namespace."""
        _exact_expressions(selector or {})
        named = self._services.setdefault(namespace, {})
        if (named.get(name) or None) != (selector or None):
            self._changed_namespaces.add(namespace)
        if selector:
            named[name] = selector
        else:
            named.pop(name, None)
        if not named:
            del self._services[namespace]

    def _update_controller(self, kind: str, uid: str, raw: Json | None) -> None:
        replaces = kind == "ReplicationController"
        expressions = selector_expressions({"matchLabels": raw} if replaces else raw) if raw else None
        old, new = self._controllers.get(uid), None
        if expressions:
            new = (replaces, tuple(Expression.model_validate(one) for one in expressions))
            self._controllers[uid] = new
        else:
            self._controllers.pop(uid, None)
        if old != new:
            self._changed_owners.add(uid)


def _exact_expressions(labels: Mapping[str, str]) -> Sequence[Expression]:
    return [Expression(key=key, operator="In", values=(value,)) for key, value in sorted(labels.items())]
