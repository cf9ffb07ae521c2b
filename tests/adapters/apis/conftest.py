"""One HTTP session to the sandbox's API server for all rows of the tables."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.apis.server import ApiServerClient, open_client
from tests.support.product.shared_sandbox import SharedSandbox


@pytest.fixture(scope="session")
async def server(shared_sandbox: SharedSandbox) -> AsyncIterator[ApiServerClient]:
    async with open_client(Path(shared_sandbox.kubeconfig)) as client:
        yield client
