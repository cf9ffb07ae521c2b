"""Numbers that JSON does not have survive a workflow's history."""

import math

import pytest

from tenure.model.base import Message, Value


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
