"""CEL expressions in `spec.kubelet` (Karpenter's gate NodeClassCEL), evaluated per instance type.

Units and rounding of the amounts are Karpenter's (reference 1.3). If an expression has no value for an instance type,
only that type cannot be launched.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypedDict

from tenure.aws.instancetype.capacity import Machine, pods_of
from tenure.aws.kubelet.config import Kubelet
from tenure.aws.kubelet.validation import expressions_of

if TYPE_CHECKING:
    from tenure.aws.kubelet.cel_expression import Expression


_MAX_CACHED: Final = 256
"""Number of compiled expressions; each takes some kilobytes."""


class ExpressionError(ValueError):
    """An expression is invalid or has no value; the message quotes it."""


class Variables(TypedDict):
    vcpus: int
    memory_mib: int
    default_enis: int
    ips_per_eni: int
    max_pods: int
    instance_type: str


@lru_cache(maxsize=_MAX_CACHED)
def compile_expression(text: str) -> "Expression":
    """Raises ExpressionError."""
    from tenure.aws.kubelet.cel_expression import Expression  # noqa: PLC0415 - the library takes 5 MB, and few classes have expressions

    return Expression(text)


_STEPS: Final[dict[str, tuple[int, str]]] = {
    "cpu": (10, "m"),
    "memory": (16, "Mi"),
    "ephemeral-storage": (1, "Gi"),
    "pid": (1, ""),
}
"""Amounts are rounded up to a multiple of (number, unit)."""
_MOST_PODS: Final = 2**31 - 1


class ComputedKubelet:
    """The expressions of one class; none if the gate is disabled."""

    def __init__(self, raw: Mapping[str, Any] | None, *, enabled: bool) -> None:
        self._raw = dict(raw or {})
        self._expressions = list(expressions_of(self._raw)) if enabled else []
        self._reserves = any(key for _, key, _ in self._expressions)

    def __bool__(self) -> bool:
        return bool(self._expressions)

    def evaluate(self, machine: Machine) -> dict[str, Any]:
        """`spec.kubelet` with the values of its expressions. Raises ExpressionError, prefixed with the field."""
        found = dict(self._raw)
        for field, _, text in self._expressions:
            if field == "maxPods":
                found["maxPods"] = _evaluate_max_pods(machine, text)
                machine = _with_kubelet(machine, max_pods=found["maxPods"])
        known = _machine_variables(machine) if self._reserves else None
        for field, key, text in self._expressions:
            if key and known is not None:
                found[field] = {**found[field], key: _evaluate_amount(known, field, key, text)}
        return found

    def apply_to(self, machine: Machine) -> tuple[Machine, Mapping[str, Any]]:
        """The machine and `spec.kubelet` with the values of the expressions. Raises ExpressionError."""
        if not self._expressions:
            return machine, self._raw
        filled = self.evaluate(machine)
        return replace(machine, kubelet=Kubelet.of(filled)), filled


def _evaluate_max_pods(machine: Machine, text: str) -> int:
    """Evaluate `maxPods`. Its variable `max_pods` is the default of the type."""
    pods = _evaluate_field(
        _machine_variables(_with_kubelet(machine, max_pods=None, pods_per_core=None)), "maxPods", text
    )
    if pods > _MOST_PODS:
        raise ExpressionError(
            f"maxPods: {text!r} returns {pods} for {machine.info.name}, expected at most {_MOST_PODS}"
        )
    return pods


def _evaluate_amount(known: Variables, field: str, key: str, text: str) -> str:
    step, unit = _STEPS[key]
    return f"{ceil(_evaluate_field(known, f'{field}.{key}', text) / step) * step}{unit}"


def _with_kubelet(machine: Machine, **kubelet: int | None) -> Machine:
    return replace(machine, kubelet=machine.kubelet.model_copy(update=kubelet))


def _machine_variables(machine: Machine) -> Variables:
    info = machine.info
    return Variables(
        vcpus=info.vcpus,
        memory_mib=info.memory_mib,
        default_enis=info.default_interfaces,
        ips_per_eni=info.ipv4_per_interface,
        max_pods=pods_of(machine),
        instance_type=info.name,
    )


def _evaluate_field(known: Variables, field: str, text: str) -> int:
    try:
        return compile_expression(text).evaluate(known)
    except ExpressionError as error:
        raise ExpressionError(f"{field}: {error}") from None
