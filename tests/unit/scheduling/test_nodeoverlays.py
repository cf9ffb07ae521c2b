"""NodeOverlays: matched types, adjusted prices, precedence, conflicts, and use in plans."""

import pytest

from tenure.apis.labels import CAPACITY_OVERLAY_APPLIED, CAPACITY_TYPE, NODEPOOL, PRICE_OVERLAY_APPLIED, ZONE
from tenure.model.instance_types import Catalogue
from tenure.model.nodeoverlays import OverlayFact, apply_overlays
from tenure.scheduling.cluster_state import Change
from tenure.scheduling.nodeoverlays import ACCEPTED, OverlayTarget, evaluate_overlays
from tests.unit.scheduling.builders import GIB, Cluster, instance_type, overlay, pod, pool, types_of

SMALL = instance_type("m.large", cpu=2, memory=8, price=0.1, capacity_types=("on-demand", "spot"))
OTHER = instance_type("c.large", cpu=2, memory=8, price=0.12, capacity_types=("on-demand", "spot"))
INSTANCE_TYPES = (SMALL, OTHER)
TYPE = "node.kubernetes.io/instance-type"
FUSE = "example.com/fuse"


def validate_overlays(
    *overlays: OverlayFact, targets: tuple[OverlayTarget, ...] = (OverlayTarget({NODEPOOL: "default"}, INSTANCE_TYPES),)
) -> dict[str, str]:
    return {name: one.reason for name, one in evaluate_overlays(overlays, targets).validations.items()}


def prices(*overlays: OverlayFact, labels: dict[str, str] | None = None) -> dict[str, set[float]]:
    """The prices of the offerings by instance type."""
    return {
        one.name: {o.price for o in one.offerings} for one in apply_overlays(INSTANCE_TYPES, overlays, labels or {})
    }


@pytest.mark.parametrize(
    ("fields", "price"),
    (
        ({"price": "0.5"}, 0.5),
        ({"price": "0"}, 0.0),
        ({"adjustment": "+0.05"}, 0.15),
        ({"adjustment": "-0.04"}, 0.06),
        ({"adjustment": "-3"}, 0.0),
        ({"adjustment": "+50%"}, 0.15),
        ({"adjustment": "-10%"}, 0.09),
        ({"adjustment": "-100%"}, 0.0),
        ({}, 0.1),
    ),
)
def test_price_adjustment(fields: dict[str, str], price: float) -> None:
    assert overlay("o", **fields).adjust_price(0.1) == pytest.approx(price)


@pytest.mark.parametrize(
    ("requirements", "matched"),
    (
        ((f"{TYPE} In m.large",), {"m.large"}),
        ((f"{TYPE} NotIn m.large",), {"c.large"}),
        (("karpenter.k8s.aws/instance-family In c",), {"c.large"}),
        (("karpenter.k8s.aws/instance-cpu Gte 4",), set()),
        (("karpenter.k8s.aws/instance-cpu Lt 4",), {"m.large", "c.large"}),
        (("karpenter.k8s.aws/instance-gpu-name Exists",), set()),
        (("karpenter.k8s.aws/instance-gpu-name DoesNotExist",), {"m.large", "c.large"}),
        ((f"{NODEPOOL} In default",), {"m.large", "c.large"}),
        ((f"{NODEPOOL} In other",), set()),
        (("team In a",), {"m.large", "c.large"}),
        (("team In b",), set()),
        (("nobody/says In a",), set()),
        (("nobody/says NotIn a",), {"m.large", "c.large"}),
        (("beta.kubernetes.io/instance-type In m.large",), {"m.large"}),
        ((), {"m.large", "c.large"}),
    ),
)
def test_requirements_match_labels_of_type_and_nodepool(requirements: tuple[str, ...], matched: set[str]) -> None:
    found = prices(overlay("o", *requirements, price="9"), labels={NODEPOOL: "default", "team": "a"})
    assert {name for name, type_prices in found.items() if type_prices == {9.0}} == matched


def test_zone_and_capacity_type_select_offerings() -> None:
    one = overlay("o", f"{CAPACITY_TYPE} In spot", f"{ZONE} In a b", price="9")
    (overlaid_type, _) = apply_overlays(INSTANCE_TYPES, [one], {})
    assert {(o.capacity_type, o.zone) for o in overlaid_type.offerings if o.overlaid} == {("spot", "a"), ("spot", "b")}
    assert all(o.price == 9 for o in overlaid_type.offerings if o.overlaid)


