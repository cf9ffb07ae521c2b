"""Readers of user input return a result or a documented error for any input, in time linear in its length.

At full depth each reader gets thousands of inputs. An object reader gets one hostile value in one of the fields that
`tests/support/hostile/fields.yaml` lists for its kind.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from tenure.apis.capacitybuffer import CapacityBuffer
from tenure.apis.cron import ScheduleError, next_time
from tenure.apis.durations import DurationError, parse_duration
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.apis.quantity import QuantityError, parse
from tenure.aws.amifamily.families import FAMILIES, family_of
from tenure.aws.amifamily.user_data.config import UserDataError
from tenure.aws.amifamily.user_data.validation import why_unreadable
from tenure.aws.interruption.parser import parse as parse_message
from tenure.aws.kubelet.expressions import ExpressionError, compile_expression
from tenure.aws.nodeclass.validation import why_invalid
from tenure.kube.facts import volumes
from tenure.kube.facts.lifecycle_policies import policy_fact
from tenure.kube.facts.objects import node_fact, nodeclaim_fact, nodepool_fact, overlay_fact, pod_budget_fact
from tenure.kube.facts.pod_drain import drain_pod
from tenure.kube.facts.pods import daemonset_fact, read_pod, read_protection
from tenure.model.facts import Expression
from tenure.model.nodeoverlays import find_overlay_problem
from tenure.model.requirements import RequirementError, parse_requirement
from tenure.policy.capacity_buffer import decide_replicas
from tenure.policy.disruption.budgets import (
    CountError,
    TimestampError,
    TimeZoneError,
    parse_timestamp,
    read_count,
    zone_of,
)
from tenure.policy.lifecycle.pauses import PauseError, pause_from_annotation, read_pause
from tenure.policy.lifecycle_policy import problem_in, restrict_to_valid
from tenure.policy.nodepool import validate_nodepool
from tests.support.aws.builders import CLUSTER, SETTINGS
from tests.support.hostile.objects import MESSAGE, build_base, list_fields, put
from tests.support.hostile.values import FAMILIES as VALUES
from tests.support.product.objects import Object
from tests.support.properties import max_examples
from tests.unit.aws.amifamily.user_data_builders import rendered

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS_PER_10_KB: Final = 0.05
"""CPU time of the thread, so load from other processes does not matter."""
TEXT_EXAMPLES: Final = 2_500
OBJECT_EXAMPLES: Final = 4_000
FEW: Final = 20
"""Inputs per reader at fast depth."""

MAX_ERROR: Final = 1_000
SERVED: Final = {"uid": "u", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
TextReader = Callable[[str], object]
ObjectReader = Callable[[Object], object]


def read_requirement(operator: str, text: str) -> object:
    return parse_requirement(Expression(key="example.com/k", operator=operator, values=(text,)))


def read_policy(raw: Object) -> object:
    fact = policy_fact(raw)
    return problem_in(fact), restrict_to_valid(fact)


def read_node_class(raw: Object) -> object:
    node_class = EC2NodeClass.from_object(raw)
    return why_invalid(node_class, family_of(node_class), CLUSTER, SETTINGS)


def read_buffer(raw: Object) -> object:
    return decide_replicas(CapacityBuffer.from_object(raw).spec, {"cpu": 10, "pods": 1}, workload=100)


def read_message(body: str) -> object:
    return parse_message(body, sent=NOW)


def render_user_data(family: str, text: str) -> object:
    return rendered(family, userData=text)


TEXT_READERS: Final[dict[str, tuple[TextReader, tuple[type[Exception], ...]]]] = {
    "duration": (parse_duration, (DurationError,)),
    "quantity": (parse, (QuantityError,)),
    "schedule": (lambda text: next_time(text, NOW), (ScheduleError,)),
    "time": (parse_timestamp, (TimestampError,)),
    "time zone": (zone_of, (TimeZoneError,)),
    "number or share": (read_count, (CountError,)),
    "pause": (read_pause, (PauseError,)),
    "pause of an annotation": (pause_from_annotation, ()),
    "do-not-disrupt": (lambda text: read_protection({"karpenter.sh/do-not-disrupt": text}), ()),
    "kubelet expression": (compile_expression, (ExpressionError,)),
    "message": (read_message, ()),
    **{f"requirement {one}": (partial(read_requirement, one), (RequirementError,)) for one in ("In", "Gt", "Near")},
    **{f"user data {name}": (partial(why_unreadable, family=one), ()) for name, one in FAMILIES.items()},
    **{f"rendered user data {name}": (partial(render_user_data, name), (UserDataError,)) for name in FAMILIES},
}
OBJECT_READERS: Final[dict[str, tuple[ObjectReader, ...]]] = {
    "Pod": (read_pod, partial(drain_pod, now=NOW)),
    "Node": (node_fact,),
    "NodeClaim": (nodeclaim_fact, NodeClaim.from_object),
    "NodePool": (nodepool_fact, lambda raw: validate_nodepool(NodePool.from_object(raw))),
    "EC2NodeClass": (read_node_class,),
    "NodeOverlay": (lambda raw: find_overlay_problem(overlay_fact(raw)),),
    "LifecyclePolicy": (read_policy,),
    "CapacityBuffer": (read_buffer,),
    "PodDisruptionBudget": (pod_budget_fact,),
    "DaemonSet": (daemonset_fact,),
    "PersistentVolume": (volumes.volume_fact,),
    "PersistentVolumeClaim": (volumes.volume_claim_fact,),
    "StorageClass": (volumes.storage_class_fact,),
    MESSAGE: (lambda raw: read_message(json.dumps(raw)),),
}
INVALID_OBJECT: Final = (ValueError, KeyError, TypeError, AttributeError)
"""The errors for which `describe_error` names the field."""
NUMBERS: Final = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
PARTS: Final = st.sampled_from(
    [
        *("1", "9" * 50, ".", "-", "e", "Gi", "m", "h", "ns", "*", "/", "%", "=", "[", "{", ":", "\n", " ", "Never"),
        *("\u0663", "\uff19", "\0", "\ud800", "until=", "reason=", "2026-01-01", "T00:00", "Z", "#!", "'", '"', "&a"),
        "MIME-Version: 1.0\n",
    ]
)
TEXTS: Final = (
    st.text()
    | st.lists(PARTS, max_size=40).map("".join)
    | st.text(alphabet="0123456789.eEhmsiG-+", max_size=80)
    | st.builds(lambda part, times: part * times, PARTS, st.integers(1, 5_000))
)
HOSTILE = {
    "more digits than Python reads": "9" * 4301 + "h",
    "digits and no unit": "9" * 20_000 + "x",
    "dots": "1." * 20_000,
    "signs": "-" * 20_000,
    "long exponent": "1e" + "9" * 20_000,
    "spaces": " " * 100_000,
}
"""A backtracking regular expression takes minutes for these texts."""
BOUNDED: Final = ("duration", "quantity", "schedule")
SLOW_TOML: Final = {
    "dotted key": "a" + ".a" * 5_000 + "=1",
    "dotted keys": "\n".join(f"a.b.c.d.e{one}=1" for one in range(700)),
    "longer and longer dotted keys": "\n".join("a" + ".a" * one + f".b{one}=1" for one in range(95)),
    "dotted keys of the maximum length": "\n".join("a." * 13 + f"b.k{one}=1" for one in range(300)),
    "header": "[" + "a." * 5_000 + "a]",
    "headers": "\n".join(f"[a.b{one}]" for one in range(1_100)),
    "headers of the maximum length": "\n".join("[" + "a." * 13 + f"k{one}]" for one in range(300)),
    "keys": "\n".join(f"k{one}=1" for one in range(1_400)),
    "arrays of tables": "[[a]]\n" * 1_600,
    "inline tables": "\n".join(f"k{one}={{a=1}}" for one in range(900)),
    "array": "a=[" + "1," * 5_000 + "]",
}
"""10 KB each. Parsers and writers that keep the layout take seconds for some of them."""
NODE_CONFIG: Final = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: {\n%s\n}}}\n"
SLOW_YAML: Final = {
    "merge keys that double": "b0: &b0 {a: 1},"
    + ",".join(f"b{one}: &b{one} {{<<: [*b{one - 1}, *b{one - 1}], k: 1}}" for one in range(1, 200)),
    "merged mapping": "b: &b {"
    + ",".join(f"k{one}: 1" for one in range(500))
    + "},"
    + ",".join(f"c{one}: {{<<: *b}}" for one in range(300)),
    "aliases": "a0: &a0 [x,x]," + ",".join(f"a{one}: &a{one} [*a{one - 1},*a{one - 1}]" for one in range(1, 100)),
    "keys": ",".join(f"k{one}: 1" for one in range(1_200)),
    "sequence": "a: [" + "1," * 5_000 + "]",
    "sexagesimal": "a: 1" + ":1" * 5_000,
}


def read_in_time(read: Callable[[], object], size: int, errors: tuple[type[Exception], ...]) -> None:
    """Fail if `read` takes too long. One of `errors` is a valid result.

    The fastest of three passes counts because the first may fill a cache.
    """
    seconds, limit = [], SECONDS_PER_10_KB * max(1, size / 10_000)
    for _ in range(3):
        began = time.thread_time()
        try:
            read()
        except errors as caught:
            assert len(str(caught)) < MAX_ERROR or isinstance(caught, ValidationError), caught
        seconds.append(time.thread_time() - began)
        if seconds[-1] <= limit:
            return
    pytest.fail(f"{size} characters took {min(seconds):.3f} s, expected at most {limit:.3f} s")


@pytest.mark.parametrize("reader", TEXT_READERS)
@max_examples(TEXT_EXAMPLES, fast=FEW)
@given(text=TEXTS)
@example(text="\ud800")
@example(text="\u0663s")
@example(text="9" * 4301)
@example(text="{" * 15_000)
def test_any_text_returns_a_result_or_the_documented_error(reader: str, text: str) -> None:
    read, errors = TEXT_READERS[reader]
    read_in_time(lambda: read(text), len(text), errors)


@pytest.mark.parametrize("kind", OBJECT_READERS)
@max_examples(OBJECT_EXAMPLES, fast=FEW)
@given(data=st.data())
def test_hostile_field_value_returns_a_result_or_a_documented_error(kind: str, data: st.DataObject) -> None:
    _, family, path = data.draw(st.sampled_from(list_fields(kind)))
    value = data.draw(st.sampled_from(list(VALUES[family].values())) | TEXTS | NUMBERS | st.none())
    raw = build_base(kind, path)
    if kind != MESSAGE:
        raw["metadata"] |= SERVED
    put(raw, path, value)
    size = len(json.dumps(raw))
    for read in OBJECT_READERS[kind]:
        read_in_time(partial(read, raw), size, INVALID_OBJECT)


@pytest.mark.parametrize("reader", BOUNDED)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_long_text_is_rejected_before_parsing(reader: str, text: str) -> None:
    read, error = TEXT_READERS[reader]
    with pytest.raises(error, match=f"{len(text)} characters"):
        read(text)


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        *(("duration", one) for one in ("٣s", "１h", "३0m")),
        *(("quantity", one) for one in ("٣Gi", "１", "1e३")),
        *(("number or share", one) for one in ("٣", "１%", " 5", "1_0", "9" * 19)),
        ("schedule", "٣ 0 * * *"),
        ("time", "٢٠٢٦-٠١-٠١"),
        ("time", "2026-01-01T0٣:00"),
    ],
)
def test_numbers_consist_of_ascii_digits_only(reader: str, text: str) -> None:
    read, errors = TEXT_READERS[reader]
    with pytest.raises(errors):
        read(text)


@pytest.mark.parametrize("text", SLOW_TOML.values(), ids=SLOW_TOML)
def test_toml_that_is_slow_to_parse_is_read_in_time(text: str) -> None:
    reader, errors = TEXT_READERS["rendered user data Bottlerocket"]
    read_in_time(partial(reader, text), len(text), errors)


@pytest.mark.parametrize("fields", SLOW_YAML.values(), ids=SLOW_YAML)
def test_yaml_that_is_slow_to_parse_is_read_in_time(fields: str) -> None:
    reader, errors = TEXT_READERS["user data AL2023"]
    text = NODE_CONFIG % fields
    read_in_time(partial(reader, text), len(text), errors)


def test_yaml_whose_merge_keys_double_is_rejected_with_the_limit() -> None:
    problem = why_unreadable(NODE_CONFIG % SLOW_YAML["merge keys that double"], FAMILIES["AL2023"])
    assert "merge keys yield more than 16384 keys" in problem
