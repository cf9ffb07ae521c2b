"""Fault rules: which instances a rule matches, how often, and which rules are invalid."""

import pytest
from pydantic import ValidationError

from tenure.sandbox.nodes.fault_rules import FaultRules, Match, NeverRegister, NotReady, Rule, SlowBoot
from tenure.sandbox.nodes.instances import Instance


def instance(number: int, *, instance_type: str = "m5.large", nodepool: str = "default") -> Instance:
    return Instance(
        id=f"i-{number}",
        state="running",
        instance_type=instance_type,
        zone="us-west-2a",
        private_dns_name=f"ip-10-0-0-{number}.us-west-2.compute.internal",
        tags={"karpenter.sh/nodepool": nodepool},
    )


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        (Match(), True),
        (Match(instance_id="i-1"), True),
        (Match(instance_type="m5.large", nodepool="default"), True),
        (Match(zone="us-west-2a"), True),
        (Match(node_name="ip-10-0-0-1.us-west-2.compute.internal"), True),
        (Match(instance_id="i-2"), False),
        (Match(instance_type="c5.large"), False),
        (Match(nodepool="gpu", zone="us-west-2a"), False),
    ],
)
def test_rule_matches_only_its_instances(match: Match, matches: bool) -> None:
    rules = FaultRules()
    rules.add(Rule(fault=SlowBoot(seconds=3), match=match))
    assert rules.match(instance(1)) == ([SlowBoot(seconds=3)] if matches else [])


def test_count_limits_matched_instances() -> None:
    rules = FaultRules()
    rule = rules.add(Rule(fault=NeverRegister(), count=2))
    matched = [rules.match(instance(number)) for number in (1, 2, 3)]
    assert matched == [[NeverRegister()], [NeverRegister()], []]
    assert rules.entries() == [(rule, frozenset({"i-1", "i-2"}))]


def test_rule_matches_an_instance_once() -> None:
    rules = FaultRules()
    rules.add(Rule(fault=NeverRegister(), count=2))
    assert rules.match(instance(1)) == [NeverRegister()]
    assert rules.match(instance(1)) == []


def test_removed_rule_matches_nothing() -> None:
    rules = FaultRules()
    rule = rules.add(Rule(fault=NotReady(for_seconds=5)))
    assert rules.remove(rule.id)
    assert not rules.remove(rule.id)
    assert rules.match(instance(1)) == []


def test_rule_survives_serialization() -> None:
    rule = Rule(fault=NotReady(after_seconds=1, for_seconds=5, new_boot_id=True), match=Match(nodepool="a"), count=1)
    assert Rule.model_validate_json(rule.model_dump_json()) == rule


@pytest.mark.parametrize(
    "text",
    [
        '{"fault": {"kind": "explode"}}',
        '{"fault": {"kind": "slow-boot", "seconds": -1}}',
        '{"fault": {"kind": "never-register"}, "count": 0}',
        '{"fault": {"kind": "never-register"}, "match": {"instanceType": "m5.large"}}',
    ],
)
def test_invalid_rule_is_rejected(text: str) -> None:
    with pytest.raises(ValidationError):
        Rule.model_validate_json(text)
