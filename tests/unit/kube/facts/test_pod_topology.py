"""Conversion of topology constraints, host ports and volumes of pods."""

from typing import Any

from tenure.kube.facts.pod_topology import host_ports
from tenure.kube.facts.pods import pod_fact
from tenure.model.facts import AffinityTerm, Expression, HostPort, PodFact, SpreadConstraint
from tests.support.kube.builders import pod_json

APP = {"app": "web", "pod-template-hash": "abc"}
SELECTOR = {"matchLabels": {"app": "web"}}
WEB = Expression(key="app", operator="In", values=("web",))


def fact(**spec: Any) -> PodFact:
    metadata = {"labels": APP, "uid": "uid-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    raw = pod_json("web-1", metadata=metadata)
    raw["spec"] |= spec
    return pod_fact(raw)


def test_host_network_takes_container_ports_of_a_template() -> None:
    """The API server sets hostPort on pods only."""
    ports = [{"containerPort": 8080}, {"containerPort": 53, "protocol": "UDP"}]
    spec = {"hostNetwork": True, "containers": [{"name": "c", "ports": ports}]}
    assert [(one["port"], one["protocol"]) for one in host_ports(spec)] == [(8080, "TCP"), (53, "UDP")]
    assert host_ports({**spec, "hostNetwork": False}) == []


def test_spread_constraint_keeps_its_policies_and_expands_match_label_keys() -> None:
    constraint = {
        "topologyKey": "topology.kubernetes.io/zone",
        "maxSkew": 2,
        "minDomains": 3,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": SELECTOR,
        "matchLabelKeys": ["pod-template-hash", "not-there"],
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
    }
    assert fact(topologySpreadConstraints=[constraint]).spreads == (
        SpreadConstraint(
            key="topology.kubernetes.io/zone",
            max_skew=2,
            min_domains=3,
            hard=False,
            selector=(WEB, Expression(key="pod-template-hash", operator="In", values=("abc",))),
            honor_affinity=False,
            honor_taints=True,
        ),
    )


def test_spread_constraint_has_the_defaults_of_the_api() -> None:
    (found,) = fact(topologySpreadConstraints=[{"topologyKey": "k", "maxSkew": 1}]).spreads
    assert found == SpreadConstraint(key="k", max_skew=1, hard=True, selector=None, min_domains=1)


def test_weight_distinguishes_preferred_from_required_terms() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": SELECTOR}
    affinity = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term}]},
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {**term, "namespaces": ["other"], "namespaceSelector": {"matchLabels": {"team": "a"}}},
                {**term, "mismatchLabelKeys": ["pod-template-hash"]},
            ]
        },
    }
    found = fact(affinity=affinity)
    assert found.affinity == (AffinityTerm(key="kubernetes.io/hostname", selector=(WEB,), weight=7),)
    first, second = found.anti_affinity
    assert first.namespaces == ("other",)
    assert first.namespace_selector == (Expression(key="team", operator="In", values=("a",)),)
    assert second.selector == (WEB, Expression(key="pod-template-hash", operator="NotIn", values=("abc",)))


def test_host_ports_of_containers_and_sidecars_are_read() -> None:
    def container(port: int, **more: Any) -> dict[str, Any]:
        return {"name": f"c{port}", "ports": [{"containerPort": 1, "hostPort": port, **more}]}

    found = fact(
        containers=[
            container(80, hostIP="0.0.0.0"),
            container(81, protocol="UDP", hostIP="10.0.0.1"),
            {"name": "none"},
        ],
        initContainers=[{**container(82), "restartPolicy": "Always"}, container(83)],
    )
    assert found.host_ports == (
        HostPort(port=80),
        HostPort(port=81, protocol="UDP", address="10.0.0.1"),
        HostPort(port=82),
    )


def test_volume_claims_are_named_and_ephemeral_claims_contain_the_pod_name() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "config", "configMap": {"name": "x"}},
    ]
    assert fact(volumes=volumes).volumes == ("data-0", "web-1-scratch")
