"""Expressions in spec.kubelet: type checks, evaluation per instance type, and Karpenter's units and rounding."""

import json
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.feature_gates import FeatureGate
from tenure.aws.instancetype.resolver import resolve_types
from tenure.aws.kubelet.expressions import ComputedKubelet, ExpressionError, Variables, compile_expression
from tenure.aws.nodeclass.validation import why_not_evaluated
from tests.support.aws.builders import SETTINGS, build_nodeclass, build_type_info, machine, region, resolved_status

FACTS = Variables(vcpus=4, memory_mib=16384, default_enis=4, ips_per_eni=15, max_pods=58, instance_type="m5.xlarge")
GATED = SETTINGS.model_copy(update={"feature_gates": {FeatureGate.NODECLASS_CEL: True}})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("110", 110),
        ("max_pods * 2", 116),
        ("min(110, max_pods)", 58),
        ("max(110, max_pods)", 110),
        ("max(1.5, 2.5)", 2),
        ("min(1, 2.5)", 1),
        ("max(vcpus, 4.9)", 4),
        ("double(vcpus) * 1.5 + 0.99", 6),
        ("vcpus > 2 ? 200 : 100", 200),
        ("instance_type.startsWith('m5.') ? 10 : 20", 10),
        ("int(double(memory_mib) * 0.05)", 819),
        ("default_enis * (ips_per_eni - 1) + 2", 58),
        ("[10, 20, 30].filter(n, n > vcpus * 4)[0]", 20),
        ("memory_mib / 1000", 16),
        ("0", 0),
    ],
)
def test_expression_evaluates_to_whole_number(text: str, value: int) -> None:
    assert compile_expression(text).evaluate(FACTS) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vcpus +", "Syntax error"),
        ("cores * 2", "undeclared reference to 'cores'"),
        ("vcpus * 1.5", "no matching overload"),
        ("max(1, 2, 3)", "'max'"),
        ("'many'", "returns a string"),
        ("vcpus > 2", "returns a bool"),
        ("vcpus.shutdown()", "undeclared reference to 'shutdown'"),
        ("", "Syntax error"),
        ("10Gib", "Syntax error"),
    ],
)
def test_invalid_expression_is_rejected(text: str, expected: str) -> None:
    with pytest.raises(ExpressionError) as error:
        compile_expression(text)
    assert expected in str(error.value) and repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vcpus - 10", "zero or more"),
        ("10 / (vcpus - 4)", "divide by zero"),
        ("10 % (vcpus - 4)", "modulus by zero"),
        ("1.0 / 0.0", "finite"),
        ("0.0 / 0.0", "finite"),
        ("9223372036854775807 + vcpus", "overflow"),
        ("[1, 2][vcpus]", "ndex"),
        ("int('many')", "int"),
        ("dyn('many')", "many"),
    ],
)
def test_expression_without_value_names_instance_type(text: str, expected: str) -> None:
    with pytest.raises(ExpressionError) as error:
        compile_expression(text).evaluate(FACTS)
    assert expected in str(error.value) and "m5.xlarge" in str(error.value)


@pytest.mark.parametrize(
    ("key", "text", "amount"),
    [
        ("cpu", "vcpus * 30 + 1", "130m"),
        ("cpu", "vcpus > 0 ? 100.9 : 0.0", "100m"),
        ("cpu", "0 + 0", "0m"),
        ("memory", "255 + 11 * max_pods", "896Mi"),
        ("memory", "vcpus * 16", "64Mi"),
        ("ephemeral-storage", "vcpus / 3", "1Gi"),
        ("pid", "vcpus * 1000", "4000"),
    ],
)
def test_reserved_amounts_are_rounded_up_in_their_unit(key: str, text: str, amount: str) -> None:
    for field in ("kubeReserved", "systemReserved"):
        assert resolve_kubelet("m5.xlarge", {field: {key: text}}) == {field: {key: amount}}


def test_max_pods_is_default_in_its_own_expression_and_result_in_others() -> None:
    found = resolve_kubelet(
        "m5.xlarge", {"maxPods": "max_pods / 2", "kubeReserved": {"memory": "max_pods * 16", "cpu": "70m"}}
    )
    assert found == {"maxPods": 29, "kubeReserved": {"memory": "464Mi", "cpu": "70m"}}


def test_quantities_are_not_expressions() -> None:
    written = {"maxPods": 20, "kubeReserved": {"cpu": "100m", "memory": "1Gi"}, "systemReserved": {"pid": "100"}}
    assert not ComputedKubelet(written, enabled=True)


def test_too_large_max_pods_is_rejected() -> None:
    with pytest.raises(ExpressionError, match=r"maxPods: '3000000000' returns 3000000000 for m5.xlarge"):
        resolve_kubelet("m5.xlarge", {"maxPods": "3000000000"})


def test_types_have_their_own_evaluated_amounts() -> None:
    one = build_nodeclass(
        resolved_status(),
        kubelet={"maxPods": "vcpus * 10", "systemReserved": {"cpu": "vcpus * 100"}, "kubeReserved": {"memory": "512"}},
    )
    found = resolve_types(region("m5.large", "m5.xlarge"), one, GATED)
    large, extra = found.by_name["m5.large"], found.by_name["m5.xlarge"]
    assert (large.capacity[labels.PODS], extra.capacity[labels.PODS]) == (20, 40)
    assert extra.capacity[labels.CPU] - extra.allocatable()[labels.CPU] == 400 + 80
    assert json.loads(json.dumps(found.kubelets["m5.large"])) == {
        "maxPods": 20,
        "systemReserved": {"cpu": "200m"},
        "kubeReserved": {"memory": "512"},
    }


def test_disabled_gate_ignores_expressions() -> None:
    one = build_nodeclass(resolved_status(), kubelet={"maxPods": "vcpus * 10"})
    found = resolve_types(region("m5.large"), one, SETTINGS)
    assert found.by_name["m5.large"].capacity[labels.PODS] == 29
    assert found.kubelets == {}


def test_type_without_value_is_unavailable() -> None:
    one = build_nodeclass(resolved_status(), kubelet={"maxPods": "100 / (vcpus - 2)"})
    found = resolve_types(region("m5.large", "m5.xlarge"), one, GATED)
    available = {name: any(o.available for o in one.offerings) for name, one in found.by_name.items()}
    assert available == {"m5.large": False, "m5.xlarge": True}


def test_validation_names_types_without_value() -> None:
    names = ("m5.large", "m5.xlarge", "c5.large")
    problem = kubelet_problem({"kubeReserved": {"cpu": "100 / (vcpus - 2)"}}, *names)
    assert problem is not None
    assert problem[0] == "KubeletExpressionEvaluationFailed"
    assert problem[1].startswith("spec.kubelet.kubeReserved.cpu: ")
    assert "for c5.large: divide by zero" in problem[1] and "1 more types" in problem[1]
    assert kubelet_problem({"kubeReserved": {"cpu": "100 / vcpus"}}, *names) is None


def resolve_kubelet(name: str, kubelet: dict[str, Any]) -> dict[str, Any]:
    return ComputedKubelet(kubelet, enabled=True).evaluate(machine(name, kubelet=kubelet))


def kubelet_problem(kubelet: dict[str, Any], *names: str) -> tuple[str, str] | None:
    return why_not_evaluated(
        ComputedKubelet(kubelet, enabled=True),
        {name: build_type_info(name) for name in names},
        lambda each: machine(each.name, kubelet=kubelet),
    )
