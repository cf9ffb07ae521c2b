"""Branch interfaces: the table is what AWS publishes, and the script that makes it reads it rightly."""

import pytest

from aws.branch_interfaces import branch_interfaces
from deploy.branch_interfaces import branches_of, module_of

PUBLISHED = """
var Limits = map[string]*VPCLimits{
\t"m5.large": {
\t\tInterface:               3,
\t\tIsTrunkingCompatible:    true,
\t\tBranchInterface:         9,
\t\tNetworkCards: []NetworkCard{
\t\t\t{
\t\t\t\tNetworkCardIndex:         0,
\t\t\t},
\t\t},
\t},
\t"m5d.large": {
\t\tIsTrunkingCompatible:    true,
\t\tBranchInterface:         9,
\t},
\t"m5.xlarge": {
\t\tIsTrunkingCompatible:    true,
\t\tBranchInterface:         18,
\t},
\t"t3.large": {
\t\tIsTrunkingCompatible:    false,
\t\tBranchInterface:         5,
\t},
}
"""


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


def test_only_types_that_can_be_trunks_are_read() -> None:
    assert branches_of(PUBLISHED) == {"m5.large": 9, "m5d.large": 9, "m5.xlarge": 18}


def test_families_that_are_alike_share_a_line_and_read_back_as_they_were() -> None:
    text = module_of({"m5.large": 9, "m5.xlarge": 18, "m6i.large": 9, "m6i.xlarge": 18, "z1d.large": 13})
    made: dict[str, object] = {}
    exec(text, made)
    assert "m5 m6i: large=9 xlarge=18" in text
    assert made["_counts"]() == {  # type: ignore[operator]
        "m5.large": 9,
        "m5.xlarge": 18,
        "m6i.large": 9,
        "m6i.xlarge": 18,
        "z1d.large": 13,
    }
