"""Memory discovered on nodes applies to the next plan."""

from tenure.model.discovered_capacity import DiscoveredCapacity, image_spec_key
from tenure.model.instance_types import Catalogue
from tenure.model.plan import Plan
from tenure.scheduling.instance_type_table import InstanceTypeTable
from tests.unit.scheduling.builders import COMMON, GIB, Cluster, daemonset, launched_nodeclaim, pod, pool, types_of

IMAGE = "ami-1"
INSTANCE_TYPES = tuple(one.model_copy(update={"image_id": IMAGE}) for one in COMMON)
SMALLEST = INSTANCE_TYPES[0]


def discovered_memory(gibibytes: float, instance_type: str = SMALLEST.name, image: str = IMAGE) -> DiscoveredCapacity:
    return DiscoveredCapacity(images={image: {instance_type: int(gibibytes * GIB)}})


def cheapest(plan: Plan) -> str:
    (nodeclaim,) = plan.claims
    return types_of(nodeclaim)[0]


def test_type_smaller_than_estimated_is_not_planned_again() -> None:
    cluster = Cluster(pool(), pod("p", memory=7), instance_types=INSTANCE_TYPES)
    assert cheapest(cluster.plan()) == "m.large"
    cluster.state.apply_discovered_capacity(discovered_memory(7.2), {})
    plan = cluster.plan()
    assert cheapest(plan) == "m.xlarge"
    assert "m.large" not in types_of(plan.claims[0])


def test_type_larger_than_estimated_is_planned_for_fitting_pods() -> None:
    cluster = Cluster(pool(), pod("p", memory=7.8), instance_types=INSTANCE_TYPES)
    assert cheapest(cluster.plan()) == "m.xlarge"
    cluster.state.apply_discovered_capacity(discovered_memory(8.4), {})
    assert cheapest(cluster.plan()) == "m.large"


def test_daemonset_requests_reduce_discovered_memory() -> None:
    agent = daemonset("agent", pod("template", cpu=0.1, memory=0.5, daemonset=True))
    cluster = Cluster(pool(), agent, pod("p", memory=6.5), instance_types=INSTANCE_TYPES)
    cluster.state.apply_discovered_capacity(discovered_memory(7.4), {})
    assert cheapest(cluster.plan()) == "m.xlarge"
    cluster.state.apply_discovered_capacity(discovered_memory(7.6), {})
    assert cheapest(cluster.plan()) == "m.large"


def test_memory_of_another_image_does_not_count() -> None:
    cluster = Cluster(pool(), pod("p", memory=7), instance_types=INSTANCE_TYPES)
    cluster.state.apply_discovered_capacity(discovered_memory(7.2, image="ami-2"), {})
    assert cheapest(cluster.plan()) == "m.large"


def test_memory_of_a_spec_applies_only_to_that_nodeclass_spec() -> None:
    cluster = Cluster(pool(), pod("p", memory=7), instance_types=INSTANCE_TYPES)
    known = discovered_memory(8).merge(discovered_memory(7.2, image=image_spec_key(IMAGE, "123")))
    cluster.state.apply_discovered_capacity(known, {"default": "456", "other": "123"})
    assert cheapest(cluster.plan()) == "m.large"
    cluster.state.apply_discovered_capacity(known, {"default": "123"})
    assert cheapest(cluster.plan()) == "m.xlarge"


def test_discovered_memory_survives_a_new_catalogue() -> None:
    cluster = Cluster(pool(), pod("p", memory=7), instance_types=INSTANCE_TYPES)
    cluster.state.apply_discovered_capacity(discovered_memory(7.2), {})
    more_expensive = tuple(
        one.model_copy(update={"offerings": tuple(o.model_copy(update={"price": o.price * 2}) for o in one.offerings)})
        for one in INSTANCE_TYPES
    )
    cluster.state.set_catalogue(Catalogue(by_node_class={"default": more_expensive}))
    assert cheapest(cluster.plan()) == "m.xlarge"


def test_estimate_is_used_after_discovered_memory_was_dropped() -> None:
    cluster = Cluster(pool(), pod("p", memory=7), instance_types=INSTANCE_TYPES)
    cluster.state.apply_discovered_capacity(discovered_memory(7.2), {})
    cluster.state.apply_discovered_capacity(DiscoveredCapacity(), {})
    assert cheapest(cluster.plan()) == "m.large"


def test_launching_node_has_the_discovered_memory_of_its_type() -> None:
    cluster = Cluster(pool(), pod("p", memory=7), instance_types=INSTANCE_TYPES)
    (planned,) = cluster.plan().claims
    launching = launched_nodeclaim("launching", planned, SMALLEST, image_id=IMAGE)
    cluster.add(launching)
    assert cluster.plan().nominations == {"p": "launching"}
    cluster.state.apply_discovered_capacity(discovered_memory(7.2), {})
    plan = cluster.plan()
    assert not plan.nominations and cheapest(plan) == "m.xlarge"


def test_only_memory_columns_change() -> None:
    table = InstanceTypeTable(INSTANCE_TYPES)
    memory = table.columns["memory"]
    capacity, allocatable = table.capacity.copy(), table.allocatable.copy()
    assert table.apply_discovered_capacity(discovered_memory(7)) and not table.apply_discovered_capacity(
        discovered_memory(7)
    )
    differs = (capacity != table.capacity) | (allocatable != table.allocatable)
    assert differs.sum() == 1 and differs[table.rows["m.large"], memory]
    assert table.capacity[table.rows["m.large"], memory] == 7 * GIB
    assert table.allocatable[table.rows["m.large"], memory] == 7 * GIB - GIB // 2
