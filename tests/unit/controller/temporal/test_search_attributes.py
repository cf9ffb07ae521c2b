"""Search attributes: the worker continues, or states the remedy, if it lacks the permission."""

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
    """`existing`: the listed attributes, or the error of listing. `add`: the error of creating one, if any."""

    def __init__(self, existing: Mapping[str, int] | RPCError, add: RPCError | None = None) -> None:
        self._existing, self._add = existing, add
        self.created: list[str] = []

    @property
    def client(self) -> Client:
        return cast(Client, SimpleNamespace(namespace="prod", operator_service=self))

    async def list_search_attributes(self, request: ListSearchAttributesRequest) -> ListSearchAttributesResponse:
        assert request.namespace == "prod"
        if isinstance(self._existing, RPCError):
            raise self._existing
        return ListSearchAttributesResponse(custom_attributes=cast(Any, self._existing))

    async def add_search_attributes(self, request: AddSearchAttributesRequest) -> None:
        self.created += request.search_attributes
        if self._add is not None:
            raise self._add


async def registration_error(namespace: Namespace) -> str:
    with pytest.raises(BadInput) as error:
        await register_attributes(namespace.client)
    assert "TEMPORAL_NAMESPACE='prod'" in error.value.message
    return error.value.message


async def test_existing_attributes_need_no_permission_to_create() -> None:
    namespace = Namespace(ALL_ATTRIBUTES, add=DENIED)
    await register_attributes(namespace.client)
    assert namespace.created == []


async def test_only_missing_attributes_are_created_even_concurrently() -> None:
    for add in (None, ALREADY_EXISTS):
        namespace = Namespace(attributes_without("TenurePhase", "TenurePaused"), add)
        await register_attributes(namespace.client)
        assert namespace.created == ["TenurePhase", "TenurePaused"]


@pytest.mark.parametrize("add", [DENIED, UNKNOWN])
async def test_denied_creation_names_missing_attributes_and_both_commands(add: RPCError) -> None:
    message = await registration_error(Namespace(attributes_without("TenurePhase", "TenurePrice"), add))
    assert "search attributes are missing (TenurePhase, TenurePrice)" in message and add.message in message
    cli = "search-attribute create --namespace prod --name TenurePhase --type Keyword --name TenurePrice --type Double"
    assert f"temporal operator {cli};" in message
    cloud = "--namespace prod --search-attribute TenurePhase=Keyword --search-attribute TenurePrice=Double"
    assert message.endswith(f"tcld namespace search-attributes add {cloud}")


@pytest.mark.usefixtures("plain_log")
@pytest.mark.parametrize("error", [DENIED, UNKNOWN])
async def test_denied_listing_and_creation_log_a_warning_and_continue(error: RPCError) -> None:
    namespace = Namespace(error, add=error)
    with capture_logs() as logged:
        await register_attributes(namespace.client)
    [warning] = [one for one in logged if one["log_level"] == "warning"]
    assert "cannot be listed" in warning["event"] and warning["todo"] == describe_attribute_creation(
        "prod", search_attributes.ALL
    )
    assert len(namespace.created) == 1, "no attempt follows the first rejection"


@pytest.mark.parametrize("add", [None, ALREADY_EXISTS])
async def test_each_attribute_is_created_if_listing_is_denied(add: RPCError | None) -> None:
    namespace = Namespace(DENIED, add)
    await register_attributes(namespace.client)
    assert namespace.created == list(search_attributes.ALL)


async def test_missing_namespace_is_reported_instead_of_missing_attributes() -> None:
    message = await registration_error(Namespace(ABSENT, add=ABSENT))
    assert "Temporal has no namespace of this name" in message and "search-attribute" not in message
    assert "temporal operator namespace create --namespace prod --retention 30d" in message


@pytest.mark.parametrize(
    ("existing", "add"), [(UNAVAILABLE, UNAVAILABLE), (attributes_without("TenurePhase"), LIMIT_REACHED)]
)
async def test_other_error_is_reported_with_a_hint_at_doctor(
    existing: Mapping[str, int] | RPCError, add: RPCError
) -> None:
    message = await registration_error(Namespace(existing, add))
    assert add.message in message and "tenure doctor" in message


@pytest.mark.usefixtures("plain_log")
async def test_attribute_of_another_type_is_logged_and_not_created() -> None:
    namespace = Namespace(ALL_ATTRIBUTES | {"TenurePhase": KINDS["Bool"]})
    with capture_logs() as logged:
        await register_attributes(namespace.client)
    assert namespace.created == [] and [one["names"] for one in logged] == [["TenurePhase"]]


async def test_doctor_names_the_commands_for_missing_attributes() -> None:
    [found] = await _attributes(Namespace(attributes_without("TenurePhase")).client, "c")
    assert found.level == "problem" and found.todo.endswith(describe_attribute_creation("prod", ["TenurePhase"]))
    [found] = await _attributes(Namespace(ALL_ATTRIBUTES | {"TenurePhase": KINDS["Bool"]}).client, "c")
    assert found.level == "problem" and found.todo.startswith("use a separate namespace for this cluster: ")
    [found] = await _attributes(Namespace(ALL_ATTRIBUTES).client, "c")
    assert found.level == "ok"


async def test_denied_listing_differs_from_other_errors() -> None:
    assert await list_attributes(Namespace(DENIED).client) is None
    with pytest.raises(RPCError):
        await list_attributes(Namespace(UNAVAILABLE).client)


async def test_rebuild_works_without_permission_to_list_attributes() -> None:
    def rebuild(existing: Mapping[str, int] | RPCError) -> Rebuild:
        snapshot = SimpleNamespace(settings=SimpleNamespace(cluster="c"), make_notifier=lambda _: SimpleNamespace())
        return Rebuild(Namespace(existing).client, cast(Any, snapshot), frozenset())

    assert await rebuild(UNKNOWN)._missing_attributes() == []
    assert [one.name for one in await rebuild(attributes_without("TenurePhase"))._missing_attributes()] == [
        "TenurePhase"
    ]
