"""The API server accepts or rejects objects as the tables in `rows/` say, with one row per field value."""

from pathlib import Path

import pytest

from tests.adapters.apis.server import ApiServerClient, assert_row
from tests.support.apis.crd_rows import (
    BASES,
    CAPACITYBUFFER,
    Object,
    Row,
    accepts,
    load_table,
    rows_of,
)

ROWS = Path(__file__).parent / "rows"
CASES = [
    pytest.param(base, row, id=f"{base['kind']} {row}")
    for base in BASES
    for row in rows_of(load_table(ROWS / f"{base['kind'].lower()}.yaml"))
]


@pytest.mark.parametrize(("base", "row"), CASES)
async def test_api_server_accepts_or_rejects_row(base: Object, row: Row, server: ApiServerClient) -> None:
    await assert_row(server, base, row)


async def test_capacity_buffer_strategy_has_a_default(server: ApiServerClient) -> None:
    found = await assert_row(server, CAPACITYBUFFER, accepts("bare"))
    assert found["spec"]["provisioningStrategy"] == "buffer.x-k8s.io/active-capacity"


async def test_capacity_buffer_of_v1alpha1_is_accepted(server: ApiServerClient) -> None:
    older = CAPACITYBUFFER | {"apiVersion": "autoscaling.x-k8s.io/v1alpha1"}
    path = "/apis/autoscaling.x-k8s.io/v1alpha1/namespaces/default/capacitybuffers"
    status, response = await server.create(older, path=path)
    assert status == 201, response
