"""iam:SimulatePrincipalPolicy and SimulateCustomPolicy, with the evaluator that also authorizes calls.

A principal's policies are those of its access key, and those that IAM stores for a role.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from moto.iam.models import iam_backends

from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.iam.policy import Statement, decide, read_policy
from tenure.sandbox.aws.settings import WORKER_KEY
from tenure.sandbox.aws.wire.responses import AwsError, Response, xml_response

NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"
DECISIONS = {"allow": "allowed", "deny": "explicitDeny", "implicit-deny": "implicitDeny"}


def simulate_principal_policy(fake_aws: FakeAws, call: AwsCall) -> Response:
    """Raises NoSuchEntity for an unknown principal."""
    policy = _policies_of(fake_aws, call.form.get("PolicySourceArn", ""))
    return _simulate(call, (*policy, *_read_input_policies(call)))


def simulate_custom_policy(fake_aws: FakeAws, call: AwsCall) -> Response:
    return _simulate(call, _read_input_policies(call))


def list_members(form: dict[str, str], name: str) -> list[str]:
    """The members of a list parameter, in order."""
    found: list[str] = []
    while (value := form.get(f"{name}.member.{len(found) + 1}")) is not None:
        found.append(value)
    return found


def _read_input_policies(call: AwsCall) -> tuple[Statement, ...]:
    try:
        documents = [json.loads(text) for text in list_members(call.form, "PolicyInputList")]
        return tuple(one for document in documents for one in read_policy(document))
    except ValueError as error:
        raise AwsError("InvalidInput", f"A policy cannot be read: {error}") from None


def _policies_of(fake_aws: FakeAws, arn: str) -> tuple[Statement, ...]:
    settings = fake_aws.settings
    if arn == f"arn:aws:iam::{settings.account}:role/{settings.controller_role()}":
        return fake_aws.keys.policy_of(WORKER_KEY) or ANYTHING
    if ":user/" in arn:
        return fake_aws.keys.policy_of(arn.rsplit("/", 1)[-1]) or ANYTHING
    backend = iam_backends[settings.account]["aws"]
    role = next((one for one in backend.roles.values() if one.arn == arn), None)
    if role is None:
        raise AwsError("NoSuchEntity", f"The entity {arn} cannot be found.")
    texts = [*role.policies.values(), *(_policy_document(one) for one in role.managed_policies.values())]
    return tuple(statement for text in texts for statement in read_policy(json.loads(unquote(text))))


def _policy_document(managed: Any) -> str:
    current = (one.document for one in managed.versions if one.version_id == managed.default_version_id)
    return str(next(current))


ANYTHING = read_policy({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})


def _simulate(call: AwsCall, policy: tuple[Statement, ...]) -> Response:
    actions, context = list_members(call.form, "ActionNames"), _request_context(call.form)
    resources = list_members(call.form, "ResourceArns") or ["*"]
    results = "".join(
        f"<member>{_result_xml(policy, action, resource, context)}</member>"
        for action in actions
        for resource in resources
    )
    return xml_response(
        f'<{call.action}Response xmlns="{NAMESPACE}"><{call.action}Result><EvaluationResults>{results}'
        f"</EvaluationResults><IsTruncated>false</IsTruncated></{call.action}Result>"
        f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata></{call.action}Response>".encode()
    )


def _request_context(form: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    while (key := form.get(f"ContextEntries.member.{len(found) + 1}.ContextKeyName")) is not None:
        prefix = f"ContextEntries.member.{len(found) + 1}.ContextKeyValues"
        found[key.lower()] = list_members(form, prefix)
    return found


def _result_xml(policy: tuple[Statement, ...], action: str, resource: str, context: dict[str, Any]) -> str:
    decision = decide(policy, action, resource, context)
    applying = [one for one in policy if one.applies(action, resource, context)]
    named = [one for one in policy if one.is_about(action, resource)]
    missing = {key for one in named for _, key, _ in one.conditions if key.lower() not in context}
    matched = _list(
        f"<SourcePolicyId>{escape(one.sid)}</SourcePolicyId><SourcePolicyType>IAM Policy</SourcePolicyType>"
        for one in applying
    )
    return (
        f"<EvalActionName>{escape(action)}</EvalActionName><EvalResourceName>{escape(resource)}</EvalResourceName>"
        f"<EvalDecision>{DECISIONS[decision]}</EvalDecision><MatchedStatements>{matched}</MatchedStatements>"
        f"<MissingContextValues>{_list(escape(key) for key in sorted(missing))}</MissingContextValues>"
    )


def _list(items: Iterable[str]) -> str:
    return "".join(f"<member>{item}</member>" for item in items)
