"""CreateFleet errors that remove launch templates from the cache."""

from collections.abc import Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.aws.client.client import AwsClients
from tenure.aws.instance.create_fleet import FleetCalls
from tenure.aws.instance.instances import AwsInstances
from tenure.aws.instance.launch_templates import LaunchTemplates
from tenure.aws.instancetype.capacity_reservations import ReservationCounts
from tenure.aws.instancetype.unavailable_offerings import UnavailableOfferings
from tenure.aws.nodeclass.subnets_and_security_groups import FreeAddresses
from tests.support.aws.builders import launch_group


class RecordingTemplates:
    """Records removed launch templates."""

    def __init__(self) -> None:
        self.invalidated = set[str]()

    def forget(self, names: Iterable[str]) -> None:
        self.invalidated |= {*names}


async def invalidated_templates_after(*codes: str) -> set[str]:
    """Names of launch templates that are removed after CreateFleet errors with these codes."""
    errors = [{"ErrorCode": code, "ErrorMessage": "no", "LaunchTemplateAndOverrides": {}} for code in codes]

    async def call(method: object, **request: Any) -> dict[str, Any]:
        return {"Instances": [], "Errors": errors}

    templates = RecordingTemplates()
    calls = FleetCalls(
        cast(AwsClients, SimpleNamespace(call=call, ec2_without_retries=SimpleNamespace(create_fleet=None))),
        templates=cast(LaunchTemplates, templates),
        instances=cast(AwsInstances, None),
        unavailable=UnavailableOfferings(),
        free=FreeAddresses(),
        counts=ReservationCounts(lambda: datetime.now(UTC)),
    )
    await calls.create(launch_group())
    return templates.invalidated


@pytest.mark.parametrize("code", ["InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound"])
async def test_missing_launch_templates_are_removed_from_cache(code: str) -> None:
    assert await invalidated_templates_after("InsufficientInstanceCapacity", code) == {
        "karpenter.k8s.aws/0",
        "karpenter.k8s.aws/1",
    }


@pytest.mark.parametrize("codes", [(), ("InsufficientInstanceCapacity",), ("InvalidAMIID.NotFound",)])
async def test_other_errors_keep_launch_templates(codes: tuple[str, ...]) -> None:
    assert await invalidated_templates_after(*codes) == set()
