"""Fake AWS clients for tests of when the adapters call AWS, not of AWS responses."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tenure.model.errors import Fault
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types
from tests.support.aws.builders import ZONES

R = TypeVar("R")


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds
        await asyncio.sleep(0)


class NoPlacementGroups:
    async def resolve(self, node_class: object) -> None:
        return None


class NoZonalShifts:
    async def shifted_zones(self) -> frozenset[str]:
        return frozenset()


class Named:
    """Replaces a boto3 client; its methods are their names."""

    def __getattr__(self, name: str) -> str:
        return name


class FakeClients:
    """Responds by method name, counts calls, and raises configured faults."""

    def __init__(self, responses: Mapping[str, list[Any]]) -> None:
        self.responses, self.call_counts, self.faults = responses, Counter[str](), dict[str, Fault]()
        self.ec2 = self.pricing = Named()

    async def paginate(self, method: str, key: str, pick: Callable[[Any], R], **request: Any) -> list[R]:
        self.call_counts[method] += 1
        if method in self.faults:
            raise self.faults[method]
        return [pick(item) for item in self.responses.get(method, [])]

    async def in_thread(self, work: Callable[[], R]) -> R:
        return work()


def all_responses(*names: str, price: float = 0.1) -> dict[str, list[Any]]:
    return {
        "describe_instance_types": [all_types()[name] for name in names],
        "describe_instance_type_offerings": [{"InstanceType": n, "Location": z} for n in names for z in ZONES],
        "get_products": [product(name, price) for name in names],
        "describe_spot_price_history": [],
    }


def product(name: str, price: float | str, currency: str = "USD") -> str:
    dimension = {"pricePerUnit": {currency: str(price)}}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": name}},
            "terms": {"OnDemand": {"term": {"priceDimensions": {"dimension": dimension}}}},
        }
    )
