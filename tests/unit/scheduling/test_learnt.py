"""What nodes have shown of their machines counts in the very next plan."""

from tenure.model.discovered_capacity import Learnt, under
from tenure.model.instance_types import Catalogue
from tenure.model.provisioning import Plan
from tenure.scheduling.instance_type_table import TypeTable
from tests.unit.scheduling.builders import COMMON, GIB, World, daemonset, launched, pod, pool, types_of

IMAGE = "ami-1"
KINDS = tuple(one.model_copy(update={"image_id": IMAGE}) for one in COMMON)
SMALLEST = KINDS[0]


def shown(gibibytes: float, instance_type: str = SMALLEST.name, image: str = IMAGE) -> Learnt:
    return Learnt(images={image: {instance_type: int(gibibytes * GIB)}})


def cheapest(plan: Plan) -> str:
    (claim,) = plan.claims
    return types_of(claim)[0]


def test_a_type_that_is_smaller_than_estimated_is_not_bought_again() -> None:
    world = World(pool(), pod("p", memory=7), kinds=KINDS)
    assert cheapest(world.plan()) == "m.large"
    world.state.heed(shown(7.2), {})
    plan = world.plan()
    assert cheapest(plan) == "m.xlarge"
    assert "m.large" not in types_of(plan.claims[0])


def test_a_type_that_is_larger_than_estimated_is_bought_for_what_fits() -> None:
    world = World(pool(), pod("p", memory=7.8), kinds=KINDS)
    assert cheapest(world.plan()) == "m.xlarge"
    world.state.heed(shown(8.4), {})
    assert cheapest(world.plan()) == "m.large"


def test_what_daemonsets_take_comes_off_what_was_learnt() -> None:
    agent = daemonset("agent", pod("template", cpu=0.1, memory=0.5, daemonset=True))
    world = World(pool(), agent, pod("p", memory=6.5), kinds=KINDS)
    world.state.heed(shown(7.4), {})
    assert cheapest(world.plan()) == "m.xlarge"
    world.state.heed(shown(7.6), {})
    assert cheapest(world.plan()) == "m.large"


def test_what_another_image_shows_does_not_count() -> None:
    world = World(pool(), pod("p", memory=7), kinds=KINDS)
    world.state.heed(shown(7.2, image="ami-2"), {})
    assert cheapest(world.plan()) == "m.large"


def test_what_a_class_leaves_pods_less_counts_for_that_spec_of_the_class() -> None:
    world = World(pool(), pod("p", memory=7), kinds=KINDS)
    known = shown(8).merged(shown(7.2, image=under(IMAGE, "123")))
    world.state.heed(known, {"default": "456", "other": "123"})
    assert cheapest(world.plan()) == "m.large"
    world.state.heed(known, {"default": "123"})
    assert cheapest(world.plan()) == "m.xlarge"


def test_a_new_catalogue_does_not_forget_it() -> None:
    world = World(pool(), pod("p", memory=7), kinds=KINDS)
    world.state.heed(shown(7.2), {})
    dearer = tuple(
        one.model_copy(update={"offerings": tuple(o.model_copy(update={"price": o.price * 2}) for o in one.offerings)})
        for one in KINDS
    )
    world.state.set_catalogue(Catalogue(by_node_class={"default": dearer}))
    assert cheapest(world.plan()) == "m.xlarge"


def test_what_is_dropped_gives_way_to_the_estimate() -> None:
    world = World(pool(), pod("p", memory=7), kinds=KINDS)
    world.state.heed(shown(7.2), {})
    world.state.heed(Learnt(), {})
    assert cheapest(world.plan()) == "m.large"


def test_a_node_that_still_comes_has_no_more_than_its_kind_has_shown() -> None:
    world = World(pool(), pod("p", memory=7), kinds=KINDS)
    (planned,) = world.plan().claims
    coming = launched("coming", planned, SMALLEST, image_id=IMAGE)
    world.add(coming)
    assert world.plan().nominations == {"p": "coming"}
    world.state.heed(shown(7.2), {})
    plan = world.plan()
    assert not plan.nominations and cheapest(plan) == "m.xlarge"


def test_only_the_columns_of_memory_change() -> None:
    table = TypeTable(KINDS)
    memory = table.columns["memory"]
    capacity, allocatable = table.capacity.copy(), table.allocatable.copy()
    assert table.heed(shown(7)) and not table.heed(shown(7))
    differs = (capacity != table.capacity) | (allocatable != table.allocatable)
    assert differs.sum() == 1 and differs[table.rows["m.large"], memory]
    assert table.capacity[table.rows["m.large"], memory] == 7 * GIB
    assert table.allocatable[table.rows["m.large"], memory] == 7 * GIB - GIB // 2
