"""IAM policy documents, parsed strictly, and their decision: an explicit deny wins, then any allow, else denied.

Also the IAM policies of deploy/iam, rendered for one cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deploy.resources import IAM_FILES, render
from tenure.sandbox.aws.iam.conditions import (
    Context,
    check_operator,
    condition_holds,
    matches_wildcard,
    wildcard_pattern,
)

Decision = Literal["allow", "deny", "implicit-deny"]


IDENTITY = "identity-based policy"
BOUNDARY = "permissions boundary"
ORGANIZATION = "service control policy"


@dataclass(frozen=True)
class AuthorizationDecision:
    """`layer`: the kind of policy that denied it."""

    decision: Decision
    layer: str = ""


@dataclass(frozen=True)
class Statement:
    sid: str
    allow: bool
    actions: tuple[str, ...]
    not_actions: tuple[str, ...]
    resources: tuple[str, ...]
    not_resources: tuple[str, ...]
    conditions: tuple[tuple[str, str, tuple[str, ...]], ...]

    def applies(self, action: str, resource: str, context: Context) -> bool:
        return self.is_about(action, resource) and all(
            condition_holds(operator, key, expected, context) for operator, key, expected in self.conditions
        )

    def is_about(self, action: str, resource: str) -> bool:
        """Whether action and resource match, without the conditions."""
        return self._covers_action(action) and self._covers_resource(resource)

    def _covers_action(self, action: str) -> bool:
        if self.not_actions:
            return not any(wildcard_pattern(p, ignore_case=True).fullmatch(action) for p in self.not_actions)
        return any(wildcard_pattern(p, ignore_case=True).fullmatch(action) for p in self.actions)

    def _covers_resource(self, resource: str) -> bool:
        if self.not_resources:
            return not any(matches_wildcard(p, resource) for p in self.not_resources)
        return any(matches_wildcard(p, resource) for p in self.resources)


def read_policy(document: Mapping[str, Any]) -> tuple[Statement, ...]:
    """Raises ValueError for a document that IAM would reject, for unknown operators, and for placeholders."""
    if "${" in str(document):
        raise ValueError("the policy contains placeholders; render it first")
    statements = document.get("Statement")
    if document.get("Version") != "2012-10-17" or not statements:
        raise ValueError("a policy needs Version 2012-10-17 and a Statement")
    found = [statements] if isinstance(statements, Mapping) else statements
    return tuple(_parse_statement(one) for one in found)


def decide_layers(
    layers: Mapping[str, Sequence[Statement]], action: str, resource: str, context: Context
) -> AuthorizationDecision:
    """All layers must allow. A deny in any layer wins, else the first layer without an allow decides."""
    found = {layer: decide(policy, action, resource, context) for layer, policy in layers.items()}
    for decision in ("deny", "implicit-deny"):
        for layer, own in found.items():
            if own == decision:
                return AuthorizationDecision(own, layer)
    return AuthorizationDecision("allow")


def decide(policy: Sequence[Statement], action: str, resource: str, context: Context) -> Decision:
    applying = [one for one in policy if one.applies(action, resource, context)]
    if any(not one.allow for one in applying):
        return "deny"
    return "allow" if applying else "implicit-deny"


def _parse_statement(raw: Mapping[str, Any]) -> Statement:
    unknown = set(raw) - {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"}
    if unknown:
        raise ValueError(f"unknown elements in a statement: {', '.join(sorted(unknown))}")
    if raw.get("Effect") not in ("Allow", "Deny"):
        raise ValueError("Effect must be Allow or Deny")
    if ("Action" in raw) == ("NotAction" in raw) or ("Resource" in raw) == ("NotResource" in raw):
        raise ValueError("a statement needs Action or NotAction, and Resource or NotResource")
    return Statement(
        sid=raw.get("Sid", ""),
        allow=raw["Effect"] == "Allow",
        actions=_parse_texts(raw.get("Action", ())),
        not_actions=_parse_texts(raw.get("NotAction", ())),
        resources=_parse_texts(raw.get("Resource", ())),
        not_resources=_parse_texts(raw.get("NotResource", ())),
        conditions=tuple(_parse_conditions(raw.get("Condition", {}))),
    )


def _parse_conditions(raw: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, tuple[str, ...]]]:
    found = []
    for operator, keys in raw.items():
        check_operator(operator)
        found += [(operator, key, _parse_texts(values)) for key, values in keys.items()]
    return found


def _parse_texts(value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, (str, bool, int)) else list(value)
    return tuple(str(one).lower() if isinstance(one, bool) else str(one) for one in values)


def render_policy(
    text: str, *, cluster: str, region: str, account: str, node_role: str | None = None, partition: str = "aws"
) -> dict[str, Any]:
    """Replace the placeholders of a policy document. The default node role is KarpenterNodeRole-<cluster>."""
    values = {
        "ClusterName": cluster,
        "AWS::Region": region,
        "AWS::AccountId": account,
        "AWS::Partition": partition,
        "NodeRoleName": node_role or f"KarpenterNodeRole-{cluster}",
        "InterruptionQueueName": cluster,
    }
    return render(text, values)


def shipped_policies(*, cluster: str, region: str, account: str, partition: str = "aws") -> dict[str, dict[str, Any]]:
    """The policy documents for a cluster, by file name without extension."""
    return {
        file.stem: render_policy(file.read_text(), cluster=cluster, region=region, account=account, partition=partition)
        for file in IAM_FILES
    }
