"""A kubeconfig that cannot be used is one line that names the file."""

from pathlib import Path

import pytest

from tenure.kube.client.client import connect
from tenure.model.errors import BadInput

CLUSTER = """
clusters: [{name: demo, cluster: {server: https://127.0.0.1:1, CERTIFICATE}}]
users: [{name: ann, user: {}}]
contexts: [{name: demo, context: {cluster: demo, user: ann}}]
current-context: demo
"""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "clusters: 5",
        CLUSTER.replace("CERTIFICATE", "certificate-authority-data: bm90IGEgY2VydGlmaWNhdGU="),
        CLUSTER.replace("CERTIFICATE", "certificate-authority-data: x"),
    ],
    ids=["empty", "list", "no YAML", "wrong type", "no certificate", "no base64"],
)
async def test_damaged_kubeconfig_is_named_in_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(BadInput, match=f"no Kubernetes cluster configured in {file}: .") as error:
        await connect(str(file))
    assert "\n" not in error.value.message
