"""Launches under NodeOverlays: order of types, EC2's allocation strategy, and the NodeClaim's values."""

from collections.abc import Sequence
from datetime import UTC, datetime

from tenure.apis import labels
from tenure.aws.adapters import AwsAdapters, build
from tenure.aws.instancetype.resolver import Region, resolve_types
from tenure.model.facts import Expression
from tenure.model.launch import PreparedLaunchRequest
from tenure.model.nodeoverlays import OverlayFact
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import SETTINGS, build_nodeclaim, build_nodeclass, resolved_status
from tests.support.aws.builders import region as some_types
from tests.support.aws.steps import make_launch_group, resolve_nodeclass
from tests.unit.aws.instance.test_filter import ON_DEMAND, names, select_for

FUSE = "example.com/fuse"
TYPES = (labels.INSTANCE_TYPE, "In", "c5.large", "m5.large")


def overlay(*types: str, **fields: object) -> OverlayFact:
    requirements = (Expression(key=labels.INSTANCE_TYPE, operator="In", values=types),)
    return OverlayFact.model_validate({"name": "o", "requirements": requirements, **fields})


def test_overlay_price_orders_instance_types() -> None:
    of = resolve_types(some_types("m5.large", "c5.large"), build_nodeclass(resolved_status()), SETTINGS)
    assert names(select_for(of, build_nodeclaim(ON_DEMAND))) == ["c5.large", "m5.large"]
    overlaid = of.with_overlays([overlay("m5.large", price="0.001")], {})
    assert names(select_for(overlaid, build_nodeclaim(ON_DEMAND))) == ["m5.large", "c5.large"]
    assert of.with_overlays([], {}) is of


def test_overlaid_types_are_cached_for_equal_matching_labels() -> None:
    of = resolve_types(some_types("m5.large"), build_nodeclass(resolved_status()), SETTINGS)
    team_overlay = overlay("m5.large", price="1").model_copy(
        update={"requirements": (Expression(key="team", operator="In", values=("a",)),)}
    )
    first = of.with_overlays([team_overlay], {"team": "a", "app": "x"})
    assert of.with_overlays([team_overlay.model_copy()], {"team": "a", "app": "y"}) is first
    other = of.with_overlays([team_overlay], {"team": "b"})
    assert {one.price for one in first.types[0].offerings} == {1.0}
    assert 1.0 not in {one.price for one in other.types[0].offerings}
    dearer = of.with_overlays([team_overlay.model_copy(update={"price": "2"})], {"team": "a"})
    assert {one.price for one in dearer.types[0].offerings} == {2.0}


def test_extended_resource_of_an_overlay_can_be_requested() -> None:
    of = resolve_types(some_types("m5.large", "c5.large"), build_nodeclass(resolved_status()), SETTINGS)
    nodeclaim = build_nodeclaim(ON_DEMAND, requests={FUSE: "2"})
    assert names(select_for(of, nodeclaim)) == []
    assert names(select_for(of.with_overlays([overlay("m5.large", capacity={FUSE: 2})], {}), nodeclaim)) == ["m5.large"]


async def test_ec2_launches_the_type_that_an_overlay_makes_cheapest(
    endpoint: str, control: AwsControl, region: Region, cloud: AwsAdapters
) -> None:
    active_overlays = [overlay("m5.large", price="0.001", capacity={FUSE: 2})]

    async def overlays() -> Sequence[OverlayFact]:
        return active_overlays

    plain = adapters(endpoint, region)
    settings = SETTINGS.model_copy(update={"endpoint_url": endpoint, "feature_gates": {"NodeOverlay": True}})
    overlaid = build(settings, region=region, clients=plain.clients, overlays=overlays)
    one = await resolve_nodeclass(cloud)
    nodeclaim = build_nodeclaim(ON_DEMAND, TYPES, requests={"cpu": "1"})
    launched: dict[str, tuple[str, int | None, int | None]] = {}
    for name, worker in (("plain", cloud), ("overlaid", overlaid)):
        found = await worker.fleet.prepare(nodeclaim, one, now=datetime.now(UTC))
        assert isinstance(found, PreparedLaunchRequest)
        assert found.request.prioritized == (name == "overlaid")
        result = await worker.fleet.create(make_launch_group(found.request))
        (facts,) = await worker.fleet.describe(result, one, nodeclaim)
        launched[name] = facts.labels[labels.INSTANCE_TYPE], facts.capacity.get(FUSE), facts.allocatable.get(FUSE)
    assert launched == {"plain": ("c5.large", None, None), "overlaid": ("m5.large", 2, 2)}
    assert control.list_denials() == []
    plain.close()


async def test_worker_without_gate_applies_overlays_that_the_plan_applied(
    endpoint: str, control: AwsControl, region: Region, cloud: AwsAdapters
) -> None:
    overlay_reads = 0

    async def overlays() -> Sequence[OverlayFact]:
        nonlocal overlay_reads
        overlay_reads += 1
        return [overlay("m5.large", price="0.001")]

    plain = adapters(endpoint, region)
    settings = SETTINGS.model_copy(update={"endpoint_url": endpoint})
    ungated = build(settings, region=region, clients=plain.clients, overlays=overlays)
    one = await resolve_nodeclass(cloud)
    first: list[str] = []
    for annotations in ({}, {labels.PRICE_OVERLAY_APPLIED: "true"}):
        nodeclaim = build_nodeclaim(ON_DEMAND, TYPES, requests={"cpu": "1"}, annotations=annotations)
        found = await ungated.fleet.prepare(nodeclaim, one, now=datetime.now(UTC))
        assert isinstance(found, PreparedLaunchRequest)
        first.append(found.request.overrides[0].instance_type)
    assert (first, overlay_reads) == (["c5.large", "m5.large"], 1)
    plain.close()
