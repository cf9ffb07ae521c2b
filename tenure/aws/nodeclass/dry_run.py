"""Asks EC2 by DryRun whether a launch with an EC2NodeClass would be allowed and make sense.

Throttling, server errors and insufficient capacity say nothing about the EC2NodeClass.
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
    """Whether it may be remembered."""


class Undecided(Value):
    message: str
    retry_after: timedelta | None = None
    """Where it will be known very soon."""


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
_OF_THE_CALL: Final = frozenset({"Unauthorized", LAUNCH_FAILED})
"""Reasons that say no more than which call failed."""


def classify_fault(fault: Fault, node_class: EC2NodeClass, forbidden: str) -> DryRunResult:
    """`forbidden`: the reason where the call itself is not allowed."""
    if fault.code == DRY_RUN or fault.code in INSUFFICIENT:
        return None
    if isinstance(fault, Throttled | TryLater) or fault.code in _CREDENTIALS:
        return Undecided(message=_format_fault(fault))
    if fault.code in LAUNCH_TEMPLATE_NOT_FOUND:
        return Undecided(message=_format_fault(fault), retry_after=SOON)
    if names_missing_profile(fault) or _NO_ROLE in fault.message:
        return _profile_result(fault, node_class)
    known, remedy = create_error_reason(fault.code, fault.message), error_remedy(fault.code, fault.message)
    message = f"{_format_fault(fault)}; {remedy}" if remedy else _format_fault(fault)
    if isinstance(fault, Forbidden) and known in _OF_THE_CALL:
        return Rejected(reason=forbidden, message=message)
    reason = labels.DRY_RUN_FAILED if known in _OF_THE_CALL else known
    return Rejected(reason=reason, message=f"{_invalid_field(fault)}: EC2 would not launch with it: {message}")


def _profile_result(fault: Fault, node_class: EC2NodeClass) -> DryRunResult:
    """IAM's own answer that it is there comes some seconds before EC2 knows of it."""
    profile_name = node_class.spec.instance_profile
    if not profile_name:
        return Undecided(message=f"EC2 does not know the new instance profile yet: {fault.message}", retry_after=SOON)
    missing = names_missing_profile(fault)
    problem = (
        f"there is no instance profile {profile_name!r}"
        if missing
        else f"instance profile {profile_name!r} has no role"
    )
    reason = labels.INSTANCE_PROFILE_NOT_FOUND if missing else labels.DRY_RUN_FAILED
    return Rejected(reason=reason, message=f"spec.instanceProfile: {problem}: {fault.message}", cacheable=False)


def _invalid_field(fault: Fault) -> str:
    return next((field for start, field in _FIELDS if fault.code.startswith(start)), "spec")


def _format_fault(fault: Fault) -> str:
    return f"{fault.code}: {fault.message}" if fault.code else fault.message


_log = structlog.get_logger(__name__)

_GOOD_SECONDS: Final = 30 * 60.0
_REJECTED_SECONDS: Final = 50.0
"""Shorter than the pause until a class that is not ready is looked at again: a right that is granted counts soon."""
_OWN: Final = frozenset({labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION})


@dataclass(frozen=True, slots=True)
class Trial:
    node_class: EC2NodeClass
    choice: Choice
    template: LaunchTemplate

    @property
    def subnets(self) -> Sequence[ResolvedSubnet]:
        """Those where the type is offered; all where that is not known."""
        found = self.node_class.status.subnets
        return [one for one in found if one.zone in self.choice.zones] or found

    def key(self) -> str:
        """Of everything that a new result depends on. Lists are sorted, since free addresses reorder them."""
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
        """Names of launch templates that could not be deleted; the next look at any class tries again."""

    async def get_result(self, trial: Trial) -> DryRunResult:
        """None when nothing speaks against a launch."""
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
        made = asyncio.ensure_future(self._result_of_call(trial, reason, lambda: self._create_template(template)))
        try:
            result = await asyncio.shield(made)
            return result if result is not None else await self._try_launch(trial, template)
        finally:
            # Also when this activity is cancelled: it has to be gone before that is.
            await asyncio.shield(self._clean_up_template(template, made))

    async def _clean_up_template(self, template: LaunchTemplate, made: Awaitable[DryRunResult]) -> None:
        """A call without an answer may have succeeded; a running call is not cancelled."""
        if not isinstance(await made, Rejected):
            await self._delete(template.name)

    async def _try_launch(self, trial: Trial, template: LaunchTemplate) -> DryRunResult:
        ec2, choice = self._clients.ec2_without_retries, trial.choice
        fleet = create_fleet(template, choice, trial.subnets)
        reason = labels.CREATE_FLEET_AUTH_CHECK_FAILED
        result = await self._result_of_call(trial, reason, lambda: self._clients.call(ec2.create_fleet, **fleet))
        return result if result is not None else await self._run(trial, template)

    async def _run(self, trial: Trial, template: LaunchTemplate) -> DryRunResult:
        """One subnet that works is enough; where none does, the first says why."""
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
        """An existing template has the same content: a worker that died left it, or another creates it concurrently."""
        try:
            create = self._clients.ec2_without_retries.create_launch_template
            await self._clients.call(create, **template.create_request())
        except Conflict as fault:
            if fault.code not in ALREADY_EXISTS:
                raise

    async def _delete(self, name: str) -> None:
        """One that stays although the worker ends is deleted with the class."""
        try:
            with suppress(NotFound):
                await self._clients.call(self._clients.ec2.delete_launch_template, LaunchTemplateName=name)
            self._undeleted_templates.discard(name)
        except Fault as fault:
            self._undeleted_templates.add(name)
            _log.warning("launch template of a trial is left", name=name, reason=fault.message)
