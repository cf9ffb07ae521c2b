"""What a ready node is told of its NodePool's wish to shrink."""

from tenure.controller.cache.dirty import pool_view
from tests.support.controller.builders import pool

POLICY = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}


def test_a_pool_that_shrinks_says_after_how_long() -> None:
    assert pool_view(pool(disruption=POLICY)).policy == "WhenEmpty/30s"


def test_a_static_pool_never_lets_an_empty_node_go() -> None:
    assert pool_view(pool(disruption=POLICY, replicas=3)).policy == "WhenEmpty/Never"
