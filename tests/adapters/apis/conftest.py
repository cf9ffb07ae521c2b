"""One HTTP session to the sandbox's API server for all rows of the tables."""

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.adapters.apis.server import ApiServerClient
from tests.support.product.shared_sandbox import SharedSandbox


@pytest.fixture(scope="session")
async def server(shared_sandbox: SharedSandbox) -> AsyncIterator[ApiServerClient]:
    config = _read(Path(shared_sandbox.kubeconfig))
    cluster = config["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster.get("certificate-authority-data", ""))
    tls = ssl.create_default_context(cadata=authority.decode()) if authority else False
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), headers=headers) as session:
        yield ApiServerClient(session, cluster["server"])


def _read(kubeconfig: Path) -> Any:
    return yaml.safe_load(kubeconfig.read_text())
