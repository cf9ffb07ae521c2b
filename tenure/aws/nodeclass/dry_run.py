"""Validates with DryRun calls that EC2 would launch instances of an EC2NodeClass.

Throttling, server errors and insufficient capacity are no problem of the EC2NodeClass.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import structlog
from cachetools import TLRUCache

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedSubnet
from tenure.aws.client.cache import MAX_ENTRIES
from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import (
    ALREADY_EXISTS,
    DRY_RUN,
    INSUFFICIENT,
    LAUNCH_TEMPLATE_NOT_FOUND,
    names_missing_profile,
)
from tenure.aws.instance.launch_errors import LAUNCH_FAILED, create_error_reason, error_remedy
from tenure.aws.instance.launch_templates import LaunchTemplate
from tenure.aws.nodeclass.dry_run_request import Choice, create_fleet, run_instances, trial_template
from tenure.model.base import Value
from tenure.model.errors import Conflict, Fault, Forbidden, NotFound, Throttled, TryLater


class Rejected(Value):
    reason: str
    message: str
    cacheable: bool = True
    """Whether the result may be cached."""


class Undecided(Value):
    message: str
    retry_after: timedelta | None = None
    """Set if a retry is likely to succeed soon."""


DryRunResult = Rejected | Undecided | None

SOON: Final = timedelta(seconds=5)
_CREDENTIALS: Final = frozenset({"NoCredentials", "InvalidClientTokenId", "SignatureDoesNotMatch"})
_NO_ROLE: Final = "has no associated IAM Roles"
_FIELDS: Final = (
    ("InvalidAMI", "spec.amiSelectorTerms"),
    ("InvalidSubnet", "spec.subnetSelectorTerms"),
    ("InvalidGroup", "spec.securityGroupSelectorTerms"),
    ("InvalidSecurityGroup", "spec.securityGroupSelectorTerms"),
    ("InvalidSnapshot", "spec.blockDeviceMappings"),
    ("InvalidBlockDeviceMapping", "spec.blockDeviceMappings"),
    ("InvalidVolume", "spec.blockDeviceMappings"),
    ("InvalidPlacementGroup", "spec.placementGroupSelector"),
    ("InvalidUserData", "spec.userData"),
)
_GENERIC_REASONS: Final = frozenset({"Unauthorized", LAUNCH_FAILED})
"""Reasons that are less specific than the name of the failed call."""


def classify_fault(fault: Fault, node_class: EC2NodeClass, forbidden: str) -> DryRunResult:
    """`forbidden`: the reason if the call itself is not allowed."""
    if fault.code == DRY_RUN or fault.code in INSUFFICIENT:
        return None
    if isinstance(fault, Throttled | TryLater) or fault.code in _CREDENTIALS:
        return Undecided(message=fault.code_and_message)
    if fault.code in LAUNCH_TEMPLATE_NOT_FOUND:
        return Undecided(message=fault.code_and_message, retry_after=SOON)
    if names_missing_profile(fault) or _NO_ROLE in fault.message:
        return _profile_result(fault, node_class)
    known, remedy = create_error_reason(fault.code, fault.message), error_remedy(fault.code, fault.message)
    message = f"{fault.code_and_message}; {remedy}" if remedy else fault.code_and_message
    if isinstance(fault, Forbidden) and known in _GENERIC_REASONS:
        return Rejected(reason=forbidden, message=message)
    reason = labels.DRY_RUN_FAILED if known in _GENERIC_REASONS else known
    return Rejected(reason=reason, message=f"{_invalid_field(fault)}: EC2 rejected the dry run: {message}")


def _profile_result(fault: Fault, node_class: EC2NodeClass) -> DryRunResult:
    """A created profile is undecided at first, because EC2 knows it only some seconds after IAM does."""
    profile_name = node_class.spec.instance_profile
    if not profile_name:
        return Undecided(message=f"EC2 does not know the new instance profile yet: {fault.message}", retry_after=SOON)
    missing = names_missing_profile(fault)
    problem = (
        f"instance profile {profile_name!r} does not exist"
        if missing
        else f"instance profile {profile_name!r} has no role"
    )
    reason = labels.INSTANCE_PROFILE_NOT_FOUND if missing else labels.DRY_RUN_FAILED
    return Rejected(reason=reason, message=f"spec.instanceProfile: {problem}: {fault.message}", cacheable=False)


def _invalid_field(fault: Fault) -> str:
    return next((field for start, field in _FIELDS if fault.code.startswith(start)), "spec")


_log = structlog.get_logger(__name__)

_GOOD_SECONDS: Final = 30 * 60.0
_REJECTED_SECONDS: Final = 50.0
"""Shorter than the check interval of a class that is not ready, so that a granted permission takes effect soon."""
_OWN: Final = frozenset({labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION})


@dataclass(frozen=True, slots=True)
class Trial:
    node_class: EC2NodeClass
    choice: Choice
    template: LaunchTemplate

    @property
    def subnets(self) -> Sequence[ResolvedSubnet]:
        """The subnets in zones that offer the type; all subnets if the zones are unknown."""
        found = self.node_class.status.subnets
        return [one for one in found if one.zone in self.choice.zones] or found

    def key(self) -> str:
        """Cache key of everything that the result depends on. Lists are sorted, as free addresses reorder them."""
        one, status = self.node_class, self.node_class.status
        dependencies: list[Any] = [
            one.name,
            one.to_object().get("spec"),
            {name: text for name, text in one.metadata.annotations.items() if name not in _OWN},
            sorted(subnet.id for subnet in status.subnets),
            sorted(group.id for group in status.security_groups),
            sorted(image.id for image in status.amis),
            status.instance_profile,
            self.template.name,
        ]
        return json.dumps(dependencies, sort_keys=True, default=str)


def _expiry_of(uid: str, cached: tuple[str, Rejected | None], now: float) -> float:
    return now + (_GOOD_SECONDS if cached[1] is None else _REJECTED_SECONDS)


class DryRuns:
    """Results are cached by class. AWS errors are results and never raised."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._results: TLRUCache[str, tuple[str, Rejected | None]] = TLRUCache(MAX_ENTRIES, _expiry_of, time.monotonic)
        self._undeleted_templates: set[str] = set()
        """Names of launch templates that could not be deleted; the next validation of any class retries."""

    async def get_result(self, trial: Trial) -> DryRunResult:
        """None if the launch would succeed."""
        await asyncio.gather(*map(self._delete, self._undeleted_templates))
        uid, key = trial.node_class.uid, trial.key()
        cached = self._results.get(uid)
        if cached is not None and cached[0] == key:
            return cached[1]
        result = await self._run_trial(trial)
        if result is None or (isinstance(result, Rejected) and result.cacheable):
            self._results[uid] = (key, result)
        return result

    def forget(self, node_class: EC2NodeClass) -> None:
        self._results.pop(node_class.uid, None)

    async def _run_trial(self, trial: Trial) -> DryRunResult:
        template = trial_template(trial.template)
        reason = labels.CREATE_LAUNCH_TEMPLATE_AUTH_CHECK_FAILED
        creation = asyncio.ensure_future(self._result_of_call(trial, reason, lambda: self._create_template(template)))
        try:
            result = await asyncio.shield(creation)
            return result if result is not None else await self._try_launch(trial, template)
        finally:
            # Also if the activity is cancelled: the template must be deleted before the activity ends.
            await asyncio.shield(self._clean_up_template(template, creation))

    async def _clean_up_template(self, template: LaunchTemplate, creation: Awaitable[DryRunResult]) -> None:
        """Delete the template unless its creation was rejected: a call without a response may have succeeded."""
        if not isinstance(await creation, Rejected):
            await self._delete(template.name)

    async def _try_launch(self, trial: Trial, template: LaunchTemplate) -> DryRunResult:
        ec2, choice = self._clients.ec2_without_retries, trial.choice
        fleet = create_fleet(template, choice, trial.subnets)
        reason = labels.CREATE_FLEET_AUTH_CHECK_FAILED
        result = await self._result_of_call(trial, reason, lambda: self._clients.call(ec2.create_fleet, **fleet))
        return result if result is not None else await self._run(trial, template)

    async def _run(self, trial: Trial, template: LaunchTemplate) -> DryRunResult:
        """Succeeds if one subnet succeeds; otherwise the result of the first subnet."""
        first: DryRunResult = None
        for subnet in trial.subnets:
            request = run_instances(template, trial.choice, subnet)
            call = partial(self._clients.call, self._clients.ec2_without_retries.run_instances, **request)
            result = await self._result_of_call(trial, labels.RUN_INSTANCES_AUTH_CHECK_FAILED, call)
            if result is None or isinstance(result, Undecided):
                return result
            first = first or result
        return first

    async def _result_of_call(self, trial: Trial, forbidden: str, call: Callable[[], Awaitable[Any]]) -> DryRunResult:
        try:
            await call()
        except Fault as fault:
            return classify_fault(fault, trial.node_class, forbidden)
        return None

    async def _create_template(self, template: LaunchTemplate) -> None:
        """An existing template has the same content: it is from a crashed or a concurrent worker."""
        try:
            create = self._clients.ec2_without_retries.create_launch_template
            await self._clients.call(create, **template.create_request())
        except Conflict as fault:
            if fault.code not in ALREADY_EXISTS:
                raise

    async def _delete(self, name: str) -> None:
        """Delete the template, or remember it for a retry. Templates of a crashed worker are deleted with the class."""
        try:
            with suppress(NotFound):
                await self._clients.call(self._clients.ec2.delete_launch_template, LaunchTemplateName=name)
            self._undeleted_templates.discard(name)
        except Fault as fault:
            self._undeleted_templates.add(name)
            _log.warning("failed to delete dry-run launch template", name=name, reason=fault.message)
