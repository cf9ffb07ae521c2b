"""Pods of a template after admission: requests by LimitRange, and the additions of a RuntimeClass."""

from typing import Any

import pytest

from tenure.apis.quantity import QuantityError
from tenure.kube.facts.pod_admission import apply_admission_defaults, limit_range_rules, runtime_class_defaults
from tenure.kube.facts.pod_requests import pod_requests

Json = dict[str, Any]
KATA: Json = {
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "2", "memory": "1Gi"}},
    "scheduling": {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "runtime", "operator": "Exists"}]},
}


def limit_range(kind: str = "Container", **fields: Json) -> Json:
    return {"metadata": {"name": "defaults", "namespace": "apps"}, "spec": {"limits": [{"type": kind, **fields}]}}


def spec_of(resources: Json | None = None, **spec: Any) -> Json:
    return {
        "containers": [{"name": "main", "image": "none", **({"resources": resources} if resources else {})}],
        **spec,
    }


def requested_cpu(spec: Json, *limit_ranges: Json) -> int:
    admitted = apply_admission_defaults(spec, map(limit_range_rules, limit_ranges), {})
    return pod_requests(admitted, limits_too=True).get("cpu", 0)


@pytest.mark.parametrize(
    ("resources", "fields", "cpu"),
    [
        (None, {"defaultRequest": {"cpu": "1"}}, 1000),
        (None, {"defaultRequest": {"cpu": "1"}, "default": {"cpu": "4"}}, 1000),
        (None, {"default": {"cpu": "4"}}, 4000),
        (None, {"max": {"cpu": "5"}}, 5000),
        (None, {"min": {"cpu": "500m"}}, 500),
        (None, {"max": {"cpu": "5"}, "min": {"cpu": "500m"}, "default": {"cpu": "2"}}, 2000),
        ({"requests": {"cpu": "100m"}}, {"defaultRequest": {"cpu": "1"}}, 100),
        ({"limits": {"cpu": "3"}}, {"defaultRequest": {"cpu": "1"}}, 3000),
        (None, {"kind": "Pod", "max": {"cpu": "5"}}, 0),
    ],
)
def test_limit_range_fills_missing_requests(resources: Json | None, fields: Json, cpu: int) -> None:
    assert requested_cpu(spec_of(resources), limit_range(**fields)) == cpu


def test_limit_range_applies_to_each_container() -> None:
    spec = spec_of()
    spec["containers"].append({"name": "second", "image": "none"})
    spec["initContainers"] = [{"name": "sidecar", "image": "none", "restartPolicy": "Always"}]
    assert requested_cpu(spec, limit_range(defaultRequest={"cpu": "1"})) == 3000


def test_first_of_several_limit_ranges_decides() -> None:
    one, other = limit_range(defaultRequest={"cpu": "1"}), limit_range(defaultRequest={"cpu": "2", "memory": "1Gi"})
    admitted = apply_admission_defaults(spec_of(), map(limit_range_rules, (one, other)), {})
    assert pod_requests(admitted) == {"cpu": 1000, "memory": 1 << 30, "pods": 1}


def test_runtime_class_adds_overhead_selector_and_tolerations() -> None:
    classes = {"kata": runtime_class_defaults(KATA)}
    spec = spec_of({"requests": {"cpu": "1500m"}}, runtimeClassName="kata", nodeSelector={"team": "a"})
    admitted = apply_admission_defaults(spec, (), classes)
    assert pod_requests(admitted) == {"cpu": 3500, "memory": 1 << 30, "pods": 1}
    assert admitted["nodeSelector"] == {"runtime": "kata", "team": "a"}
    assert admitted["tolerations"] == [{"key": "runtime", "operator": "Exists"}]
    for unchanged in (spec_of(), spec_of(runtimeClassName="unknown")):
        assert apply_admission_defaults(unchanged, (), classes) == unchanged


def test_invalid_amounts_are_errors() -> None:
    with pytest.raises(QuantityError):
        limit_range_rules(limit_range(defaultRequest={"cpu": "much"}))
    with pytest.raises(QuantityError):
        runtime_class_defaults({**KATA, "overhead": {"podFixed": {"cpu": "much"}}})
