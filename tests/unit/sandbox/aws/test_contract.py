"""What is ours of AWS is tested one by one, and what is moto's does what we rely on."""

from __future__ import annotations

import re

import pytest
from botocore import xform_name

from sandbox.aws.ec2.actions import ACTIONS
from sandbox.aws.services.actions import SERVICE_ACTIONS
from tests.support.paths import ROOT

OURS = sorted({*ACTIONS, *(action for _, action in SERVICE_ACTIONS)})
TESTS = "\n".join(file.read_text() for file in (ROOT / "tests").glob("*/sandbox/aws/*.py"))


@pytest.mark.parametrize("action", OURS)
def test_each_action_that_replaces_motos_is_called_by_a_test(action: str) -> None:
    assert re.search(rf"\b{xform_name(action)}\(|[\"']{xform_name(action)}[\"']", TESTS)
