"""A wrong setting is one line that says which and what to write, and exit code 2."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tenure.cli.admin.servers import command
from tenure.cli.sandbox.worker_process import clean_environment
from tests.support.product.product import Product

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"CLUSTER_NAME": None}, ["CLUSTER_NAME", "is not set"]),
        ({"TEMPORAL_ADDRESS": NOWHERE}, ["TEMPORAL_ADDRESS", NOWHERE, "no Temporal service"]),
        ({"KUBECONFIG": "/nowhere/config"}, ["KUBECONFIG", "/nowhere/config"]),
        ({"FEATURE_GATES": "NodeRepare=true"}, ["FEATURE_GATES", "NodeRepare", "NodeRepair"]),
        ({"BATCH_MAX_DURATION": "soon"}, ["BATCH_MAX_DURATION", "soon"]),
        ({"METRICS_PORT": "seventy"}, ["METRICS_PORT", "seventy"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, Mapping) else "",
)
async def test_it_is_said_in_one_line(product: Product, settings: dict[str, str | None], words: list[str]) -> None:
    code, said = await _start(product.sandbox.environment(), settings)
    assert code == 2, said
    assert len(said.splitlines()) == 1, said
    assert all(word in said for word in words), said


async def test_a_cluster_that_does_not_answer_is_named(product: Product, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(product.sandbox.kubeconfig.read_text().replace(product.sandbox.apiserver, f"https://{NOWHERE}"))
    code, said = await _start(product.sandbox.environment(), {"KUBECONFIG": str(config)})
    assert (code, len(said.splitlines())) == (2, 1), said
    assert "KUBECONFIG" in said and str(config) in said


async def test_a_flag_that_is_not_known_is_named(product: Product) -> None:
    code, said = await _start(product.sandbox.environment(), {}, "--cluster-nam=demo")
    assert (code, len(said.splitlines())) == (2, 1), said
    assert "--cluster-nam" in said and "--help" in said


async def _start(
    environment: Mapping[str, str], settings: Mapping[str, str | None], *flags: str
) -> tuple[int | None, str]:
    """Exit code, and all that it printed."""
    asked = clean_environment() | dict(environment) | {"HEALTH_PROBE_PORT": "0", "METRICS_PORT": "0"} | dict(settings)
    child = await asyncio.create_subprocess_exec(
        *command(list(flags)),
        env={name: value for name, value in asked.items() if value is not None},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await child.communicate()
    return child.returncode, said.decode()
