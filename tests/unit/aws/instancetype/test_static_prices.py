"""Estimated prices without an AWS price list: near the public prices, in the currency and price level of the region."""

import pytest

from tenure.aws.instancetype.static_prices import estimate_price, larges_in
from tests.support.aws.builders import build_type_info

# Public on-demand prices of Linux in us-east-1, in USD per hour.
PUBLIC = {
    "t3.micro": 0.0104,
    "t3.large": 0.0832,
    "t4g.medium": 0.0336,
    "m4.xlarge": 0.2,
    "m5.large": 0.096,
    "m5.metal": 4.608,
    "m6i.2xlarge": 0.384,
    "m6g.large": 0.077,
    "m7i-flex.large": 0.09576,
    "c5.xlarge": 0.17,
    "c6i.4xlarge": 0.68,
    "c7g.xlarge": 0.145,
    "r5.24xlarge": 6.048,
    "r6i.2xlarge": 0.504,
    "i4i.large": 0.172,
    "x2gd.medium": 0.0835,
    "p4d.24xlarge": 21.9576,
    "trn1.32xlarge": 21.5,
}
# Types whose sizes are not priced in proportion: the sum of their parts, within 25%.
APPROXIMATE = {
    "g4dn.xlarge": 0.526,
    "g5.xlarge": 1.006,
    "g5.12xlarge": 5.672,
    "g6.xlarge": 0.8048,
    "p5.48xlarge": 55.04,
    "inf2.xlarge": 0.7582,
    "inf1.24xlarge": 4.721,
}


@pytest.mark.parametrize(("name", "price"), PUBLIC.items())
def test_proportional_families_match_public_prices(name: str, price: float) -> None:
    assert estimate_price(build_type_info(name), "us-east-1") == pytest.approx(price, rel=0.02)


@pytest.mark.parametrize(("name", "price"), APPROXIMATE.items())
def test_types_with_devices_match_approximately(name: str, price: float) -> None:
    assert estimate_price(build_type_info(name), "us-east-1") == pytest.approx(price, rel=0.25)


def test_govcloud_costs_more_and_china_uses_yuan() -> None:
    here = estimate_price(build_type_info("m5.large"), "us-west-2")
    # GovCloud's public price is 0.121 USD.
    assert estimate_price(build_type_info("m5.large"), "us-gov-west-1") == pytest.approx(0.121, rel=0.06)
    assert estimate_price(build_type_info("m5.large"), "cn-north-1") == pytest.approx(10 * here)


def test_larger_type_of_family_costs_more() -> None:
    sizes = ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge")
    for family in ("m5", "c6i", "r7g"):
        prices = [
            estimate_price(build_type_info(f"{family}.{size}"))
            for size in sizes
            if (family, size) != ("r7g", "24xlarge")
        ]
        assert prices == sorted(prices)


def test_unknown_family_has_a_price() -> None:
    assert estimate_price(build_type_info("r9g.large")) > estimate_price(build_type_info("r9g.medium")) > 0


@pytest.mark.parametrize(
    ("size", "count"), [("nano", 0.0625), ("large", 1), ("xlarge", 2), ("24xlarge", 48), ("metal-24xl", 0)]
)
def test_sizes_are_counted_in_larges(size: str, count: float) -> None:
    assert larges_in(size) == count
