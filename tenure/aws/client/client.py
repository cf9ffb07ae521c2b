"""boto3 clients of one region. Calls run in threads, and botocore's errors become faults of the model.

With botocore's default session, the models of six services take 36 MB, and listing instances takes six times as long
(docs/decisions/worker-memory.md). This session drops documentation and unused operations, parses timestamps by their
format, and parses only the used members of an instance.
"""

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import boto3
from botocore.config import Config
from botocore.loaders import JSONFileLoader
from botocore.session import Session, get_session
from botocore.utils import parse_timestamp

from tenure.aws.client.errors import BOTO_ERRORS, fault_of, is_slowing_calls
from tenure.aws.client.rate_limiter import TokenBuckets
from tenure.aws.settings import AwsSettings
from tenure.endpoints import Endpoints
from tenure.model.errors import BadInput, Fault
from tenure.tracing.recorder import TRACES

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_eks import EKSClient
    from types_boto3_iam import IAMClient
    from types_boto3_pricing import PricingClient
    from types_boto3_sqs import SQSClient
    from types_boto3_ssm import SSMClient


_OPENED_BY: Final[dict[str, Any]] = {".json": open, ".json.gz": gzip.open}

OF_AN_INSTANCE: Final = frozenset(
    """
    CapacityReservationId CapacityReservationSpecification CpuOptions IamInstanceProfile ImageId InstanceId
    InstanceLifecycle InstanceType LaunchTime Placement RootDeviceType SecurityGroups SpotInstanceRequestId State
    StateReason SubnetId Tags
    """.split()  # noqa: SIM905
)
"""The members of EC2's Instance that Tenure uses; others are not parsed. A test compares them with the code."""
USED_OPERATIONS: Final = {
    "EC2": frozenset(
        """
        CreateFleet CreateLaunchTemplate CreateTags DeleteLaunchTemplate DescribeCapacityReservations
        DescribeImages DescribeInstanceStatus DescribeInstanceTypeOfferings DescribeInstanceTypes
        DescribeInstances DescribeLaunchTemplates DescribePlacementGroups DescribeSecurityGroups
        DescribeSpotPriceHistory DescribeSubnets RebootInstances RunInstances StartInstances StopInstances
        TerminateInstances
        """.split()  # noqa: SIM905
    ),
    "EKS": frozenset({"DescribeAccessEntry", "DescribeCluster"}),
    "IAM": frozenset(
        """
        AddRoleToInstanceProfile CreateInstanceProfile DeleteInstanceProfile GetInstanceProfile GetRole
        ListAttachedRolePolicies ListInstanceProfiles ListRolePolicies RemoveRoleFromInstanceProfile
        SimulatePrincipalPolicy
        """.split()  # noqa: SIM905
    ),
    "SSM": frozenset({"GetParameter"}),
}
"""The operations that Tenure calls, of services with large models; their clients have no others. A test compares them
with the code."""


def new_session() -> Session:
    made = get_session()
    made.get_component("data_loader").file_loader = Terse()
    made.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_datetime)
    return made


class Terse(JSONFileLoader):
    """Loads botocore's data files as plain dicts, without documentation and unused operations."""

    def load_file(self, file_path: str) -> Any:
        """None if the file does not exist, as botocore expects."""
        return _load_data(file_path)


@cache
def _load_data(file_path: str) -> Any:
    """All sessions of a process share the data: parsing EC2's takes a tenth of a second."""
    for ending, opened in _OPENED_BY.items():
        if Path(file_path + ending).is_file():
            with opened(file_path + ending, "rb") as file:
                return _of_use(json.load(file, object_hook=_without_prose))
    return None


def parse_datetime(value: Any) -> datetime:
    """Parse EC2's format, such as `2026-06-01T12:00:00.000Z`, directly and others with botocore. Raises ValueError."""
    if isinstance(value, str) and value[4:5] == "-":
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    read: datetime = parse_timestamp(value)
    return read


