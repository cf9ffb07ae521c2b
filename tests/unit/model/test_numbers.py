import pytest

from tenure.model.base import format_number


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
