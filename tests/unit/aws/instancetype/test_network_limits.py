"""Branch interfaces per instance type, as AWS publishes them."""

import pytest

from tenure.aws.instancetype.network_limits import branch_interfaces


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("a1.medium", 10),
        ("m5.large", 9),
        ("m5.xlarge", 18),
        ("c5.4xlarge", 54),
        ("c6i.12xlarge", 114),
        ("m7g.metal", 107),
        ("p5.48xlarge", 120),
        ("m8i.metal-96xl", 98),
        ("t3.large", 0),
        ("m4.large", 0),
        ("no.such", 0),
    ],
)
def test_trunks_take_so_many_branches(name: str, count: int) -> None:
    assert branch_interfaces(name) == count
