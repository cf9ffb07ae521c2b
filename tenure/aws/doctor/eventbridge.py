"""Checks of the EventBridge rules: each kind of event needs an enabled rule that matches it and targets the queue.

AWS sends its own events only to the default bus of the region. Invalid patterns match nothing, and neither do pattern
operators for numbers and addresses, which these events do not have.
"""

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from deploy.commands import deploy_stack
from tenure.aws.client.client import AwsClients
from tenure.aws.doctor.queue import AREA
from tenure.model.base import Value
from tenure.model.errors import Fault, Finding, Subject
from tenure.model.interruption.messages import EventKind

_EC2: Final = "aws.ec2"
_STATE_CHANGE: Final = "EC2 Instance State-change Notification"
_INSTANCE: Final = "i-0123456789abcdef0"
_Event = tuple[str, str, Mapping[str, Any]]

_MAINTENANCE: Final = {
    "service": "EC2",
    "eventTypeCategory": "scheduledChange",
    "eventTypeCode": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
    "affectedEntities": [{"entityValue": _INSTANCE}],
}
_EVENTS: Final[Mapping[EventKind, tuple[_Event, ...]]] = {
    "spotInterruption": (
        (_EC2, "EC2 Spot Instance Interruption Warning", {"instance-action": "terminate"}),
        (_EC2, "EC2 Spot Instance Interruption Warning", {"instance-action": "stop"}),
        (_EC2, "EC2 Spot Instance Interruption Warning", {"instance-action": "hibernate"}),
    ),
    "capacityReservationInterruption": (
        (_EC2, "EC2 Capacity Reservation Instance Interruption Warning", {"instance-action": "terminate"}),
    ),
    "rebalanceRecommendation": ((_EC2, "EC2 Instance Rebalance Recommendation", {}),),
    "scheduledChange": (("aws.health", "AWS Health Event", _MAINTENANCE),),
    "instanceStopping": (
        (_EC2, _STATE_CHANGE, {"state": "stopping"}),
        (_EC2, _STATE_CHANGE, {"state": "stopped"}),
    ),
    "instanceTerminating": (
        (_EC2, _STATE_CHANGE, {"state": "shutting-down"}),
        (_EC2, _STATE_CHANGE, {"state": "terminated"}),
    ),
}
"""Source, detail-type and detail of the events that `tenure/aws/interruption/parser.py` parses (reference 5.1)."""
KINDS: Final = tuple(_EVENTS)
"""The kinds of events that the queue delivers."""
_DETAILS: Final[Mapping[EventKind, Mapping[str, Sequence[str]]]] = {
    "scheduledChange": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    "instanceStopping": {"state": ["stopping", "stopped"]},
    "instanceTerminating": {"state": ["shutting-down", "terminated"]},
}


def pattern_of(kind: EventKind) -> Mapping[str, Any]:
    """The event pattern of the kind's rule in the stack events.yaml; a test compares them."""
    source, detail_type, _ = _EVENTS[kind][0]
    detail = {"detail": _DETAILS[kind]} if kind in _DETAILS else {}
    return {"source": [source], "detail-type": [detail_type], **detail}


def describe_event(kind: EventKind) -> str:
    """Source and detail-type, as in a rule's pattern."""
    source, detail_type, _ = _EVENTS[kind][0]
    return f"source {source}, detail-type {detail_type}"


def events_of(kind: EventKind, *, account: str = "", region: str = "") -> tuple[Mapping[str, Any], ...]:
    """Sample envelopes; a rule that matches one of them delivers the kind."""
    return tuple(
        {
            "version": "0",
            "source": source,
            "detail-type": detail_type,
            "account": account,
            "region": region,
            "resources": [f"arn:aws:ec2:{region}:{account}:instance/{_INSTANCE}"],
            "detail": {**({} if source != _EC2 else {"instance-id": _INSTANCE}), **detail},
        }
        for source, detail_type, detail in _EVENTS[kind]
    )


def matches_pattern(pattern: str, event: Mapping[str, Any]) -> bool:
    """`pattern`: JSON of DescribeRule. A schedule rule has no pattern, and matches nothing."""
    try:
        parsed = json.loads(pattern) if pattern else None
    except ValueError:
        return False
    return isinstance(parsed, dict) and bool(parsed) and _object_matches(parsed, event)


def _object_matches(pattern: Mapping[str, Any], event: Any) -> bool:
    if not isinstance(event, Mapping):
        return False
    return all(
        any(isinstance(one, Mapping) and _object_matches(one, event) for one in expected)
        if key == "$or"
        else _field_matches(expected, key, event)
        for key, expected in pattern.items()
    )


