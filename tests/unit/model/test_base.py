"""Formats of numbers, names and IDs. Numbers that JSON does not have survive a workflow's history."""

import math

import pytest

from tenure.model.base import Message, Value, format_count, format_number, instance_id_of, object_log_fields


class StoredValue(Value):
    price: float


class StoredMessage(Message):
    price: float
    values: tuple[StoredValue, ...] = ()


@pytest.mark.parametrize("price", [math.inf, -math.inf, math.nan, 0.25])
def test_number_is_read_back_from_json(price: float) -> None:
    message = StoredMessage(price=price, values=(StoredValue(price=price),))
    restored = StoredMessage.model_validate_json(message.model_dump_json())
    found = (restored.price, restored.values[0].price)
    assert found == (price, price) or all(map(math.isnan, (price, *found)))


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 4, "0"),
        (0.13600000000000001, 4, "0.136"),
        (12.3456, 4, "12.35"),
        (100.0, 4, "100"),
        (123456.7, 4, "123457"),
        (1234567.0, 6, "1234567"),
        (0.00004, 4, "0.00004"),
        (1e-17, 4, "0"),
        (-0.5, 4, "-0.5"),
        (float("inf"), 4, "inf"),
    ],
)
def test_numbers_have_no_exponent(value: float, digits: int, text: str) -> None:
    assert format_number(value, digits) == text


def test_noun_is_plural_unless_there_is_one() -> None:
    assert [format_count(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def test_instance_id_is_the_last_part_of_any_provider_id() -> None:
    provider_ids = ("aws:///us-west-2a/i-0123", "i-0123", "")
    assert [instance_id_of(one) for one in provider_ids] == ["i-0123", "i-0123", ""]


def test_log_fields_omit_objects_without_a_name() -> None:
    assert object_log_fields(Node="node-a", NodeClaim="") == {"Node": {"name": "node-a"}}
