"""Existing launch templates are cached while they are in use."""

from typing import cast

from tenure.aws.client.client import AwsClients
from tenure.aws.instance.launch_templates import LaunchTemplate, LaunchTemplates
from tests.support.aws.builders import SETTINGS
from tests.unit.aws.fakes import FakeClients


async def test_use_renews_cache_entry_and_unused_entry_expires() -> None:
    clients, now = FakeClients({"describe_launch_templates": [{"LaunchTemplateName": "one"}]}), 0.0
    templates = LaunchTemplates(cast(AwsClients, clients), SETTINGS, clock=lambda: now)
    one = LaunchTemplate(name="one", data={}, tags={})
    for now in (0.0, 40.0, 80.0, 120.0):  # noqa: B007 - the clock reads it
        await templates.ensure([one])
    assert clients.call_counts["describe_launch_templates"] == 1
    now = 181.0
    await templates.ensure([one])
    assert clients.call_counts["describe_launch_templates"] == 2
    templates.forget(["one"])
    await templates.ensure([one])
    assert clients.call_counts["describe_launch_templates"] == 3