def _field_matches(expected: Any, key: str, event: Mapping[str, Any]) -> bool:
    value = event.get(key)
    many = value if isinstance(value, list) else [value]
    if isinstance(expected, Mapping):
        return any(_object_matches(expected, one) for one in many)
    if not isinstance(expected, list):
        return False
    return any(_value_matches(one, single, there=key in event) for one in expected for single in many)


def _value_matches(expected: Any, value: Any, *, there: bool) -> bool:
    if not isinstance(expected, Mapping):
        return there and bool(expected == value)
    if "exists" in expected:
        return expected["exists"] is there
    return (
        there
        and isinstance(value, str)
        and all(_operator_matches(name, operand, value) for name, operand in expected.items())
    )


def _operator_matches(name: str, operand: Any, value: str) -> bool:
    match name:
        case "prefix" if isinstance(operand, str):
            return value.startswith(operand)
        case "suffix" if isinstance(operand, str):
            return value.endswith(operand)
        case "equals-ignore-case" if isinstance(operand, str):
            return value.lower() == operand.lower()
        case "wildcard" if isinstance(operand, str):
            return fnmatchcase(value, operand.replace("[", "[[]").replace("?", "[?]"))
        case "anything-but" if isinstance(operand, Mapping):
            return not any(_operator_matches(inner, one, value) for inner, one in operand.items())
        case "anything-but":
            return value not in (operand if isinstance(operand, list) else [operand])
        case _:
            return False


DEFAULT_BUS: Final = "default"
_MISSED: Final[Mapping[EventKind, str]] = {
    "spotInterruption": "no notice of spot interruptions",
    "capacityReservationInterruption": "no notice of interruptions of reserved capacity",
    "rebalanceRecommendation": "no notice of rebalance recommendations",
    "scheduledChange": "maintenance is only detected from the instance status, up to a minute later",
    "instanceStopping": "instances stopped outside Tenure are detected late",
    "instanceTerminating": "instances terminated outside Tenure are detected late",
}
_VITAL: Final = frozenset({"spotInterruption", "instanceStopping", "instanceTerminating"})
"""Without these events, pods are killed without notice."""
_MAX_RULE_NAME: Final = 64
"""EventBridge's limit. A shortened name could be that of another cluster's rule."""
_MAX_LISTED: Final = 3
"""Rules with other targets that a message lists."""


class Rule(Value):
    name: str
    arn: str = ""
    bus: str = DEFAULT_BUS
    on: bool = True
    pattern: str = ""
    targets: tuple[str, ...] = ()


class QueueTarget(Value):
    queue: str
    arn: str
    cluster: str
    """Its name in EKS, for commands."""

    @property
    def region(self) -> str:
        return self.arn.split(":")[3]

    def is_meant_by(self, rule: Rule) -> bool:
        """Whether a rule probably lacks this target by mistake: it has none, or a queue with this name elsewhere."""
        return not rule.targets or any(":sqs:" in one and one.endswith(f":{self.queue}") for one in rule.targets)

    def accepts_kind(self, rule: Rule, kind: EventKind) -> bool:
        events = events_of(kind, account=self.arn.split(":")[4], region=self.region)
        return any(matches_pattern(rule.pattern, one) for one in events)


async def check_rules(
    clients: AwsClients, where: QueueTarget, rules: Sequence[Rule], ignored: frozenset[EventKind]
) -> list[Finding]:
    """One finding per kind. `ignored`: kinds that every NodePool's policies ignore."""
    silent = [kind for kind in KINDS if kind not in ignored and not any(where.accepts_kind(one, kind) for one in rules)]
    near = await _find_near_misses(clients, where, silent, {one.name for one in rules}) if silent else []
    return [_check_kind(kind, where, rules, near, ignored) for kind in KINDS]


def _check_kind(
    kind: EventKind, where: QueueTarget, rules: Sequence[Rule], near: Sequence[Rule], ignored: frozenset[EventKind]
) -> Finding:
    at, found = Subject(AREA, f"rule for {kind}"), [one for one in rules if where.accepts_kind(one, kind)]
    if at_work := next((one for one in found if one.on), None):
        needless = ", although every NodePool's LifecyclePolicies ignore them" if kind in ignored else ""
        return at.ok(f"rule {at_work.name} sends them{needless}")
    if kind in ignored:
        return at.ok("no rule, and every NodePool's LifecyclePolicies ignore them")
    level = at.problem if kind in _VITAL else at.advice
    if found:
        todo = f"aws events enable-rule --name {found[0].name} --region {where.region}"
        return level(f"rule {found[0].name} is disabled: {_MISSED[kind]}", todo)
    message, todo = _explain_missing_rule(kind, where, [one for one in near if where.accepts_kind(one, kind)])
    return level(f"{message}: {_MISSED[kind]}", todo)