def test_types_without_overlay_are_unchanged_objects() -> None:
    assert list(apply_overlays(INSTANCE_TYPES, [overlay("o", f"{TYPE} In none", price="9")], {})) == list(
        INSTANCE_TYPES
    )


def test_overlay_of_higher_weight_takes_precedence() -> None:
    heavy = overlay("a", f"{TYPE} In m.large", price="1", weight=5)
    light = overlay("z", price="2", weight=4)
    assert validate_overlays(light, heavy) == {"a": "", "z": ""}
    assert prices(light, heavy) == {"m.large": {1.0}, "c.large": {2.0}}


def test_conflict_of_equal_weights_rejects_the_earlier_name() -> None:
    first, second = overlay("b", f"{TYPE} In m.large", price="1"), overlay("a", price="2", capacity={FUSE: 1})
    evaluated = evaluate_overlays([first, second], [OverlayTarget({}, INSTANCE_TYPES)])
    assert evaluated.accepted == (first,)
    assert evaluated.validations["b"] == ACCEPTED
    assert evaluated.validations["a"].reason == "Conflict"
    assert (
        "NodeOverlay b has the same weight 0 and also sets the price of m.large" in evaluated.validations["a"].message
    )
    assert "change the weight" in evaluated.validations["a"].message


def test_equal_weights_without_overlap_are_no_conflict() -> None:
    assert set(
        validate_overlays(
            overlay("a", f"{TYPE} In m.large", price="1"),
            overlay("b", f"{TYPE} In c.large", price="1"),
            overlay("c", f"{TYPE} In m.large", capacity={FUSE: 1}),
            overlay("d", f"{TYPE} In m.large", capacity={"example.com/other": 1}),
        ).values()
    ) == {""}
    assert validate_overlays(overlay("a", capacity={FUSE: 1}), overlay("b", capacity={FUSE: 1})) == {
        "a": "Conflict",
        "b": "",
    }
    assert validate_overlays(
        overlay("a", f"{CAPACITY_TYPE} In spot", price="1"), overlay("b", f"{CAPACITY_TYPE} In on-demand", price="1")
    ) == {"a": "", "b": ""}


def test_overridden_overlays_are_no_conflict() -> None:
    both = (overlay("a", price="1", weight=1), overlay("b", price="2", weight=1))
    assert validate_overlays(*both)["a"] == "Conflict"
    assert set(validate_overlays(overlay("top", price="3", weight=2), *both).values()) == {""}


def test_conflict_in_one_nodepool_is_a_conflict() -> None:
    targets = tuple(OverlayTarget({NODEPOOL: name}, INSTANCE_TYPES) for name in ("one", "two"))
    found = validate_overlays(overlay("a", price="1"), overlay("b", f"{NODEPOOL} In two", price="2"), targets=targets)
    assert found == {"a": "Conflict", "b": ""}


def test_rejected_overlay_causes_no_conflict() -> None:
    found = validate_overlays(
        overlay("c", f"{TYPE} In m.large", price="1"),
        overlay("b", price="2"),
        overlay("a", f"{TYPE} In c.large", price="3"),
    )
    assert found == {"c": "", "b": "Conflict", "a": ""}


@pytest.mark.parametrize(
    ("invalid", "message"),
    (
        (overlay("o", "team Gt many"), "spec.requirements: team Gt needs exactly one integer"),
        (overlay("o", "team In"), "team In needs at least one value"),
        (overlay("o", capacity={"cpu": 1}), "expected extended resources only"),
        (overlay("o", capacity={FUSE: -1}), "spec.capacity.example.com/fuse: negative"),
        (overlay("o", price="1", adjustment="+1"), "mutually exclusive"),
        (overlay("o", price="cheap"), "spec.price: 'cheap': invalid price, expected US dollars"),
        (overlay("o", price="9" * 4301), "spec.price: '9999999999999999999999999999999999999999...': too large"),
        (overlay("o", adjustment="+" + "9" * 400 + "%"), "spec.priceAdjustment: '+999"),
        (overlay("o", adjustment="+1000001"), "spec.priceAdjustment: '+1000001': too large"),
        (overlay("o", adjustment="10%"), "spec.priceAdjustment: '10%': invalid, expected e.g."),
        (overlay("o", problem="spec.capacity: no"), "spec.capacity: no"),
    ),
)
def test_invalid_overlay_is_rejected_and_affects_no_other(invalid: OverlayFact, message: str) -> None:
    evaluated = evaluate_overlays([invalid, overlay("fine", price="1")], [OverlayTarget({}, INSTANCE_TYPES)])
    assert evaluated.validations["o"].reason == "RuntimeValidation"
    assert message in evaluated.validations["o"].message
    assert [one.name for one in evaluated.accepted] == ["fine"]


