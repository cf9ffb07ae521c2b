"""Quantities: exact parsing, rounding away from zero, canonical text, and advice for invalid text."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.quantity import (
    Quantity,
    QuantityError,
    cpu_millis,
    format_amount,
    format_cpu,
    format_quantity,
    format_resources,
    parse,
    parse_quantity,
    parse_resources,
)

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
}


@pytest.mark.parametrize(
    ("text", "value", "millis", "canonical"),
    (
        ("0", 0, 0, "0"),
        ("1", 1, 1000, "1"),
        ("100m", 1, 100, "100m"),
        ("0.1", 1, 100, "100m"),
        ("1500m", 2, 1500, "1500m"),
        (".5", 1, 500, "500m"),
        ("1.", 1, 1000, "1"),
        ("+2", 2, 2000, "2"),
        ("-1.5", -2, -1500, "-1500m"),
        ("1000", 1000, 10**6, "1k"),
        ("1024", 1024, 1024000, "1024"),
        ("1Ki", 1024, 1024000, "1Ki"),
        ("1024Ki", 2**20, 2**20 * 1000, "1Mi"),
        ("1.5Gi", 1610612736, 1610612736000, "1536Mi"),
        ("0.5Ki", 512, 512000, "512"),
        ("0.0001Ki", 1, 103, "102400u"),
        ("1.1Ki", 1127, 1126400, "1126400m"),
        ("7650Mi", 7650 * 2**20, 7650 * 2**20 * 1000, "7650Mi"),
        ("1e3", 1000, 10**6, "1e3"),
        ("12E2", 1200, 1200000, "1200"),
        ("1e-3", 1, 1, "1e-3"),
        ("2E", 2 * 10**18, 2 * 10**21, "2E"),
        ("100E", 10**20, 10**23, "100E"),
        ("1Ei", 2**60, 2**60 * 1000, "1Ei"),
        ("8Ei", 2**63 - 1, (2**63 - 1) * 1000, "9223372036854775807"),
        ("1n", 1, 1, "1n"),
        ("0.1n", 1, 1, "1n"),
        ("99999999999999999999", 10**20 - 1, (10**20 - 1) * 1000, "99999999999999999999"),
    ),
)
def test_quantity_is_parsed_rounded_and_formatted(text: str, value: int, millis: int, canonical: str) -> None:
    assert parse_quantity(text) == value
    assert cpu_millis(text) == millis
    assert str(parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "advice"),
    (
        ("", "write a number with a suffix"),
        ("much", "write a number with a suffix"),
        (".", "write a number with a suffix"),
        ("1e", "write a number with a suffix"),
        ("1 Gi", "write '1Gi'"),
        ("100MB", "write '100M'"),
        ("4K", "write '4k'"),
        ("2GiB", "write '2Gi'"),
        ("1.2.3", "write a number with a suffix"),
        ("１", "write a number with a suffix"),
    ),
)
def test_invalid_quantity_error_gives_advice(text: str, advice: str) -> None:
    with pytest.raises(QuantityError, match=advice):
        parse(text)


def test_number_is_a_quantity() -> None:
    assert cpu_millis(2) == 2000
    assert parse_quantity(5) == 5


@given(st.integers(0, 10**6), st.integers(0, 6), st.sampled_from(sorted(SUFFIXES)), st.sampled_from(["", "-"]))
def test_parsed_value_is_exact_except_for_rounding_away_from_zero(
    digits: int, decimal_digits: int, suffix: str, sign: str
) -> None:
    text = f"{digits / 10**decimal_digits:.{decimal_digits}f}{suffix}" if decimal_digits else f"{digits}{suffix}"
    amount = Fraction(text.removesuffix(suffix) if suffix else text) * SUFFIXES[suffix]
    nano = -(-(amount * 10**9).numerator // (amount * 10**9).denominator)
    assert parse(sign + text).nano == (-nano if sign else nano)


@given(st.integers(-(2**92), 2**92), st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"]))
def test_canonical_text_is_parsed_to_the_same_value(nano: int, form: str) -> None:
    quantity = Quantity(nano, form)  # type: ignore[arg-type]
    reparsed = parse(str(quantity))
    assert reparsed.nano == nano
    assert str(reparsed) == str(quantity)


@given(st.integers(-(2**62), 2**62))
def test_formatted_whole_numbers_are_parsed_to_the_same_value(value: int) -> None:
    assert parse_quantity(format_quantity(value)) == value
    assert parse_quantity(format_quantity(value, "BinarySI")) == value
    assert cpu_millis(format_cpu(value)) == value


def test_resources_are_parsed_into_model_units() -> None:
    assert parse_resources({"cpu": "1500m", "memory": "1Gi", "pods": 110, "nvidia.com/gpu": "1"}) == {
        "cpu": 1500,
        "memory": 2**30,
        "pods": 110,
        "nvidia.com/gpu": 1,
    }
    assert parse_resources(None) == {}


def test_resources_are_formatted_as_in_kubernetes() -> None:
    amounts = {"cpu": 1500, "memory": 2**30, "ephemeral-storage": 20 * 2**30, "pods": 110, "hugepages-2Mi": 2**22}
    assert format_resources(amounts) == {
        "cpu": "1500m",
        "memory": "1Gi",
        "ephemeral-storage": "20Gi",
        "pods": "110",
        "hugepages-2Mi": "4Mi",
    }
    assert format_amount("cpu", 2000) == "2"


def test_error_in_a_resource_list_names_the_resource() -> None:
    with pytest.raises(QuantityError, match="memory: '1GB' is not a quantity: write '1G'"):
        parse_resources({"cpu": "1", "memory": "1GB"})
