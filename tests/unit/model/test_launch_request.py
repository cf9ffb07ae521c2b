"""A launch request is serialized as tables and is unchanged after a round trip, including its client token."""

import json

from tenure.model.launch import LaunchGroup, LaunchGroupMember, LaunchOverride, LaunchRequest

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")


def overrides(types: int, *, spot: bool = False) -> tuple[LaunchOverride, ...]:
    return tuple(
        LaunchOverride(
            launch_template=f"karpenter.k8s.aws/1234567890123456789{number % 3}",
            instance_type=f"m5-{number}.2xlarge",
            zone=zone,
            subnet_id=f"subnet-0123456789abcde{zone[-1]}",
            image_id=f"ami-0123456789abcde{number % 3}",
            priority=number + (ord(zone[-1]) / 100 if spot else 0),
            reservation_id="cr-1" if number == 1 else "",
        )
        for number in range(types)
        for zone in (ZONES if number % 2 else ZONES[1:])
    )


def group(*found: LaunchOverride) -> LaunchGroup:
    request = LaunchRequest(node_class="default", capacity_type="spot", overrides=found, tags={"b": "1", "a": "2"})
    return LaunchGroup(group_id="g", members=(LaunchGroupMember(name="a", uid="uid-a"),), request=request)


def test_round_trip_keeps_order_and_client_token() -> None:
    for spot in (False, True):
        original = group(*overrides(60, spot=spot))
        read = LaunchGroup.model_validate_json(original.model_dump_json())
        assert read == original and read.client_token() == original.client_token()


def test_request_of_sixty_types_takes_few_kilobytes() -> None:
    found = overrides(60)
    assert len(group(*found).model_dump_json()) < 4_000
    assert sum(len(one.model_dump_json()) for one in found) > 30_000


def test_request_written_as_a_list_of_overrides_is_still_read() -> None:
    built = group(*overrides(3))
    plain = json.loads(built.model_dump_json())
    plain["request"]["overrides"] = [one.model_dump() for one in built.request.overrides]
    assert LaunchGroup.model_validate(plain) == built


def test_token_differs_by_priority_subnet_and_reservation() -> None:
    first, *rest = overrides(3)
    tokens = {
        group(one, *rest).client_token()
        for one in (
            first,
            first.model_copy(update={"priority": 9.0}),
            first.model_copy(update={"subnet_id": "subnet-2"}),
            first.model_copy(update={"reservation_id": "cr-2"}),
        )
    }
    assert len(tokens) == 4


def test_request_without_overrides_survives_a_round_trip() -> None:
    assert LaunchGroup.model_validate_json(group().model_dump_json()) == group()
