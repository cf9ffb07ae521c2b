"""cfn-lint accepts the shipped CloudFormation templates."""

from pathlib import Path

import pytest
from cfnlint.api import lint_all

from deploy.resources import EVENTS_STACK
from tools import cloudformation_role

TEMPLATES = [EVENTS_STACK, EVENTS_STACK.with_name("nodes.yaml"), cloudformation_role.FILE]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.stem)
def test_template_has_no_lint_error(template: Path) -> None:
    found = [one for one in lint_all(template.read_text()) if not one.rule.id.startswith("I")]
    assert [str(one) for one in found] == []