def _explain_missing_rule(kind: EventKind, where: QueueTarget, near: Sequence[Rule]) -> tuple[str, str]:
    """The problem and the remedy. Rules of other clusters in the region match the same events and are not a problem."""
    if meant := next((one for one in near if one.bus != DEFAULT_BUS or where.is_meant_by(one)), None):
        if meant.bus != DEFAULT_BUS:
            message = f"rule {meant.name} is on the bus {meant.bus}, which does not receive AWS's own events"
            return message, f"create the rule on the default bus of {where.region}: {_create_rule(kind, where)}"
        message = f"rule {meant.name} sends them to {_join_targets(meant.targets)}, not to this queue"
        return message, _put_target(meant.name, where)
    elsewhere = "; ".join(f"{one.name} sends them to {_join_targets(one.targets)}" for one in near[:_MAX_LISTED])
    rule = f"a rule in {where.region} for {describe_event(kind)} with target {where.arn}"
    todo = f"create {rule}: {_create_rule(kind, where)}"
    return "no rule sends them here" + (f" ({elsewhere})" if elsewhere else ""), todo


def _create_rule(kind: EventKind, where: QueueTarget) -> str:
    """Commands for a queue that others created, such as Karpenter's stack, and for a queue of the stack events.yaml.

    That stack creates a queue, so it fails if the queue exists without it.
    """
    name = f"tenure-{where.cluster}-{kind}"
    name = name if len(name) <= _MAX_RULE_NAME else "RULE-NAME"
    pattern = json.dumps(pattern_of(kind), separators=(",", ":"))
    put = f"aws events put-rule --name {name} --region {where.region} --event-pattern '{pattern}'"
    stack = deploy_stack("events", where.cluster, f"{kind[0].upper()}{kind[1:]}=true", region=where.region)
    return (
        f"{put} && {_put_target(name, where)}; only if the stack tenure-events-{where.cluster} created the queue, "
        f"instead {stack}"
    )


def _put_target(rule: str, where: QueueTarget) -> str:
    return f"aws events put-targets --rule {rule} --region {where.region} --targets Id=tenure,Arn={where.arn}"


def _join_targets(targets: Sequence[str]) -> str:
    return ", ".join(targets) or "no target"


async def _find_near_misses(
    clients: AwsClients, where: QueueTarget, kinds: Sequence[EventKind], known: set[str]
) -> list[Rule]:
    """Rules for these kinds with another bus or target. Rules that the credentials cannot read are left out."""
    found = []
    try:
        for raw in await _paginate(clients, clients.events.list_rules, "Rules"):
            rule = _parse_rule(raw, DEFAULT_BUS)
            if rule.name not in known and any(where.accepts_kind(rule, kind) for kind in kinds):
                response = await clients.call(clients.events.list_targets_by_rule, Rule=rule.name)
                targets = tuple(str(one["Arn"]) for one in response.get("Targets", ()))
                found.append(rule.model_copy(update={"targets": targets}))
    except Fault:
        pass
    try:
        buses = (await clients.call(clients.events.list_event_buses)).get("EventBuses", [])
        for bus in (str(one["Name"]) for one in buses if one["Name"] != DEFAULT_BUS):
            found += await rules_targeting(clients, where.arn, bus)
    except Fault:
        pass
    return found


async def rules_targeting(clients: AwsClients, arn: str, bus: str = DEFAULT_BUS) -> list[Rule]:
    """The rules on the bus that target the queue. Raises model.faults."""
    names = await _paginate(
        clients, clients.events.list_rule_names_by_target, "RuleNames", TargetArn=arn, EventBusName=bus
    )
    responses = [await clients.call(clients.events.describe_rule, Name=name, EventBusName=bus) for name in names]
    return [_parse_rule(one, bus) for one in responses]


async def _paginate(clients: AwsClients, method: Any, key: str, **request: Any) -> list[Any]:
    """For calls without a botocore paginator, at least in some versions."""
    found, token = list[Any](), ""
    while True:
        response = await clients.call(method, **request, **({"NextToken": token} if token else {}))
        found += response.get(key, ())
        token = response.get("NextToken") or ""
        if not token:
            return found


def _parse_rule(raw: Mapping[str, Any], bus: str) -> Rule:
    return Rule(
        name=str(raw["Name"]),
        arn=str(raw.get("Arn", "")),
        bus=bus,
        on=str(raw.get("State", "ENABLED")).startswith("ENABLED"),
        pattern=str(raw.get("EventPattern") or ""),
    )
