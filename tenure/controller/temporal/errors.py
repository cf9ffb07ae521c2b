"""Messages for errors of Temporal: the cause and the next step. It imports no workflow."""

from temporalio.service import RPCError, RPCStatusCode

_UNAVAILABLE = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
_FORBIDDEN = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


def format_rpc_error(error: RPCError, *, namespace: str, address: str) -> str:
    message = " ".join(error.message.split()).rstrip(".") or error.status.name
    if lacks_namespace(error):
        return (
            f"TEMPORAL_NAMESPACE={namespace}: Temporal at {address} has no namespace of this name; "
            f"{describe_namespace_creation(namespace)}"
        )
    if error.status in _FORBIDDEN:
        todo = "check the name, and provide credentials with access to it (TEMPORAL_API_KEY, or a client's certificate)"
        return f"TEMPORAL_NAMESPACE={namespace}: Temporal at {address} rejects these credentials: {message}; {todo}"
    if error.status in _UNAVAILABLE:
        return f"Temporal at {address} does not respond: {message}; check that it runs, then run this again"
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
        return f"Temporal at {address} limits requests: {message}; wait a minute, then run this again"
    return f"Temporal at {address} rejects the request: {message}; `tenure doctor` shows missing parts"


def lacks_namespace(error: RPCError) -> bool:
    """Whether the namespace does not exist. A missing workflow has the same status."""
    if error.status is not RPCStatusCode.NOT_FOUND:
        return False
    has_detail = any(one.type_url.endswith("NamespaceNotFoundFailure") for one in error.grpc_status.details)
    return has_detail or error.message.lower().startswith("namespace ")


def describe_namespace_creation(namespace: str) -> str:
    return (
        f"create it: temporal operator namespace create --namespace {namespace} --retention 30d; "
        "or set TEMPORAL_NAMESPACE to an existing namespace"
    )
