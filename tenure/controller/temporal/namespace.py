"""Search attributes in Temporal's namespace.

Credentials that may neither list nor create search attributes may still run a worker: an administrator may have created
them."""

from collections.abc import Iterable, Mapping
from typing import Final

import structlog
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller.temporal.errors import describe_namespace_creation, lacks_namespace
from tenure.model.errors import BadInput
from workflows import search_attributes

log = structlog.get_logger(__name__)

KINDS: Final = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
    "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}
_MAY_NOT: Final = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED)


async def register_attributes(temporal: Client) -> None:
    """Create missing search attributes, before the worker takes work: without them every workflow task would stall.

    If these credentials may neither list nor create them, a warning is logged. Raises `BadInput` if they are missing
    and cannot be created."""
    try:
        found = await list_attributes(temporal)
    except RPCError:
        found = None  # The attempt to create them reports the error.
    if other := [name for name in search_attributes.ALL if found and name in found and not has_attribute(name, found)]:
        log.warning("search attributes of another type", names=other, todo="use a separate namespace for this cluster")
    missing = [name for name in search_attributes.ALL if found is None or name not in found]
    for name in missing:
        try:
            await _create_attribute(temporal, name)
        except RPCError as error:
            if found is None and error.status in _MAY_NOT:
                todo = describe_attribute_creation(temporal.namespace, search_attributes.ALL)
                log.warning("the search attributes cannot be listed", error=error.message, todo=todo)
                return
            raise BadInput(_explain_failure(temporal.namespace, name, missing, error)) from error


async def list_attributes(temporal: Client) -> Mapping[str, int] | None:
    """Types by name; None if these credentials may not list them. Raises RPCError."""
    try:
        request = ListSearchAttributesRequest(namespace=temporal.namespace)
        return (await temporal.operator_service.list_search_attributes(request)).custom_attributes
    except RPCError as error:
        if error.status in _MAY_NOT:
            return None
        raise


def has_attribute(name: str, found: Mapping[str, int]) -> bool:
    return found.get(name) == KINDS[search_attributes.ALL[name]]


def describe_attribute_creation(namespace: str, names: Iterable[str]) -> str:
    own, cloud = create_commands(namespace, names)
    return f"{own}; or, of Temporal Cloud: {cloud}"


def create_commands(namespace: str, names: Iterable[str]) -> tuple[str, str]:
    """For a self-hosted service, and for Temporal Cloud."""
    kinds = [(name, search_attributes.ALL[name]) for name in names]
    own = " ".join(f"--name {name} --type {kind}" for name, kind in kinds)
    cloud = " ".join(f"--search-attribute {name}={kind}" for name, kind in kinds)
    return (
        f"temporal operator search-attribute create --namespace {namespace} {own}",
        f"tcld namespace search-attributes add --namespace {namespace} {cloud}",
    )


async def _create_attribute(temporal: Client, name: str) -> None:
    """Each in a request of its own, so that an attribute that another worker just created blocks no other."""
    kind = KINDS[search_attributes.ALL[name]]
    request = AddSearchAttributesRequest(namespace=temporal.namespace, search_attributes={name: kind})
    try:
        await temporal.operator_service.add_search_attributes(request)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise


def _explain_failure(namespace: str, name: str, missing: Iterable[str], error: RPCError) -> str:
    where = f"TEMPORAL_NAMESPACE={namespace!r}"
    if lacks_namespace(error):
        return f"{where}: Temporal has no namespace of this name; {describe_namespace_creation(namespace)}"
    if error.status in _MAY_NOT:
        names = list(missing)
        return (
            f"{where}: search attributes are missing ({', '.join(names)}), and these credentials may not create "
            f"them ({error.message}); create them: {describe_attribute_creation(namespace, names)}"
        )
    return (
        f"{where}: search attribute {name} ({search_attributes.ALL[name]}) cannot be created: {error.message}; "
        "`tenure doctor` checks Temporal and its limit of attributes"
    )
