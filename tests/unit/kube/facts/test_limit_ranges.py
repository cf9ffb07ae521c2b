"""Pods that the API server rejects because of a LimitRange, with its messages."""

from typing import Any

import pytest

from tenure.kube.facts.pod_admission import apply_admission_defaults, explain_rejection, limit_range_rules

Json = dict[str, Any]


def limit_range(kind: str, **fields: Json) -> Json:
    return {"metadata": {"name": "bounds", "namespace": "apps"}, "spec": {"limits": [{"type": kind, **fields}]}}


def container(requests: Json | None = None, limits: Json | None = None, **more: Any) -> Json:
    return {"name": "main", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def reason(spec: Json, *limit_ranges: Json) -> str:
    rules = [limit_range_rules(one) for one in limit_ranges]
    return explain_rejection("web-0", apply_admission_defaults(spec, rules, {}), rules)


SMALL = container({"cpu": "100m"}, {"cpu": "500m"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min": {"cpu": "50m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "5"}}, ""),
        ({"min": {"cpu": "0.2"}}, "minimum cpu usage per Container is 200m, but request is 100m"),
        ({"max": {"cpu": "400m"}}, "maximum cpu usage per Container is 400m, but limit is 500m"),
        (
            {"maxLimitRequestRatio": {"cpu": "4500m"}},
            "cpu max limit to request ratio per Container is 4500m, but provided ratio is 5.000000",
        ),
        (
            {"maxLimitRequestRatio": {"memory": "2"}},
            "memory max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        (
            {"maxLimitRequestRatio": {"memory": "2"}, "defaultRequest": {"memory": "1Gi"}},
            "memory max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
        (
            {"min": {"memory": "1Gi"}, "max": {"memory": "2Gi"}, "default": {"memory": "512Mi"}},
            "minimum memory usage per Container is 1Gi, but request is 512Mi",
        ),
    ],
)
def test_container_outside_bounds_is_forbidden(fields: Json, message: str) -> None:
    expected = f'pods "web-0" is forbidden: {message}' if message else ""
    assert reason({"containers": [SMALL]}, limit_range("Container", **fields)) == expected


def test_ratio_of_amounts_that_no_float_can_hold_is_compared() -> None:
    spec = {"containers": [container({"cpu": "1"}, {"cpu": "1e400"})]}
    assert "but provided ratio is 1" in reason(spec, limit_range("Container", maxLimitRequestRatio={"cpu": "1e399"}))
    assert not reason(spec, limit_range("Container", maxLimitRequestRatio={"cpu": "1e401"}))


def test_default_limit_below_request_is_invalid() -> None:
    spec = {"containers": [SMALL, container({"cpu": "3"})]}
    assert reason(spec, limit_range("Container", max={"cpu": "2"})) == (
        'Pod "web-0" is invalid: spec.containers[1].resources.requests: Invalid value: "3": '
        "must be less than or equal to cpu limit of 2"
    )


def test_init_containers_have_the_same_bounds() -> None:
    spec = {"containers": [SMALL], "initContainers": [container({"cpu": "2"}, {"cpu": "2"})]}
    assert reason(spec, limit_range("Container", max={"cpu": "1"})).endswith("is 1, but limit is 2")


@pytest.mark.parametrize(
    ("spec", "fields", "message"),
    [
        ({"containers": [SMALL, SMALL]}, {"max": {"cpu": "1"}, "min": {"cpu": "200m"}}, ""),
        (
            {"containers": [SMALL, SMALL, SMALL]},
            {"max": {"cpu": "1"}},
            "maximum cpu usage per Pod is 1, but limit is 1500m",
        ),
        (
            {"containers": [SMALL]},
            {"max": {"memory": "1Gi"}},
            "maximum memory usage per Pod is 1Gi.  No limit is specified",
        ),
        (
            {"containers": [SMALL, container({"cpu": "4"})]},
            {"min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "5"}},
            "minimum cpu usage per Pod is 1, but limit is 500m",
        ),
        (
            {"containers": [SMALL, container({"cpu": "4"})]},
            {"max": {"cpu": "1"}},
            "maximum cpu usage per Pod is 1, but request is 4100m",
        ),
        (
            {"containers": [SMALL]},
            {"min": {"memory": "1Gi"}},
            "minimum memory usage per Pod is 1Gi.  No request is specified",
        ),
        (
            {"containers": [container({"memory": "3Gi"}, {"cpu": "1"})], "overhead": {"cpu": "8"}},
            {"max": {"cpu": "1"}, "min": {"memory": "4Gi"}},
            "minimum memory usage per Pod is 4Gi, but request is 3Gi",
        ),
        (
            {"containers": [SMALL], "resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}},
            {"max": {"cpu": "2"}},
            "maximum cpu usage per Pod is 2, but limit is 3",
        ),
        (
            {"containers": [SMALL], "initContainers": [container({"cpu": "2"}, {"cpu": "4"})]},
            {"max": {"cpu": "3"}},
            "maximum cpu usage per Pod is 3, but limit is 4",
        ),
    ],
)
def test_sum_of_pod_outside_bounds_is_forbidden(spec: Json, fields: Json, message: str) -> None:
    expected = f'pods "web-0" is forbidden: {message}' if message else ""
    assert reason(spec, limit_range("Pod", **fields)) == expected


def test_several_violations_are_listed_once_and_first_limit_range_decides() -> None:
    first = limit_range("Container", max={"cpu": "400m", "memory": "1Gi"}, default={"memory": "2Gi"})
    second = limit_range("Container", max={"cpu": "300m"})
    cpu = "maximum cpu usage per Container is 400m, but limit is 500m"
    memory = "maximum memory usage per Container is 1Gi, but limit is 2Gi"
    assert reason({"containers": [SMALL, SMALL]}, first, second) == f'pods "web-0" is forbidden: [{cpu}, {memory}]'


def test_other_types_do_not_concern_pods() -> None:
    assert reason({"containers": [SMALL]}, limit_range("PersistentVolumeClaim", max={"storage": "1Gi"})) == ""
