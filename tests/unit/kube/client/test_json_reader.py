"""JSON of any depth is read: one object with deep values cannot make a list unreadable."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.kube.client.json_reader import MAX_DEPTH, parse_json
from tests.support.properties import max_examples

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def nest(value: Any, depth: int) -> bytes:
    return b'{"a":[' * depth + json.dumps(value).encode() + b"]}" * depth


@max_examples(200)
@given(values, values)
def test_deep_value_affects_no_other_value(before: Any, after: Any) -> None:
    deep = nest("x", 5_000)
    body = b'{"before":' + json.dumps(before).encode() + b',"deep":' + deep + b',"after":' + json.dumps(after).encode()
    parsed = parse_json(body + b"}")
    assert (parsed["before"], parsed["after"]) == (before, after)
    inner, depth = parsed["deep"], 0
    while inner is not None:
        inner, depth = (inner["a"] if isinstance(inner, dict) else inner[0]), depth + 1
    assert depth == MAX_DEPTH - 1


@pytest.mark.parametrize("text", ['"\\"[[["', '["]}", "{", "\\\\"]', '{"a": "\\\\\\"{"}'])
def test_brackets_in_strings_do_not_count(text: str) -> None:
    body = b"[" + text.encode() + b"," + nest("]", 300) + b"]"
    assert parse_json(body)[0] == json.loads(text)


@pytest.mark.parametrize("body", [b"", b"{", b"[1,]", b'{"a":' + nest("x", 5_000), b"\xff"])
def test_invalid_json_raises_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(body)


def test_time_grows_linearly_with_the_depth() -> None:
    def measure(depth: int) -> float:
        """CPU seconds of this thread, so that other processes do not count."""
        began = time.thread_time()
        parse_json(nest("x", depth))
        return time.thread_time() - began

    measure(1_000)
    assert min(measure(40_000) for _ in range(3)) < 30 * min(measure(4_000) for _ in range(3))
