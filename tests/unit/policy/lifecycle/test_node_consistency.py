"""What a Node lacks of what it was bought for."""

import pytest

from tenure.policy.lifecycle.initialization import describe_missing_resources

GI = 2**30
EXPECTED = {"cpu": 4000, "memory": 16 * GI, "nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    ("requests", "has", "lacking"),
    [
        ({"cpu": 1}, {"cpu": 4000}, ""),
        ({"cpu": 1}, {"cpu": 3600}, ""),
        ({"cpu": 1}, {"cpu": 3599}, "cpu: the Node has 3599m of 4 (89 %)"),
        ({"cpu": 1}, {"cpu": 8000}, ""),
        ({"cpu": 0}, {"cpu": 1}, ""),
        ({"memory": 1}, {"cpu": 1, "memory": 16 * GI}, ""),
        ({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1}, "nvidia.com/gpu: the Node has 1 of 2 (50 %)"),
        ({"nvidia.com/gpu": 1}, {}, "nvidia.com/gpu: the Node has 0 of 2 (0 %)"),
        ({"example.com/nothing": 1}, {}, ""),
        (
            {"memory": 1, "cpu": 1},
            {"cpu": 1000, "memory": 8 * GI},
            "cpu: the Node has 1 of 4 (25 %); memory: the Node has 8Gi of 16Gi (50 %)",
        ),
    ],
)
def test_only_what_was_asked_for_is_looked_at_and_nine_tenths_are_enough(
    requests: dict[str, int], has: dict[str, int], lacking: str
) -> None:
    assert describe_missing_resources(requests, EXPECTED, has) == lacking
