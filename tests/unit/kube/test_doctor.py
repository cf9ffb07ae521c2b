"""`tenure doctor` checks the installed kinds by the HTTP code of a list request."""

from typing import cast

import pytest

from tenure.kube.client.client import KubeClient, Response
from tenure.kube.doctor import check_kinds


class Api:
    """Answers every request with one HTTP code."""

    def __init__(self, code: int) -> None:
        self.code = code

    async def send(self, method: str, path: str, *, params: dict[str, str]) -> Response:
        return Response(self.code, b"{}")


@pytest.mark.parametrize(
    ("code", "level", "message"),
    [
        (200, "ok", "served as v1"),
        (404, "problem", "the kind is not installed"),
        (403, "unknown", "cannot be listed (HTTP 403)"),
        (500, "unknown", "cannot be listed (HTTP 500)"),
    ],
)
async def test_kind_is_reported_as_not_installed_only_after_404(code: int, level: str, message: str) -> None:
    found = await check_kinds(cast(KubeClient, Api(code)))
    assert {one.level for one in found} == {level}
    assert all(one.message.startswith(message) for one in found)
    assert [one.subject for one in found] == [
        "nodepools.karpenter.sh",
        "nodeclaims.karpenter.sh",
        "ec2nodeclasses.karpenter.k8s.aws",
        "lifecyclepolicies.tenure.sh",
    ]
