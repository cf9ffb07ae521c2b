"""The manifests of `examples/` on a real API server."""

import yaml

from tests.support.paths import ROOT
from tests.support.product.shared_sandbox import SharedSandbox


async def test_every_example_is_accepted_by_the_api_server(shared_sandbox: SharedSandbox) -> None:
    files = sorted((ROOT / "examples").rglob("*.yaml"))
    documents = [one for file in files for one in yaml.safe_load_all(file.read_text()) if "kind" in one]
    assert documents
    async with shared_sandbox.cluster.client() as api:
        for document in documents:
            path = f"{await api.path_of(document)}?fieldManager=examples&dryRun=All&fieldValidation=Strict"
            response = await api.request("PATCH", path, document, "application/apply-patch+yaml")
            assert response["metadata"]["name"] == document["metadata"]["name"]