def _of_use(loaded: Any) -> Any:
    service = (loaded.get("metadata") or {}).get("serviceId") if isinstance(loaded, dict) else None
    if service not in USED_OPERATIONS:
        return loaded
    shapes = loaded["shapes"]
    if service == "EC2":
        members = shapes["Instance"]["members"]
        shapes["Instance"]["members"] = {name: members[name] for name in members if name in OF_AN_INSTANCE}
    operations = {name: one for name, one in loaded["operations"].items() if name in USED_OPERATIONS[service]}
    return {**loaded, "operations": operations, "shapes": _reachable_shapes(shapes, operations)}


def _reachable_shapes(shapes: Mapping[str, Any], operations: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes that the operations refer to, directly or through other shapes."""
    found: dict[str, Any] = {}
    unvisited: list[Any] = [operations]
    while unvisited:
        match unvisited.pop():
            case dict() as one:
                name = one.get("shape")
                if isinstance(name, str) and name not in found:
                    found[name] = shapes[name]
                    unvisited.append(shapes[name])
                unvisited += one.values()
            case list() as several:
                unvisited += several
    return found


def _without_prose(one: dict[str, Any]) -> dict[str, Any]:
    """Clear documentation. A member of a shape that is called `documentation` is not a string, and stays."""
    if isinstance(one.get("documentation"), str):
        one["documentation"] = ""
    return one


P = ParamSpec("P")
R = TypeVar("R")

_CONNECT_SECONDS = 5
_READ_SECONDS = 30


class AwsClients:
    """The clients of one region. They retry only once, because Temporal retries the whole activity."""

    def __init__(
        self,
        settings: AwsSettings,
        *,
        observe_wait: Callable[[str, float], None] = lambda operation, seconds: None,
        observe_throttled: Callable[[str], None] = lambda operation: None,
        endpoints: Endpoints | None = None,
    ) -> None:
        """`observe_wait` receives the time that each call waited for the rate limiter, in seconds.

        Raises BadInput if the SDK rejects its own configuration, such as AWS_PROFILE."""
        self.region = settings.region
        self._endpoint = settings.endpoint_url or None
        self._pool_size = settings.pool_size
        self._pools: dict[str, ThreadPoolExecutor] = {}
        """By endpoint, so that calls to a service that does not respond do not block others."""
        self._buckets = TokenBuckets()
        self._endpoints = endpoints or Endpoints()
        self._observe_wait, self._observe_throttled = observe_wait, observe_throttled
        self._config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": 2, "mode": "standard"},
            max_pool_connections=settings.pool_size,
            user_agent_extra="tenure",
        )
        try:
            self._session: Any = boto3.session.Session(botocore_session=new_session(), region_name=settings.region)
            self.ec2: EC2Client = self._client("ec2")
        except (*BOTO_ERRORS, ValueError) as error:
            raise BadInput(
                f"AWS SDK: {error}; check the environment variables AWS_* and the files in ~/.aws"
            ) from error

    @cached_property
    def ec2_without_retries(self) -> "EC2Client":
        """For calls whose attempts are counted, so that botocore must not retry."""
        config = self._config.merge(Config(retries={"total_max_attempts": 1, "mode": "standard"}))
        client: EC2Client = self._client("ec2", config=config)
        return client

    iam: "cached_property[IAMClient]" = cached_property(lambda self: self._client("iam"))
    ssm: "cached_property[SSMClient]" = cached_property(lambda self: self._client("ssm"))
    eks: "cached_property[EKSClient]" = cached_property(lambda self: self._client("eks"))
    sqs: "cached_property[SQSClient]" = cached_property(lambda self: self._client("sqs"))
    # Type stubs of these services are not installed.
    sts: "cached_property[Any]" = cached_property(lambda self: self._client("sts"))
    events: "cached_property[Any]" = cached_property(lambda self: self._client("events"))
    kms: "cached_property[Any]" = cached_property(lambda self: self._client("kms"))
    zonal_shift: "cached_property[Any]" = cached_property(lambda self: self._client("arc-zonal-shift"))
    quotas: "cached_property[Any]" = cached_property(lambda self: self._client("service-quotas"))

    @cached_property
    def pricing(self) -> "PricingClient":
        client: PricingClient = self._client("pricing", region_name=_pricing_region(self.region))
        return client

    def _client(self, service: str, **more: Any) -> Any:
        return self._session.client(service, **{"endpoint_url": self._endpoint, "config": self._config, **more})

    async def call(self, method: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Raises model.faults."""
        call = partial(_invoke, method.__name__, method, *args, **kwargs)
        return await self._call_rate_limited(method, call)

    async def paginate(
        self, method: Callable[..., Any], key: str, pick: Callable[[Mapping[str, Any]], R], **request: Any
    ) -> list[R]:
        """Every item under `key` of every page, converted by `pick` in the thread. Raises model.faults.

        Each page waits for the rate limiter, so that a long list does not block others."""
        client, operation = method.__self__, method.__name__  # type: ignore[attr-defined]
        pages: Iterator[Mapping[str, Any]] = iter(client.get_paginator(operation).paginate(**request))

        def read() -> list[R] | None:
            page = _invoke(operation, lambda: next(pages, None))
            return None if page is None else [pick(item) for item in page.get(key, ())]

        found: list[R] = []
        while (more := await self._call_rate_limited(method, read)) is not None:
            found += more
        self._buckets.bucket_for(operation).give_back()
        return found

    def set_replicas(self, replicas: int) -> None:
        """Set the number of workers that call AWS concurrently; each gets an equal share of every rate."""
        self._buckets.set_replicas(replicas)

    async def _call_rate_limited(self, method: Callable[..., Any], call: Callable[[], R]) -> R:
        operation, endpoint = method.__name__, _endpoint_of(method)
        bucket = self._buckets.bucket_for(operation)
        started_at = time.monotonic()
        await bucket.acquire()
        self._observe_wait(operation, time.monotonic() - started_at)
        try:
            # The thread does not have the context of this task, so the span is started here.
            api_name = operation.title().replace("_", "")
            with TRACES.start_call(f"{endpoint} {api_name}", {"rpc.system": "aws-api", "rpc.method": api_name}):
                result = await self._run_in_pool(endpoint, call)
        except Fault as fault:
            if fault.is_unreachable:
                self._endpoints.record_failure(endpoint, fault.message)
            else:
                self._endpoints.record_response(endpoint)
            if is_slowing_calls(fault):
                bucket.on_throttled()
                self._observe_throttled(operation)
            raise
        self._endpoints.record_response(endpoint)
        return result

    async def in_thread(self, work: Callable[[], R]) -> R:
        return await self._run_in_pool("work", work)

    async def _run_in_pool(self, name: str, work: Callable[[], R]) -> R:
        if name not in self._pools:
            self._pools[name] = ThreadPoolExecutor(max_workers=self._pool_size, thread_name_prefix=name)
        return await asyncio.get_running_loop().run_in_executor(self._pools[name], work)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


def _invoke(operation: str, method: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    try:
        return method(*args, **kwargs)
    except BOTO_ERRORS as error:
        raise fault_of(error, operation) from error


def _endpoint_of(method: Callable[..., Any]) -> str:
    meta = getattr(getattr(method, "__self__", None), "meta", None)
    return f"AWS {meta.service_model.service_name}" if meta else "AWS"


def _pricing_region(region: str) -> str:
    regions = {"ap-": "ap-south-1", "cn-": "cn-northwest-1", "eu-": "eu-central-1"}
    return next(
        (pricing_region for prefix, pricing_region in regions.items() if region.startswith(prefix)), "us-east-1"
    )