def test_huge_pages_reduce_allocatable_memory() -> None:
    (overlaid_type, _) = apply_overlays(INSTANCE_TYPES, [overlay("o", capacity={"hugepages-2Mi": 2 * GIB})], {})
    assert overlaid_type.capacity["memory"] == SMALL.capacity["memory"]
    assert overlaid_type.allocatable()["memory"] == SMALL.allocatable()["memory"] - 2 * GIB
    assert overlaid_type.allocatable()["hugepages-2Mi"] == 2 * GIB


# --- plans ---


def test_plan_uses_the_overlaid_prices() -> None:
    cluster = Cluster(pool(), pod("p"), instance_types=INSTANCE_TYPES)
    (before,) = cluster.plan().claims
    assert types_of(before)[0] == "m.large"
    assert PRICE_OVERLAY_APPLIED not in before.annotations
    cluster.add(overlay("o", f"{TYPE} In c.large", adjustment="-50%"))
    (after,) = cluster.plan().claims
    assert types_of(after)[0] == "c.large"
    assert after.annotations[PRICE_OVERLAY_APPLIED] == "true"
    assert CAPACITY_OVERLAY_APPLIED not in after.annotations


def test_deleted_overlay_has_no_effect() -> None:
    cluster = Cluster(pool(), pod("p"), overlay("o", f"{TYPE} In m.large", price="9"), instance_types=INSTANCE_TYPES)
    assert types_of(cluster.plan().claims[0])[0] == "c.large"
    cluster.state.apply([Change(kind="overlay", key="o", fact=None)])
    (nodeclaim,) = cluster.plan().claims
    assert types_of(nodeclaim)[0] == "m.large"
    assert PRICE_OVERLAY_APPLIED not in nodeclaim.annotations


def test_overlay_adds_an_extended_resource() -> None:
    cluster = Cluster(pool(), pod("p", extra={FUSE: 1}), instance_types=INSTANCE_TYPES)
    assert not cluster.plan().claims
    cluster.add(overlay("o", f"{TYPE} In c.large", capacity={FUSE: 2}))
    (nodeclaim,) = cluster.plan().claims
    assert types_of(nodeclaim) == ("c.large",)
    assert nodeclaim.annotations[CAPACITY_OVERLAY_APPLIED] == "true"
    assert nodeclaim.requests[FUSE] == 1


def test_overlay_of_one_nodepool_does_not_affect_others() -> None:
    cluster = Cluster(
        pool("plain", weight=1, template_labels={"team": "a"}),
        pool("expensive", weight=2, template_labels={"team": "b"}),
        pod("a", selector={"team": "a"}),
        pod("b", selector={"team": "b"}),
        overlay("o", "team In b", f"{TYPE} In m.large", price="9"),
        instance_types=INSTANCE_TYPES,
    )
    assert {one.pool: types_of(one)[0] for one in cluster.plan().claims} == {"plain": "m.large", "expensive": "c.large"}


def test_rejected_overlay_is_not_used_in_plans() -> None:
    cluster = Cluster(pool(), pod("p"), instance_types=INSTANCE_TYPES)
    cluster.add(overlay("b", price="0.01"), overlay("a", f"{TYPE} In m.large", price="9"))
    assert cluster.state.overlay_validations()["a"].reason == "Conflict"
    assert "m.large" in types_of(cluster.plan().claims[0])
    cluster.state.apply([Change(kind="overlay", key="b", fact=None)])
    assert cluster.state.overlay_validations() == {"a": ACCEPTED}
    assert types_of(cluster.plan().claims[0])[0] == "c.large"


def test_overlay_applies_to_a_new_catalogue() -> None:
    cluster = Cluster(
        pool(), pod("p"), overlay("o", f"{TYPE} In new.large", price="0.001"), instance_types=INSTANCE_TYPES
    )
    cluster.plan()
    cluster.state.set_catalogue(
        Catalogue(by_node_class={"default": (*INSTANCE_TYPES, instance_type("new.large", cpu=2, memory=8, price=5))})
    )
    assert types_of(cluster.plan().claims[0])[0] == "new.large"
