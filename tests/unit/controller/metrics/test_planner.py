"""Budgets as the last pass had them, in the worker's metrics."""

from typing import cast

from temporalio.common import MetricMeter

from tenure.controller.metrics.planner import ALLOWED, CONSUMING, DISRUPTION_DURATION, DisruptionMetrics
from tenure.model.disruption.decision import BudgetHeadroom, DisruptionBudgets, Method
from tests.unit.controller.metrics.test_offerings import FakeMeter


def allowed_disruptions(**pools: int) -> DisruptionBudgets:
    methods: tuple[Method, ...] = ("Empty", "Drifted")
    return DisruptionBudgets(
        pools={pool: {one: BudgetHeadroom(allowed=allowed) for one in methods} for pool, allowed in pools.items()}
    )


def test_what_changed_is_told_by_pool_and_reason_and_what_is_gone_is_zero() -> None:
    meter = FakeMeter()
    gauges = DisruptionMetrics(cast(MetricMeter, meter))
    gauges.record_pass(allowed_disruptions(web=2, gpu=0), {"gpu": 1}, 0.5)
    recorded = meter.drain_records()
    assert (ALLOWED, ("web", "empty"), 2) in recorded and (ALLOWED, ("gpu", "drifted"), 0) in recorded
    assert (CONSUMING, ("gpu", "underutilized"), 1) in recorded and (DISRUPTION_DURATION, (), 0.5) in recorded
    gauges.record_pass(allowed_disruptions(web=1), {}, 0.25)
    recorded = meter.drain_records()
    assert (ALLOWED, ("web", "drifted"), 1) in recorded and (CONSUMING, ("gpu", "drifted"), 0) in recorded
    assert not any(name == CONSUMING and label[0] == "web" for name, label, _ in recorded)
    gauges.close()
    assert {value for _, _, value in meter.drain_records()} == {0}
