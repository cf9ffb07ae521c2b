"""New NodeClaims for unschedulable pods: NodePool, instance types, number of nodes, and fields."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.apis.hash import HASH_VERSION
from tenure.apis.labels import (
    CAPACITY_TYPE,
    INITIALIZED,
    INSTANCE_TYPE,
    NODE_NAME_FIELD,
    NODECLAIM_MIN_VALUES_RELAXED,
    NODEPOOL,
    NODEPOOL_HASH,
    NODEPOOL_HASH_VERSION,
    REGISTERED,
    ZONE,
)
from tenure.model.facts import Expression, HostPort, PodFact, PreferredTerm
from tenure.model.instance_types import UnavailableOffering
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change
from tests.unit.scheduling.builders import (
    COMMON,
    NOW,
    Cluster,
    daemonset,
    expressions,
    instance_type,
    node,
    pod,
    pods,
    pool,
    reasons,
    taint,
    toleration,
    types_of,
    values_of,
)

FAMILY = "karpenter.k8s.aws/instance-family"


def test_equal_pods_fill_nodes_of_the_largest_type() -> None:
    plan = Cluster(pool(), *pods(100)).plan()
    assert sorted(len(one.pods) for one in plan.claims) == [2, *[7] * 14]


def test_only_types_that_fit_every_pod_remain() -> None:
    [nodeclaim] = Cluster(pool(), *pods(3)).plan().claims
    assert types_of(nodeclaim) == ("m.xlarge", "m.2xlarge")
    assert nodeclaim.capacity_bound["cpu"] == 8000


def test_small_pods_join_the_nodes_planned_for_large_ones() -> None:
    plan = Cluster(pool(), *pods(2, cpu=5), *pods(4, cpu=1)).plan()
    assert sorted(len(one.pods) for one in plan.claims) == [3, 3]


def test_nodepool_with_higher_weight_or_later_name_is_used() -> None:
    assert Cluster(pool("a", weight=1), pool("b"), pod()).plan().claims[0].pool == "a"
    assert Cluster(pool("a"), pool("b"), pod()).plan().claims[0].pool == "b"


def test_nodepool_of_lower_weight_is_used_if_the_first_cannot() -> None:
    heavy = pool("heavy", f"{INSTANCE_TYPE} In m.large", weight=9)
    plan = Cluster(heavy, pool("light"), pod(cpu=1), pod(cpu=6)).plan()
    assert sorted((one.pool, len(one.pods)) for one in plan.claims) == [("light", 2)]
    assert [one.pool for one in Cluster(heavy, pool("light"), pod(cpu=1)).plan().claims] == ["heavy"]


def test_unready_deleting_and_static_nodepools_launch_no_nodes() -> None:
    for unusable, message in ((pool(deleting=True), "no NodePool is ready"), (pool(static=True), "it is static")):
        plan = Cluster(unusable, pod()).plan()
        assert not plan.claims
        assert message in reasons(plan)[0]
    assert reasons(Cluster(pool(ready=False), pod()).plan()) == ["pool default: it is not ready: see its conditions"]


def test_unschedulable_pod_has_the_reason_of_each_nodepool_and_the_code_of_the_nearest() -> None:
    pools = (
        pool("tainted", taints=(taint("gpu"),), weight=9),
        pool("waits", ready=False),
        pool("full", limits={"cpu": 1000}),
    )
    [rejected] = Cluster(*pools, pod(cpu=2)).plan().unschedulable
    assert rejected.code == "LimitsExceeded"
    assert [one.partition(":")[0] for one in rejected.reason.split("; ")] == ["pool full", "pool waits", "pool tainted"]


@pytest.mark.parametrize(
    ("objects", "code"),
    [
        pytest.param((pool(), pod(cpu=4000)), "NoInstanceTypeFits", id="too large"),
        pytest.param((pool(), pod(node_selector={ZONE: "mars"})), "NoNodePoolFits", id="requirements"),
        pytest.param((pool(), pod(volumes=("missing",))), "Volumes", id="volume"),
        pytest.param((pool(), pod(unplannable="spec.x")), "PodUnplannable", id="unsupported field"),
        pytest.param((pod(),), "NodePoolNotReady", id="no NodePool"),
    ],
)
def test_unschedulable_pod_has_the_code_of_its_reason(objects: Any, code: str) -> None:
    assert [one.code for one in Cluster(*objects).plan().unschedulable] == [code]


def test_untolerated_taint_of_the_nodepool_excludes_the_pod() -> None:
    tainted = pool(taints=(taint("gpu", "yes"),))
    assert reasons(Cluster(tainted, pod()).plan()) == ["pool default: taint gpu=yes:NoSchedule is not tolerated"]
    assert Cluster(tainted, pod(tolerations=(toleration("gpu"),))).plan().claims[0].taints == (taint("gpu", "yes"),)


def test_startup_taints_exclude_no_pod() -> None:
    [nodeclaim] = Cluster(pool(startup_taints=(taint("agent"),)), pod()).plan().claims
    assert nodeclaim.startup_taints == (taint("agent"),)


def test_nodepool_with_prefer_no_schedule_taint_is_the_last_choice() -> None:
    soft = pool("soft", taints=(taint("soft", effect="PreferNoSchedule"),), weight=9)
    assert Cluster(soft, pool("plain"), pod()).plan().claims[0].pool == "plain"
    assert Cluster(soft, pod()).plan().claims[0].pool == "soft"


def test_pods_for_different_zones_do_not_share_a_node() -> None:
    plan = Cluster(pool(), pod(selector={ZONE: "a"}), pod(selector={ZONE: "b"})).plan()
    assert sorted(values_of(one, ZONE) for one in plan.claims) == [("a",), ("b",)]


def test_reason_names_only_the_nodepools_that_the_pod_selects() -> None:
    plan = Cluster(pool("p"), pool("other"), pod(selector={NODEPOOL: "p", ZONE: "x"})).plan()
    assert "pool p: " in reasons(plan)[0] and "pool other: " not in reasons(plan)[0]
    plan = Cluster(pool("p"), pool("other"), pod(selector={NODEPOOL: "gone"})).plan()
    assert "pool p: " in reasons(plan)[0] and "pool other: " in reasons(plan)[0]


def test_zone_excluded_by_the_nodepool_is_the_reason() -> None:
    plan = Cluster(pool("p", f"{ZONE} In a"), pod(selector={ZONE: "b"})).plan()
    assert reasons(plan) == [f"pool p: {ZONE} In [b] is required, {ZONE} In [a] is offered"]


def test_operators_on_instance_labels_select_types() -> None:
    instance_types = (*COMMON, instance_type("c.large", cpu=2, memory=4), instance_type("c.4xlarge", cpu=16))
    expected = {
        "karpenter.k8s.aws/instance-cpu Gt 4": {"m.2xlarge", "c.4xlarge"},
        "karpenter.k8s.aws/instance-cpu Lt 4": {"m.large", "c.large"},
        "karpenter.k8s.aws/instance-cpu Gte 8": {"m.2xlarge", "c.4xlarge"},
        "karpenter.k8s.aws/instance-cpu Lte 2": {"m.large", "c.large"},
        f"{FAMILY} NotIn m": {"c.large", "c.4xlarge"},
        f"{FAMILY} In c": {"c.large", "c.4xlarge"},
        "karpenter.k8s.aws/instance-gpu-count DoesNotExist": {one.name for one in instance_types},
    }
    for written, names in expected.items():
        [nodeclaim] = Cluster(pool("p", written), pod(), instance_types=instance_types).plan().claims
        assert set(types_of(nodeclaim)) == names, written
    plan = Cluster(
        pool("p", "karpenter.k8s.aws/instance-gpu-count Exists"), pod(), instance_types=instance_types
    ).plan()
    assert "no instance type satisfies" in reasons(plan)[0]


def test_custom_label_of_the_nodepool_becomes_a_node_label() -> None:
    red = pool("p", "team In red blue", template_labels={"site": "x"})
    [nodeclaim] = Cluster(red, pod(selector={"team": "red", "site": "x"})).plan().claims
    assert nodeclaim.labels["team"] == "red"
    assert nodeclaim.labels["site"] == "x"
    assert "is required and not defined" in reasons(Cluster(pool("p"), pod(selector={"team": "red"})).plan())[0]


def test_required_affinity_terms_are_alternatives() -> None:
    either = (expressions("team In red"), expressions(f"{ZONE} In c"))
    [nodeclaim] = Cluster(pool(), pod(terms=either)).plan().claims
    assert values_of(nodeclaim, ZONE) == ("c",)


def test_preference_is_kept_if_possible() -> None:
    [nodeclaim] = Cluster(pool(), pod(preferred={f"{ZONE} In c": 1})).plan().claims
    assert values_of(nodeclaim, ZONE) == ("c",)
    [nodeclaim] = Cluster(pool(), pod(preferred={f"{ZONE} In nowhere": 1})).plan().claims
    assert values_of(nodeclaim, ZONE) == ()


def test_daemonsets_reserve_resources_of_every_new_node() -> None:
    agent = daemonset("agent", pod("agent", cpu=2, memory=1, daemonset=True))
    plan = Cluster(pool(), agent, *pods(10)).plan()
    assert sorted(len(one.pods) for one in plan.claims) == [5, 5]
    assert plan.claims[0].requests["cpu"] == 7000
    assert plan.claims[0].requests["pods"] == 6


def test_daemonset_counts_only_on_nodes_where_it_runs() -> None:
    elsewhere = daemonset("elsewhere", pod("e", cpu=2, daemonset=True, selector={"team": "red"}))
    intolerant = daemonset("intolerant", pod("f", cpu=2, daemonset=True))
    late = daemonset("late", pod("l", cpu=1, daemonset=True, selector={"karpenter.sh/initialized": "true"}))
    tainted = pool(taints=(taint("gpu"),))
    tolerant = (toleration("gpu"),)
    [nodeclaim] = Cluster(tainted, elsewhere, intolerant, pod(tolerations=tolerant)).plan().claims
    assert nodeclaim.requests["cpu"] == 1000
    [nodeclaim] = Cluster(pool(), late, pod()).plan().claims
    assert nodeclaim.requests["cpu"] == 2000


def test_newest_pod_of_a_daemonset_determines_its_requests() -> None:
    """A LimitRange, a resize or an admission webhook changes pods and not the template."""
    agent = daemonset("agent", pod("agent", cpu=0.1, daemonset=True))

    def live(name: str, cpu: float, age: float, **more: Any) -> PodFact:
        return pod(name, cpu=cpu, node="n", age=age, daemonset=True, owner_uid=agent.uid, **more)

    def requested_cpu() -> int:
        plan = cluster.plan()
        return plan.claims[0].requests["cpu"]

    cluster = Cluster(pool(), agent, pod("p"))
    assert requested_cpu() == 1100
    cluster.add(live("old", 4, age=60), live("new", 2, age=10))
    assert requested_cpu() == 3000
    cluster.add(live("new", 3, age=10))
    assert requested_cpu() == 4000
    cluster.add(live("new", 3, age=10, deleting=True))
    assert requested_cpu() == 5000
    cluster.state.apply([Change(kind="pod", key="old", fact=None)])
    assert requested_cpu() == 1100


def test_host_port_of_the_newest_daemonset_pod_is_occupied_on_new_nodes() -> None:
    port = (HostPort(port=8080),)
    agent = daemonset("agent", pod("agent", daemonset=True))
    cluster = Cluster(pool(), agent, pod("p", host_ports=port))
    assert len(cluster.plan().claims) == 1
    cluster.add(pod("agent-1", node="n", daemonset=True, owner_uid=agent.uid, host_ports=port))
    assert not cluster.plan().claims and "8080" in reasons(cluster.plan())[0]


def test_daemonset_reserves_nothing_on_types_without_its_device() -> None:
    gpu = instance_type("g.xlarge", cpu=4, memory=16, price=0.01, extra={"nvidia.com/gpu": 1})
    device = daemonset("device", pod("d", cpu=2, daemonset=True, extra={"nvidia.com/gpu": 1}))
    types = (*COMMON, gpu)
    [nodeclaim] = Cluster(pool(), device, pod(cpu=3), instance_types=types).plan().claims
    assert "g.xlarge" not in types_of(nodeclaim) and nodeclaim.requests["cpu"] == 3000
    [nodeclaim] = Cluster(pool(), device, pod(cpu=1), instance_types=types).plan().claims
    assert types_of(nodeclaim)[0] == "g.xlarge"


@pytest.mark.parametrize(("has_device", "fits"), [(True, False), (False, True)])
def test_daemonset_reserves_nothing_on_existing_nodes_without_its_device(has_device: bool, fits: bool) -> None:
    device = daemonset("device", pod("d", cpu=3, daemonset=True, extra={"nvidia.com/gpu": 1}))
    allocatable = {"cpu": 4000, "memory": 8 << 30, "pods": 58} | ({"nvidia.com/gpu": 1} if has_device else {})
    existing = node("n", allocatable=allocatable)
    assert Cluster(device, pod("p", cpu=2), existing).plan().nominations == ({"p": "n"} if fits else {})


def test_daemonset_of_some_types_reserves_nothing_on_others() -> None:
    big_only = daemonset("big", pod("b", cpu=3, daemonset=True, selector={INSTANCE_TYPE: "m.2xlarge"}))
    [nodeclaim] = Cluster(pool(), big_only, *pods(3)).plan().claims
    assert set(types_of(nodeclaim)) == {"m.xlarge", "m.2xlarge"}
    assert nodeclaim.requests["cpu"] == 3000


@pytest.mark.parametrize("label", [REGISTERED, INITIALIZED])
def test_daemonset_that_selects_registered_nodes_counts(label: str) -> None:
    agent = daemonset("agent", pod("a", cpu=1, daemonset=True, selector={label: "true"}))
    [nodeclaim] = Cluster(pool(), agent, pod(cpu=1)).plan().claims
    assert nodeclaim.requests["cpu"] == 2000


def test_hugepages_are_the_reason() -> None:
    plan = Cluster(pool(), pod(extra={"hugepages-2Mi": 4 << 20})).plan()
    assert "hugepages-2Mi" in reasons(plan)[0]


def test_missing_extended_resource_is_the_reason() -> None:
    gpu = instance_type("g.xlarge", cpu=4, memory=16, extra={"nvidia.com/gpu": 1})
    [nodeclaim] = Cluster(pool(), pod(extra={"nvidia.com/gpu": 1}), instance_types=(*COMMON, gpu)).plan().claims
    assert types_of(nodeclaim) == ("g.xlarge",)
    plan = Cluster(pool(), pod(extra={"nvidia.com/gpu": 4}), instance_types=(*COMMON, gpu)).plan()
    assert "needs 4 nvidia.com/gpu; the largest allowed instance type has 1" in reasons(plan)[0]
    assert "no instance type has amd.com/gpu" in reasons(Cluster(pool(), pod(extra={"amd.com/gpu": 1})).plan())[0]


def test_pod_larger_than_any_type_has_the_largest_type_in_its_reason() -> None:
    messages = reasons(Cluster(pool("p"), pod(cpu=20)).plan())
    assert messages == ["pool p: needs 20 cpu; the largest allowed instance type has 7900m after DaemonSet overhead"]


def test_pod_without_a_type_for_all_resources_has_a_reason() -> None:
    instance_types = (instance_type("cpu", cpu=8, memory=4), instance_type("mem", cpu=2, memory=64))
    assert (
        "no allowed instance type has"
        in reasons(Cluster(pool(), pod(cpu=6, memory=32), instance_types=instance_types).plan())[0]
    )


def test_unavailable_offering_is_not_planned_until_it_expires() -> None:
    unavailable_offering = UnavailableOffering(
        instance_type="m.2xlarge", zone="*", capacity_type="on-demand", until=NOW + timedelta(minutes=3)
    )
    cluster = Cluster(pool(), pod(cpu=7))
    messages = reasons(cluster.plan(unavailable=[unavailable_offering]))
    assert "needs 7 cpu" in messages[0]
    assert cluster.plan(after=181, unavailable=[unavailable_offering]).claims


def test_unavailability_of_every_offering_is_the_reason() -> None:
    mark = UnavailableOffering(instance_type="*", zone="*", capacity_type="on-demand", until=NOW + timedelta(minutes=3))
    [rejected] = Cluster(pool(), pod()).plan(unavailable=[mark]).unschedulable
    assert "EC2 has no capacity" in rejected.reason and rejected.code == "InsufficientCapacity"


def test_unavailable_zone_leaves_other_zones() -> None:
    mark = UnavailableOffering(instance_type="*", zone="a", capacity_type="on-demand", until=NOW + timedelta(minutes=3))
    assert Cluster(pool(), pod()).plan(unavailable=[mark]).claims
    assert not Cluster(pool(), pod(selector={ZONE: "a"})).plan(unavailable=[mark]).claims


def test_nodeclaim_lists_the_available_capacity_types() -> None:
    both = (instance_type("m.large", cpu=2, capacity_types=("spot", "on-demand")),)
    [nodeclaim] = Cluster(pool(), pod(), instance_types=both).plan().claims
    assert values_of(nodeclaim, CAPACITY_TYPE) == ("on-demand", "spot")
    mark = UnavailableOffering(instance_type="*", zone="*", capacity_type="spot", until=NOW + timedelta(minutes=3))
    [nodeclaim] = Cluster(pool(), pod(), instance_types=both).plan(unavailable=[mark]).claims
    assert values_of(nodeclaim, CAPACITY_TYPE) == ("on-demand",)


def test_types_are_sorted_by_their_cheapest_capacity_type() -> None:
    instance_types = (
        instance_type("spotty", cpu=4, capacity_types=("spot", "on-demand")),
        instance_type("plain", cpu=3, memory=16),
    )
    assert types_of(Cluster(pool(), pod(), instance_types=instance_types).plan().claims[0]) == ("spotty", "plain")
    only = pool("p", f"{CAPACITY_TYPE} In on-demand")
    assert types_of(Cluster(only, pod(), instance_types=instance_types).plan().claims[0]) == ("plain", "spotty")


def test_nodeclaim_lists_at_most_the_600_cheapest_types() -> None:
    instance_types = tuple(instance_type(f"t{number:04}", cpu=4, price=1 + number) for number in range(700))
    names = types_of(Cluster(pool(), pod(), instance_types=instance_types).plan().claims[0])
    assert names == tuple(f"t{number:04}" for number in range(600))


def test_min_values_reduces_the_pods_per_node() -> None:
    instance_types = (
        instance_type("a.large", cpu=2),
        instance_type("b.xlarge", cpu=4),
        instance_type("c.2xlarge", cpu=8),
    )
    varied = pool("p", f"{FAMILY} Exists minValues=2")
    plan = Cluster(varied, *pods(7), instance_types=instance_types).plan()
    assert max(len(one.pods) for one in plan.claims) == 3
    assert all(len(types_of(one)) >= 2 for one in plan.claims)
    assert next(one.min_values for one in plan.claims[0].requirements if one.key == FAMILY) == 2


def test_unsatisfiable_min_values_reject_or_relax_by_policy() -> None:
    varied = pool("p", f"{FAMILY} Exists minValues=3")
    strict = Cluster(varied, pod()).plan()
    assert "minValues cannot be kept" in reasons(strict)[0]
    [nodeclaim] = Cluster(varied, pod(), settings=PlanSettings(min_values_policy="BestEffort")).plan().claims
    assert nodeclaim.annotations[NODECLAIM_MIN_VALUES_RELAXED] == "true"
    assert next(one.min_values for one in nodeclaim.requirements if one.key == FAMILY) == 1


def test_min_values_count_only_values_that_the_pods_allow() -> None:
    varied = pool("p", f"{ZONE} Exists minValues=2")
    assert len(Cluster(varied, pod()).plan().claims) == 1
    assert f"{ZONE} needs 2 different values and 1 fit" in reasons(Cluster(varied, pod(selector={ZONE: "a"})).plan())[0]


def test_nodeclaim_has_the_fields_of_its_nodepool() -> None:
    nodepool = pool(
        "p",
        f"{ZONE} In a b",
        template_labels={"site": "x"},
        template_annotations={"note": "y"},
        expire_after="24h",
        termination_grace_period="1h",
        hash="42",
    )
    one = pod("only")
    [nodeclaim] = Cluster(nodepool, one).plan().claims
    assert nodeclaim.pods == ("only",)
    assert nodeclaim.labels == {"site": "x", NODEPOOL: "p", "karpenter.k8s.aws/ec2nodeclass": "default"}
    assert nodeclaim.annotations["note"] == "y"
    assert (nodeclaim.annotations[NODEPOOL_HASH], nodeclaim.annotations[NODEPOOL_HASH_VERSION]) == ("42", HASH_VERSION)
    assert (nodeclaim.expire_after, nodeclaim.termination_grace_period, nodeclaim.pool_uid) == ("24h", "1h", "uid-p")
    keys = [expression.key for expression in nodeclaim.requirements]
    assert keys == sorted(keys)
    assert "karpenter.sh/registered" not in keys
    assert "karpenter.sh/initialized" not in keys


def test_invalid_nodepool_does_not_block_another() -> None:
    plan = Cluster(pool("broken", "team Near red", weight=9), pool("fine"), pod(), pod(cpu=50)).plan()
    assert [one.pool for one in plan.claims] == ["fine"]
    assert "pool broken: its requirements are not valid" in reasons(plan)[0]


def test_unknown_instance_types_are_the_reason() -> None:
    plan = Cluster(pool(node_class="other"), pod()).plan()
    assert reasons(plan) == ["pool default: EC2NodeClass other has no instance types yet"]


def test_changed_nodepool_applies_to_the_next_plan() -> None:
    cluster = Cluster(pool(), pod(selector={"team": "red"}))
    assert not cluster.plan().claims
    cluster.add(pool("default", "team In red"))
    assert cluster.plan().claims


def test_invalid_pods_and_pods_excluding_nodepools_launch_nothing() -> None:
    odd = pod("odd", terms=((Expression(key=NODE_NAME_FIELD, operator="In", values=("gone",)),),))
    excluding = pod("excluding", terms=(expressions(f"{NODEPOOL} DoesNotExist"),))
    plan = Cluster(pool(), odd, excluding).plan()
    assert not plan.claims
    assert [(one.name, NODE_NAME_FIELD in one.reason) for one in plan.unschedulable] == [("odd", True)]


def on_node(operator: str, name: str) -> tuple[Expression, ...]:
    return (Expression(key=NODE_NAME_FIELD, operator=operator, values=(name,)),)


@pytest.mark.parametrize(
    ("term", "nominations"),
    [(on_node("In", "n2"), {"p": "n2"}), (on_node("NotIn", "n1"), {"p": "n2"}), (on_node("NotIn", "n2"), {"p": "n1"})],
)
def test_node_name_field_selects_existing_nodes(term: tuple[Expression, ...], nominations: dict[str, str]) -> None:
    nodes = [node(name, cpu=4, memory=8) for name in ("n1", "n2")]
    assert Cluster(pool(), pod("p", terms=(term,)), *nodes).plan().nominations == nominations


@pytest.mark.parametrize("policy", ["Respect", "Ignore"])
def test_new_node_serves_pods_that_exclude_node_names(policy: Any) -> None:
    """A preference never makes a pod unschedulable, whether it is valid or not."""
    preferred = (
        PreferredTerm(weight=1, expressions=on_node("In", "n1")),
        PreferredTerm(weight=2, expressions=expressions("team Near red")),
    )
    pods = (
        pod("excludes", terms=(on_node("NotIn", "n1"),)),
        pod("prefers").model_copy(update={"preferred_terms": preferred}),
    )
    plan = Cluster(pool(), *pods, settings=PlanSettings(preference_policy=policy)).plan()
    assert sorted(name for planned in plan.claims for name in planned.pods) == ["excludes", "prefers"]
    assert NODE_NAME_FIELD not in {one.key for planned in plan.claims for one in planned.requirements}
    assert all(NODE_NAME_FIELD not in planned.labels for planned in plan.claims)
