"""pricing:GetProducts for EC2: TERM_MATCH filters over the price table, with JSON strings like the real API."""

from __future__ import annotations

import json
import zlib
from functools import cache
from typing import Any

from tenure.sandbox.aws.ec2.catalog import prices
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tenure.sandbox.aws.ec2.filters import paginate
from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.wire.responses import AwsError, Response, aws_json

METAL, VIRTUAL = "Compute Instance (bare metal)", "Compute Instance"
DEDICATED_FACTOR = 1.06
Product = tuple[dict[str, str], str]


def get_products(fake_aws: FakeAws, call: AwsCall) -> Response:
    """Raises NotFoundException for services other than AmazonEC2."""
    request = call.parameters
    if request.get("ServiceCode") != "AmazonEC2":
        raise AwsError("NotFoundException", f"No service found for the code {request.get('ServiceCode')}")
    filters = {
        f["Field"]: f["Value"] for f in request.get("Filters", ()) if f.get("Type", "TERM_MATCH") == "TERM_MATCH"
    }
    region = filters.get("regionCode", fake_aws.settings.region)
    chosen = _matching_products(region, frozenset(filters.items()))
    page_items, token = paginate(chosen, request, lambda p: p[0]["sku"], low=1, high=100, unpaged=100)
    response: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": [text for _, text in page_items]}
    if token:
        response["NextToken"] = token
    return aws_json(response)


@cache
def _matching_products(region: str, filters: frozenset[tuple[str, str]]) -> tuple[Product, ...]:
    """For all pages of a query."""
    lowered = [(name, value.lower()) for name, value in filters]
    return tuple(p for p in _products(region) if all(p[0].get(name, "").lower() == value for name, value in lowered))


@cache
def _products(region: str) -> tuple[Product, ...]:
    made = []
    for name in all_types():
        price = prices.on_demand_price(name)
        if price is not None:
            license_price = prices.windows_license(name)
            for tenancy, factor in (("Shared", 1.0), ("Dedicated", DEDICATED_FACTOR)):
                linux = price if ".metal" in name else round(price * factor, 5)
                made.append(_make_product(region, name, tenancy, "Linux", linux))
                if license_price is not None:
                    made.append(_make_product(region, name, tenancy, "Windows", round(linux + license_price, 5)))
    return tuple(sorted(made, key=lambda product: product[0]["sku"]))


def _make_product(region: str, name: str, tenancy: str, os: str, price: float) -> Product:
    facts = all_types()[name]
    offer = f"{region}/{name}/{tenancy}" + ("" if os == "Linux" else f"/{os}")
    sku = f"{zlib.crc32(offer.encode()):08X}{len(name):02X}{zlib.crc32(name.encode()):08X}"
    attributes = {
        "sku": sku,
        "servicecode": "AmazonEC2",
        "serviceCode": "AmazonEC2",
        "serviceName": "Amazon Elastic Compute Cloud",
        "regionCode": region,
        "location": region,
        "locationType": "AWS Region",
        "instanceType": name,
        "instanceFamily": "General purpose",
        "currentGeneration": "Yes" if facts.get("CurrentGeneration") else "No",
        "vcpu": str(facts["VCpuInfo"]["DefaultVCpus"]),
        "memory": f"{facts['MemoryInfo']['SizeInMiB'] / 1024:g} GiB",
        "tenancy": tenancy,
        "operatingSystem": os,
        "operation": "RunInstances" if os == "Linux" else "RunInstances:0002",
        "preInstalledSw": "NA",
        "licenseModel": "No License required",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "usagetype": f"BoxUsage:{name}",
        "productFamily": METAL if ".metal" in name else VIRTUAL,
    }
    return attributes, json.dumps(_product_document(sku, attributes, region, price))


def _product_document(sku: str, attributes: dict[str, str], region: str, price: float) -> dict[str, Any]:
    currency = "CNY" if region.startswith("cn-") else "USD"
    public_attributes = {
        k: v for k, v in attributes.items() if k not in ("sku", "serviceCode", "productFamily", "serviceName")
    }
    rate = f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    return {
        "product": {"productFamily": attributes["productFamily"], "attributes": public_attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {
                f"{sku}.JRTCKXETXF": {
                    "sku": sku,
                    "offerTermCode": "JRTCKXETXF",
                    "effectiveDate": "2025-01-01T00:00:00Z",
                    "termAttributes": {},
                    "priceDimensions": {
                        rate: {
                            "rateCode": rate,
                            "unit": "Hrs",
                            "beginRange": "0",
                            "endRange": "Inf",
                            "description": (
                                f"${price} per On Demand {attributes['operatingSystem']} "
                                f"{attributes['instanceType']} Instance Hour"
                            ),
                            "appliesTo": [],
                            "pricePerUnit": {currency: f"{price:.10f}"},
                        }
                    },
                }
            }
        },
        "version": "20250101000000",
        "publicationDate": "2025-01-01T00:00:00Z",
    }
