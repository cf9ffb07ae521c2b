"""The worker's search attributes: what is missing is made, and who may not make it is told what to do."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from structlog.testing import capture_logs
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
    ListSearchAttributesResponse,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller.rebuild import Rebuild
from tenure.controller.temporal.doctor import _attributes
from tenure.controller.temporal.namespace import (
    KINDS,
    describe_attribute_creation,
    list_attributes,
    register_attributes,
)
from tenure.model.errors import BadInput
from workflows import search_attributes

ABSENT = RPCError("Namespace prod is not found.", RPCStatusCode.NOT_FOUND, b"")
UNAVAILABLE = RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
DENIED = RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")
UNKNOWN = RPCError("unknown service OperatorService", RPCStatusCode.UNIMPLEMENTED, b"")
ALREADY_EXISTS = RPCError("already exists", RPCStatusCode.ALREADY_EXISTS, b"")
LIMIT_REACHED = RPCError(
    "cannot have more than 10 search attribute of type Keyword", RPCStatusCode.INVALID_ARGUMENT, b""
)
ALL_ATTRIBUTES: Final[dict[str, int]] = {name: KINDS[kind] for name, kind in search_attributes.ALL.items()}


def attributes_without(*names: str) -> dict[str, int]:
    return {name: kind for name, kind in ALL_ATTRIBUTES.items() if name not in names}


class Namespace:
    """`there`: what is listed, or why it is not; `add`: what is said to whoever makes one."""

    def __init__(self, there: Mapping[str, int] | RPCError, add: RPCError | None = None) -> None:
        self._there, self._add = there, add
        self.made: list[str] = []

    @property
    def client(self) -> Client:
        return cast(Client, SimpleNamespace(namespace="prod", operator_service=self))

    async def list_search_attributes(self, request: ListSearchAttributesRequest) -> ListSearchAttributesResponse:
        assert request.namespace == "prod"
        if isinstance(self._there, RPCError):
            raise self._there
        return ListSearchAttributesResponse(custom_attributes=cast(Any, self._there))

    async def add_search_attributes(self, request: AddSearchAttributesRequest) -> None:
        self.made += request.search_attributes
        if self._add is not None:
            raise self._add


async def registration_error(namespace: Namespace) -> str:
    with pytest.raises(BadInput) as error:
        await register_attributes(namespace.client)
    assert "TEMPORAL_NAMESPACE='prod'" in error.value.message
    return error.value.message


async def test_where_all_are_there_nothing_is_made_so_that_no_rights_are_needed() -> None:
    namespace = Namespace(ALL_ATTRIBUTES, add=DENIED)
    await register_attributes(namespace.client)
    assert namespace.made == []


async def test_what_is_missing_alone_is_made_and_another_worker_may_be_first() -> None:
    for add in (None, ALREADY_EXISTS):
        namespace = Namespace(attributes_without("TenurePhase", "TenurePaused"), add)
        await register_attributes(namespace.client)
        assert namespace.made == ["TenurePhase", "TenurePaused"]


@pytest.mark.parametrize("add", [DENIED, UNKNOWN])
async def test_who_may_not_make_what_is_missing_is_told_its_names_and_both_commands(add: RPCError) -> None:
    message = await registration_error(Namespace(attributes_without("TenurePhase", "TenurePrice"), add))
    assert "search attributes are missing (TenurePhase, TenurePrice)" in message and add.message in message
    own = "search-attribute create --namespace prod --name TenurePhase --type Keyword --name TenurePrice --type Double"
    assert f"temporal operator {own};" in message
    cloud = "--namespace prod --search-attribute TenurePhase=Keyword --search-attribute TenurePrice=Double"
    assert message.endswith(f"tcld namespace search-attributes add {cloud}")


@pytest.mark.usefixtures("plain_log")
@pytest.mark.parametrize("error", [DENIED, UNKNOWN])
async def test_where_neither_looking_nor_making_is_allowed_a_warning_says_so_and_it_goes_on(error: RPCError) -> None:
    namespace = Namespace(error, add=error)
    with capture_logs() as logged:
        await register_attributes(namespace.client)
    [warning] = [one for one in logged if one["log_level"] == "warning"]
    assert "not known" in warning["event"] and warning["todo"] == describe_attribute_creation(
        "prod", search_attributes.ALL
    )
    assert len(namespace.made) == 1, "one refusal says it all"


@pytest.mark.parametrize("add", [None, ALREADY_EXISTS])
async def test_who_may_make_them_and_not_look_tries_each(add: RPCError | None) -> None:
    namespace = Namespace(DENIED, add)
    await register_attributes(namespace.client)
    assert namespace.made == list(search_attributes.ALL)


async def test_a_namespace_that_is_not_there_is_said_to_be_missing_and_no_attribute() -> None:
    message = await registration_error(Namespace(ABSENT, add=ABSENT))
    assert "Temporal has none of this name" in message and "search-attribute" not in message
    assert "temporal operator namespace create --namespace prod --retention 30d" in message


@pytest.mark.parametrize(
    ("there", "add"), [(UNAVAILABLE, UNAVAILABLE), (attributes_without("TenurePhase"), LIMIT_REACHED)]
)
async def test_any_other_fault_is_named_with_who_knows_more(there: Mapping[str, int] | RPCError, add: RPCError) -> None:
    message = await registration_error(Namespace(there, add))
    assert add.message in message and "tenure doctor" in message


@pytest.mark.usefixtures("plain_log")
async def test_one_of_another_type_is_warned_of_and_not_made_again() -> None:
    namespace = Namespace(ALL_ATTRIBUTES | {"TenurePhase": KINDS["Bool"]})
    with capture_logs() as logged:
        await register_attributes(namespace.client)
    assert namespace.made == [] and [one["names"] for one in logged] == [["TenurePhase"]]


async def test_the_doctor_names_the_commands_for_what_is_missing() -> None:
    [found] = await _attributes(Namespace(attributes_without("TenurePhase")).client, "c")
    assert found.level == "problem" and found.todo.endswith(describe_attribute_creation("prod", ["TenurePhase"]))
    [found] = await _attributes(Namespace(ALL_ATTRIBUTES | {"TenurePhase": KINDS["Bool"]}).client, "c")
    assert found.level == "problem" and found.todo == "give this cluster a namespace of its own"
    [found] = await _attributes(Namespace(ALL_ATTRIBUTES).client, "c")
    assert found.level == "ok"


async def test_what_may_not_be_seen_is_told_from_a_fault() -> None:
    assert await list_attributes(Namespace(DENIED).client) is None
    with pytest.raises(RPCError):
        await list_attributes(Namespace(UNAVAILABLE).client)


async def test_a_rebuild_needs_no_more_rights_than_a_worker() -> None:
    def rebuild(there: Mapping[str, int] | RPCError) -> Rebuild:
        snapshot = SimpleNamespace(
            settings=SimpleNamespace(cluster="c", task_queue="c"), make_notifier=lambda _: SimpleNamespace()
        )
        return Rebuild(Namespace(there).client, cast(Any, snapshot), frozenset())

    assert await rebuild(UNKNOWN)._missing_attributes() == []
    assert [one.name for one in await rebuild(attributes_without("TenurePhase"))._missing_attributes()] == [
        "TenurePhase"
    ]
