"""The order in which kube-scheduler can bind the pods of a plan."""

from tenure.apis.labels import ZONE
from tenure.model.facts import HostPort, PodFact
from tests.oracle.binding_order import BindingOrder, find_bindable, find_binding_order
from tests.unit.oracle.test_topology import spread, term
from tests.unit.scheduling.builders import expressions, node, pod

WEB = {"app": "web"}


def find_order(targets: dict[str, str], *pods: PodFact) -> list[str]:
    return [*order_of(targets, *pods).names]


def order_of(targets: dict[str, str], *pods: PodFact) -> BindingOrder:
    nodes = [node(name, labels={ZONE: name}) for name in "ab"]
    return find_binding_order(targets, pods, nodes, {"default": {}})


def test_pods_alternate_between_the_domains_of_their_topology_spread() -> None:
    pods = [pod(name, labels=WEB, spreads=spread()) for name in "1234"]
    assert find_order({"1": "a", "2": "a", "3": "b", "4": "b"}, *pods) == ["1", "3", "2", "4"]


def test_running_pods_count() -> None:
    pods = [pod(name, labels=WEB, spreads=spread()) for name in "12"]
    running = pod("running", labels=WEB, node_name="a")
    assert find_order({"1": "a", "2": "b"}, running, *pods) == ["2", "1"]


def test_pod_follows_the_pods_that_its_affinity_selects() -> None:
    follower, selected = pod("1", affinity=term()), pod("2", labels=WEB)
    assert find_order({"1": "a", "2": "a"}, follower, selected) == ["2", "1"]


def test_pods_of_higher_priority_come_first() -> None:
    assert find_order({"1": "a", "2": "a"}, pod("1"), pod("2", priority=1)) == ["2", "1"]


def test_pods_with_topology_spread_precede_the_pods_that_it_counts() -> None:
    selected, limited = pod("1", labels=WEB), pod("2", labels=WEB, spreads=spread())
    assert find_order({"1": "a", "2": "a"}, selected, limited) == ["2", "1"]


def test_pod_precedes_the_pods_that_would_prevent_its_binding() -> None:
    """Both have topology spread. The first counts no pod, and the second counts both."""
    uncounted = pod("1", labels=WEB, spreads=spread(selector=expressions("app In none")))
    limited = pod("2", labels=WEB, spreads=spread())
    assert find_order({"1": "a", "2": "a"}, uncounted, limited) == ["2", "1"]


def test_pods_of_one_kind_have_any_order_in_which_they_can_be_bound() -> None:
    """The first one must be the pod in b: each in a makes the other zone key of the pod in b impossible."""
    rack = spread() + spread(key="rack")
    pods = [pod(name, labels=WEB, spreads=rack) for name in "123"]
    racks = {"a": "x", "b": "x", "c": "y"}
    nodes = [node(f"n{zone}", labels={ZONE: zone if zone != "c" else "a", "rack": racks[zone]}) for zone in "abc"]
    found = find_binding_order({"1": "na", "2": "nc", "3": "nb"}, pods, nodes, {"default": {}})
    assert found.unbindable == frozenset()


def test_pods_that_cannot_be_bound_come_last() -> None:
    crowd = [pod(name, labels=WEB, spreads=spread()) for name in "12"]
    found = order_of({"1": "a", "2": "a", "3": "b"}, *crowd, pod("3"))
    assert found == BindingOrder(("1", "3", "2"), frozenset({"2"}))


def test_running_pods_exclude_pods_of_daemonsets_by_host_port_and_anti_affinity() -> None:
    port = (HostPort(port=8080),)
    agents = [pod(f"agent-{name}", node=name, labels=WEB, host_ports=port) for name in "ab"]
    nodes = [node(name, labels={ZONE: name}) for name in "ab"]

    def bindable(*running: PodFact) -> list[str]:
        return [one.name for one in find_bindable(agents, running, nodes, {"default": {}})]

    assert bindable() == ["agent-a", "agent-b"]
    assert bindable(pod("running", node="a", host_ports=port)) == ["agent-b"]
    assert bindable(pod("running", node="b", anti_affinity=term())) == ["agent-a"]
    assert bindable(pod("waiting", host_ports=port, anti_affinity=term())) == ["agent-a", "agent-b"]
