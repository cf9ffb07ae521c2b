"""The botocore session of the adapters: the services of botocore with smaller models and faster time parsing."""

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.session import get_session
from botocore.utils import parse_timestamp
from hypothesis import given
from hypothesis import strategies as st

from tenure import aws
from tenure.aws.client.client import OF_AN_INSTANCE, USED_OPERATIONS, AwsClients, new_session, parse_datetime
from tenure.aws.doctor.account import _instance_vcpus
from tenure.aws.instance.instances import instance_facts
from tenure.aws.settings import AwsSettings
from tenure.model.errors import BadInput

SERVICES = ("ec2", "eks", "iam", "pricing", "sqs", "ssm", "sts")
ZONES = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)))


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=ZONES))
def test_times_parse_like_botocore(at: datetime) -> None:
    for text in (at.isoformat(), at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"), str(int(at.timestamp()))):
        assert parse_datetime(text) == parse_timestamp(text), text
    seconds: Any = at.timestamp()
    assert parse_datetime(seconds) == parse_timestamp(seconds)


@pytest.mark.parametrize("text", ["2026-13-01T00:00:00Z", "soon"])
def test_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse_datetime(text)


@pytest.mark.parametrize("service", SERVICES)
def test_service_model_equals_botocore_without_documentation(service: str) -> None:
    ours: Any = new_session().get_service_model(service)
    theirs: Any = get_session().get_service_model(service)
    assert ours.metadata == theirs.metadata
    expected = {name: plain(theirs.shape_for(name)._shape_model) for name in theirs.shape_names}
    if service == "ec2":
        members = expected["Instance"]["members"]
        assert set(members) > OF_AN_INSTANCE
        expected["Instance"]["members"] = {name: members[name] for name in OF_AN_INSTANCE}
    for name in ours.operation_names:
        found, original = ours.operation_model(name), theirs.operation_model(name)
        assert plain(found._operation_model) == plain(original._operation_model)
        assert used_shapes(found) <= set(ours.shape_names)
    assert {name: plain(ours.shape_for(name)._shape_model) for name in ours.shape_names} == {
        name: expected[name] for name in ours.shape_names
    }
    assert not any(ours.shape_for(name).documentation for name in ours.shape_names)
    assert any(theirs.shape_for(name).documentation for name in theirs.shape_names)


@pytest.mark.parametrize("service", SERVICES)
def test_models_have_the_operations_that_are_called(service: str) -> None:
    code = "\n".join(file.read_text() for file in Path(aws.__path__[0]).rglob("*.py"))
    names = set(re.findall(r"""[."]([a-z]+(?:_[a-z]+)+)\b""", code))
    all_operations = get_session().get_service_model(service).operation_names
    called = {name for name in all_operations if xform_name(name) in names}
    # botocore itself calls STS, so its model is complete.
    expected = called if service.upper() in USED_OPERATIONS else set(all_operations)
    assert set(new_session().get_service_model(service).operation_names) == expected > set()


def used_shapes(operation: Any) -> set[str]:
    """Names of the shapes of requests, responses and errors, through which botocore reaches all others."""
    found: set[str] = set()
    waiting = [one for one in (operation.input_shape, operation.output_shape, *operation.error_shapes) if one]
    while waiting:
        shape = waiting.pop()
        if shape.name not in found:
            found.add(shape.name)
            members = {"structure": "members", "list": "member", "map": "value"}.get(shape.type_name)
            inner = getattr(shape, members) if members else ()
            waiting += inner.values() if isinstance(inner, dict) else [inner] if inner else []
            waiting += [shape.key] if shape.type_name == "map" else []
    return found


class RecordingInstance(dict[str, Any]):
    """An instance with every field, which records the fields that are read."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)
        self.read_keys: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read_keys.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read_keys.add(key)
        return super().__getitem__(key)


def test_instance_model_has_all_fields_that_are_read() -> None:
    read_keys: set[str] = set()
    for preference in ("capacity-reservations-only", "open"):
        raw = RecordingInstance(
            InstanceId="i-1",
            CapacityReservationId="cr-1",
            CapacityReservationSpecification={"CapacityReservationPreference": preference},
        )
        instance_facts(raw, reserved=True)
        _instance_vcpus(raw)
        read_keys |= raw.read_keys
    assert read_keys == OF_AN_INSTANCE


def plain(model: Any) -> Any:
    """Remove documentation; members named "documentation" stay."""
    if isinstance(model, dict):
        return {
            key: plain(value) for key, value in model.items() if not (key == "documentation" and isinstance(value, str))
        }
    return [plain(one) for one in model] if isinstance(model, list) else model


@pytest.mark.parametrize(
    ("variables", "endpoint", "named"),
    [
        ({"AWS_PROFILE": "typo"}, "", "typo"),
        ({"AWS_ACCESS_KEY_ID": "id"}, "", "AWS_SECRET_ACCESS_KEY"),
        ({}, "simulator", "Invalid endpoint"),
    ],
)
def test_rejected_configuration_is_one_line_that_names_it(
    variables: dict[str, str], endpoint: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match=named) as error:
        AwsClients(AwsSettings(region="us-west-2", cluster_name="demo", endpoint_url=endpoint))
    assert "\n" not in error.value.message
