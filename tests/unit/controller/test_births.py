"""What NodeClaims are made for, in the worker's metrics."""

from typing import Any, cast

from temporalio.common import MetricMeter

from controller.births import CREATED, Births
from model.kinds import NodeClaim
from model.labels import NODECLAIM_MIN_VALUES_RELAXED, NODEPOOL
from tests.unit.controller.test_offering_gauges import Meter


def made(**annotations: str) -> NodeClaim:
    spec: dict[str, Any] = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"},
        "requirements": [],
    }
    metadata = {"name": "web-1", "labels": {NODEPOOL: "web"}, "annotations": annotations}
    return NodeClaim.model_validate({"metadata": metadata, "spec": spec})


def test_a_birth_counts_by_its_reason_and_its_pool() -> None:
    meter = Meter()
    births = Births(cast(MetricMeter, meter))
    births.count(made())
    births.count(made(**{NODECLAIM_MIN_VALUES_RELAXED: "true"}), "Underutilized")
    assert meter.news() == [
        (CREATED, ("provisioned", "web", "false"), 1),
        (CREATED, ("underutilized", "web", "true"), 1),
    ]
