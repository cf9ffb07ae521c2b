"""Budgets as the last pass had them, in the worker's metrics."""

from typing import cast

from temporalio.common import MetricMeter

from tenure.controller.metrics.planner import ALLOWED, CONSUMING, DISRUPTION_DURATION, PassGauges
from tenure.model.disruption.planning import Allowances, Method, Room
from tests.unit.controller.test_offering_gauges import Meter


def rooms(**pools: int) -> Allowances:
    methods: tuple[Method, ...] = ("Empty", "Drifted")
    return Allowances(pools={pool: {one: Room(allowed=room) for one in methods} for pool, room in pools.items()})


def test_what_changed_is_told_by_pool_and_reason_and_what_is_gone_is_zero() -> None:
    meter = Meter()
    gauges = PassGauges(cast(MetricMeter, meter))
    gauges.take(rooms(web=2, gpu=0), {"gpu": 1}, 0.5)
    told = meter.news()
    assert (ALLOWED, ("web", "empty"), 2) in told and (ALLOWED, ("gpu", "drifted"), 0) in told
    assert (CONSUMING, ("gpu", "underutilized"), 1) in told and (DISRUPTION_DURATION, (), 0.5) in told
    gauges.take(rooms(web=1), {}, 0.25)
    told = meter.news()
    assert (ALLOWED, ("web", "drifted"), 1) in told and (CONSUMING, ("gpu", "drifted"), 0) in told
    assert not any(name == CONSUMING and label[0] == "web" for name, label, _ in told)
    gauges.close()
    assert {value for _, _, value in meter.news()} == {0}
