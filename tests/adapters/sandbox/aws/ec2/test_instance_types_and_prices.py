"""Instance types, their offerings by zone, and their prices from EC2's spot history and the pricing service."""

import json
from typing import Any

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, raises_code

KARPENTERS_FILTERS = [
    {"Name": "supported-virtualization-type", "Values": ["hvm"]},
    {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
]
SHARED = {"tenancy": "Shared", "productFamily": "Compute Instance"}
METAL = {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"}


def all_types(kit: FakeAwsClient, **request: Any) -> dict[str, Any]:
    pages = kit.ec2.get_paginator("describe_instance_types").paginate(**request)
    return {one["InstanceType"]: one for page in pages for one in page["InstanceTypes"]}


def prices(kit: FakeAwsClient, **fields: str) -> dict[str, float]:
    filters = {
        "regionCode": "us-west-2",
        "serviceCode": "AmazonEC2",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        **fields,
    }
    pages = (
        kit.client("pricing", region="us-east-1")
        .get_paginator("get_products")
        .paginate(
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in filters.items()],
        )
    )
    found = {}
    for page in pages:
        for text in page["PriceList"]:
            product = json.loads(text)
            (term,) = product["terms"]["OnDemand"].values()
            (dimension,) = term["priceDimensions"].values()
            found[product["product"]["attributes"]["instanceType"]] = float(dimension["pricePerUnit"]["USD"])
    return found


def test_all_types_are_listed_with_scheduling_fields(kit: FakeAwsClient) -> None:
    found = all_types(kit, Filters=KARPENTERS_FILTERS, PaginationConfig={"PageSize": 100})
    assert len(found) > 1300
    assert found["m5.large"]["VCpuInfo"]["DefaultVCpus"] == 2
    assert found["m5.large"]["MemoryInfo"]["SizeInMiB"] == 8192
    assert found["m6g.large"]["ProcessorInfo"]["SupportedArchitectures"] == ["arm64"]
    assert found["g5.xlarge"]["GpuInfo"]["Gpus"][0]["Name"] == "A10G"
    assert found["m5d.large"]["InstanceStorageInfo"]["TotalSizeInGB"] == 75
    assert "mac2.metal" not in found


def test_page_has_the_requested_size(kit: FakeAwsClient) -> None:
    response = kit.ec2.describe_instance_types(MaxResults=7)
    assert len(response["InstanceTypes"]) == 7
    following = kit.ec2.describe_instance_types(MaxResults=7, NextToken=response["NextToken"])
    assert not {t["InstanceType"] for t in response["InstanceTypes"]} & {
        t["InstanceType"] for t in following["InstanceTypes"]
    }


def test_types_are_described_by_name(kit: FakeAwsClient) -> None:
    response = kit.ec2.describe_instance_types(InstanceTypes=["m5.large", "c5.large"])
    assert {t["InstanceType"] for t in response["InstanceTypes"]} == {"m5.large", "c5.large"}


@pytest.mark.parametrize("call", ["describe_instance_types", "describe_instance_type_offerings", "describe_images"])
def test_reads_support_dry_run(kit: FakeAwsClient, call: str) -> None:
    with raises_code("DryRunOperation"):
        getattr(kit.ec2, call)(DryRun=True)


def test_offerings_by_zone_are_paged(kit: FakeAwsClient) -> None:
    first = kit.ec2.describe_instance_type_offerings(LocationType="availability-zone", MaxResults=1000)
    assert len(first["InstanceTypeOfferings"]) == 1000
    pages = kit.ec2.get_paginator("describe_instance_type_offerings").paginate(LocationType="availability-zone")
    rows = [(r["InstanceType"], r["Location"]) for page in pages for r in page["InstanceTypeOfferings"]]
    assert len(rows) == len(set(rows))
    assert ("m5.large", "us-west-2a") in rows


@pytest.mark.parametrize(
    ("name", "price"),
    [("m5.large", 0.096), ("c5.large", 0.085), ("r5.large", 0.126), ("t3.medium", 0.0416), ("m5.4xlarge", 0.768)],
)
def test_on_demand_prices_match_the_public_list(kit: FakeAwsClient, name: str, price: float) -> None:
    assert prices(kit, instanceType=name, **SHARED) == {name: pytest.approx(price)}


def test_every_type_has_a_price_and_metal_its_own_product_family(kit: FakeAwsClient) -> None:
    shared, metal = prices(kit, **SHARED), prices(kit, **METAL)
    assert "m5.metal" in metal
    assert "m5.metal" not in shared
    assert set(all_types(kit)) == set(shared) | set(metal)
    assert min([*shared.values(), *metal.values()]) > 0


def test_spot_is_cheaper_than_on_demand_and_differs_by_zone(kit: FakeAwsClient) -> None:
    shared = prices(kit, **SHARED)
    pages = kit.ec2.get_paginator("describe_spot_price_history").paginate(
        ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"], PaginationConfig={"PageSize": 1000}
    )
    rows = [row for page in pages for row in page["SpotPriceHistory"]]
    ratios = [float(r["SpotPrice"]) / shared[r["InstanceType"]] for r in rows if r["InstanceType"] in shared]
    assert len(rows) > 4000
    assert min(ratios) > 0.25
    assert max(ratios) < 0.45
    assert len({r["SpotPrice"] for r in rows if r["InstanceType"] == "m5.large"}) > 1


def test_spot_history_is_filtered_by_type_and_zone(kit: FakeAwsClient) -> None:
    rows = kit.ec2.describe_spot_price_history(
        InstanceTypes=["m5.large"], AvailabilityZone="us-west-2b", ProductDescriptions=["Linux/UNIX"]
    )
    assert [row["AvailabilityZone"] for row in rows["SpotPriceHistory"]] == ["us-west-2b"]


def test_windows_costs_its_license_in_addition(kit: FakeAwsClient) -> None:
    windows = {"operatingSystem": "Windows", "licenseModel": "No License required"}
    assert prices(kit, instanceType="m5.large", **SHARED, **windows) == {"m5.large": pytest.approx(0.188)}
    assert prices(kit, instanceType="m6g.large", **SHARED, **windows) == {}, "no Windows image supports arm64"
    rows = kit.ec2.describe_spot_price_history(InstanceTypes=["m5.large"], AvailabilityZone="us-west-2b")
    spot = {row["ProductDescription"]: float(row["SpotPrice"]) for row in rows["SpotPriceHistory"]}
    assert spot["Windows"] - spot["Linux/UNIX"] == pytest.approx(0.092)
