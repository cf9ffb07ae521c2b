"""Policies in deploy/iam: short enough for IAM, with exactly the actions that the worker calls."""

import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from tenure.sandbox.aws.iam.policy import shipped_policies
from tenure.sandbox.aws.iam.service_rules import RIGHTS
from tests.support.paths import ROOT

MANAGED_POLICY_CHARACTERS = 6144
SERVICES = ("ec2", "iam", "ssm", "eks", "sqs", "pricing", "arc-zonal-shift")
# AWS requires these of callers that create a profile with tags, or add a role to it.
IMPLIED = {"iam:TagInstanceProfile", "iam:PassRole"}
LONGEST = shipped_policies(cluster="c" * 100, region="ap-southeast-2", account="123456789012", partition="aws-us-gov")


@pytest.mark.parametrize("name", LONGEST)
def test_policy_fits_into_managed_policy(name: str) -> None:
    """IAM does not count white space. The longest name of an EKS cluster has 100 characters."""
    text = re.sub(r"\s", "", json.dumps(LONGEST[name]))
    assert len(text) <= MANAGED_POLICY_CHARACTERS
    assert "${" not in text


def test_statement_ids_are_unique() -> None:
    sids = [statement["Sid"] for policy in LONGEST.values() for statement in policy["Statement"]]
    assert len(sids) == len(set(sids)) == 20


def granted() -> set[str]:
    found: set[str] = set()
    for policy in LONGEST.values():
        for statement in policy["Statement"]:
            actions: Any = statement["Action"]
            found |= {actions} if isinstance(actions, str) else set(actions)
    return found


def called() -> set[str]:
    """Actions whose boto3 methods the worker's adapters name. The doctor runs with other credentials."""
    session: Any = botocore.session.get_session()
    methods = {
        xform_name(operation): f"{service}:{operation}"
        for service in SERVICES
        for operation in session.get_service_model(service).operation_names
    }
    files = [file for file in Path(ROOT, "tenure", "aws").rglob("*.py") if "doctor" not in file.parts]
    names = {name for file in files for name in re.findall(r"\.([a-z0-9_]+)\b", file.read_text())}
    found = (methods[name].partition(":") for name in names & set(methods))
    return {f"{service}:{RIGHTS.get((service, operation), operation)}" for service, _, operation in found}


def test_exactly_called_actions_are_granted() -> None:
    assert called() <= granted()
    assert granted() - called() <= IMPLIED


def test_no_action_is_granted_by_wildcard() -> None:
    assert [action for action in granted() if "*" in action] == []
