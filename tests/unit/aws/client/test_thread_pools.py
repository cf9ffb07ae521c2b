"""Calls to a service that does not respond do not delay calls to another service."""

import asyncio
import threading
from types import SimpleNamespace

from tenure.aws.client.client import AwsClients
from tests.support.aws.builders import SETTINGS


class FakeService:
    """Replaces a boto3 client."""

    def __init__(self, name: str, responds: threading.Event) -> None:
        self.meta, self._responds = SimpleNamespace(service_model=SimpleNamespace(service_name=name)), responds

    def describe(self) -> bool:
        return self._responds.wait(10)


async def test_service_that_does_not_respond_does_not_block_calls_to_another() -> None:
    clients = AwsClients(SETTINGS.model_copy(update={"pool_size": 2}))
    hanging, ready = threading.Event(), threading.Event()
    ready.set()
    waiting = [asyncio.create_task(clients.call(FakeService("ssm", hanging).describe)) for _ in range(4)]
    try:
        await asyncio.sleep(0.05)
        async with asyncio.timeout(0.5):
            assert await clients.call(FakeService("ec2", ready).describe)
            assert await clients.in_thread(ready.is_set)
    finally:
        hanging.set()
        await asyncio.gather(*waiting)
        clients.close()
