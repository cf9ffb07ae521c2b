from tenure.controller.cache.nodepools import read_nodepool_view
from tests.support.controller.builders import pool

POLICY = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}


def test_consolidation_view_has_policy_and_delay() -> None:
    assert read_nodepool_view(pool(disruption=POLICY)).consolidation == "WhenEmpty/30s"


def test_static_pool_never_consolidates_empty_nodes() -> None:
    assert read_nodepool_view(pool(disruption=POLICY, replicas=3)).consolidation == "WhenEmpty/Never"
