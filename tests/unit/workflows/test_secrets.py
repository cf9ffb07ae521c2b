"""Worker secrets and user data are neither in histories nor in logs, also without payload encryption."""

import base64
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.model.errors import TryLater
from tenure.model.launch import LaunchPreparation
from tenure.model.provider_results import ResolvedNodeClass
from tenure.settings import load
from tenure.worker.settings import aws_settings, temporal_security
from tests.support.fakes.cloud import FakeFleet, FakeResolver
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import wait_until
from tests.support.workflows.nodeclaim_workflows import observe_empty, ready_nodeclaim, start_nodeclass, start_nodepool

API_KEY, SECRET, SESSION, USER_DATA = (f"MARK-{name}-5f1d" for name in ("api-key", "secret", "session", "user-data"))
ENVIRONMENT = {"TEMPORAL_API_KEY": API_KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": SESSION}
SECRETS = (*ENVIRONMENT.values(), USER_DATA)
PLAIN_TEXT = "node-a"
"""The node's name. The search must find it; otherwise it would find no secret either."""
ERROR_MESSAGE = "the answer was lost, 7c20"
"""Message of an injected fault, which the log must contain."""


@dataclass
class ReadingFleet(FakeFleet):
    read: list[str] = field(default_factory=list)

    async def prepare(self, claim: Any, node_class: EC2NodeClass, **more: Any) -> LaunchPreparation:
        self.read.append(node_class.spec.user_data or "")
        return await super().prepare(claim, node_class, **more)


@dataclass
class ReadingResolver(FakeResolver):
    read: list[str] = field(default_factory=list)

    async def resolve(self, node_class: EC2NodeClass, pools: Sequence[NodePool] = ()) -> ResolvedNodeClass:
        self.read.append(node_class.spec.user_data or "")
        return await super().resolve(node_class, pools)


def set_user_data(fake: WorkerHarness) -> None:
    raw = fake.node_classes.found["default"].to_object()
    raw["spec"] = {**raw.get("spec", {}), "userData": f"#!/bin/sh\necho {USER_DATA}\n"}
    fake.node_classes.found["default"] = EC2NodeClass.model_validate(raw)


async def serialized_history(handle: WorkflowHandle[Any, Any]) -> bytes:
    """Serialized events of a workflow. Payloads are plain JSON here; `to_json` would encode them as base64."""
    history = await handle.fetch_history()
    return b"\n".join(event.SerializeToString() for event in history.events)


def find_secrets(text: bytes) -> list[str]:
    """Find secrets in plain text or in base64, EC2's encoding of user data, at any offset."""
    found = [one for one in SECRETS if one.encode() in text]
    for one in SECRETS:
        inner = (base64.b64encode(b" " * before + one.encode())[4:-4] for before in range(3))
        found += [one for part in inner if part in text]
    return found


@pytest.mark.usefixtures("plain_log")
async def test_histories_and_log_contain_no_secrets_or_user_data(
    skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    settings = load(["--cluster-name", "demo"])
    fake = WorkerHarness.on(skipping)
    fleet, resolver = ReadingFleet(fake.instances, lost_responses=[TryLater(ERROR_MESSAGE)]), ReadingResolver()
    fake.fleet, fake.resolver = fleet, resolver
    set_user_data(fake)
    with caplog.at_level(logging.DEBUG), capture_logs() as log_entries:
        structlog.get_logger().info("starts", given=(settings, temporal_security(settings), aws_settings(settings)))
        async with fake.running_worker():
            pooled, classed = await start_nodepool(fake), await start_nodeclass(fake)
            handle = await ready_nodeclaim(fake)
            await wait_until(lambda: bool(resolver.read))
            await observe_empty(fake, handle)
            assert (await handle.result()).reason == "Empty"
    assert settings.temporal_api_key == API_KEY, "the worker read it"
    assert USER_DATA in fleet.read[0] and USER_DATA in resolver.read[0], "activities read it"
    nodeclaim_history = await serialized_history(handle)
    histories = {
        "claim": nodeclaim_history,
        "pool": await serialized_history(pooled),
        "class": await serialized_history(classed),
    }
    log = f"{caplog.text}\n{log_entries}".encode()
    assert (
        PLAIN_TEXT.encode() in nodeclaim_history
        and b"default" in histories["pool"]
        and b"default" in histories["class"]
    )
    assert ERROR_MESSAGE.encode() in log and b"demo" in log
    found = {name: find_secrets(text) for name, text in {**histories, "log": log}.items()}
    assert {name: secrets for name, secrets in found.items() if secrets} == {}
