"""What pods say about other pods, ports and volumes, as facts."""

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


def test_a_spread_constraint_carries_its_policies_and_folds_its_label_keys_in() -> None:
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


def test_defaults_of_a_spread_constraint_are_the_apis() -> None:
    (found,) = fact(topologySpreadConstraints=[{"topologyKey": "k", "maxSkew": 1}]).spreads
    assert found == SpreadConstraint(key="k", max_skew=1, hard=True, selector=None, min_domains=1)


def test_required_and_preferred_terms_are_told_apart_by_weight() -> None:
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


def test_ports_of_containers_and_sidecars_count_and_all_zeros_is_every_address() -> None:
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


def test_claims_of_volumes_are_named_those_of_ephemeral_ones_after_the_pod() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "config", "configMap": {"name": "x"}},
    ]
    assert fact(volumes=volumes).volumes == ("data-0", "web-1-scratch")
