"""Resolves `amiSelectorTerms` to images, and chooses the image of each instance type.

For each set of requirements the newest image that is not deprecated is kept. An instance type boots the first image of
`status.amis` whose requirements it satisfies; a required label that the type lacks is not satisfied.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from cachetools import LRUCache, TTLCache

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedAmi
from tenure.apis.ec2nodeclass_selectors import AmiTerm
from tenure.apis.meta import Requirement
from tenure.aws.amifamily.families import GIB, AliasParameter, parameters_of
from tenure.aws.amifamily.image_disks import DisksByImage, ImageDisks
from tenure.aws.amifamily.ssm import Parameters
from tenure.aws.client.cache import MAX_ENTRIES, get_or_load
from tenure.aws.client.client import AwsClients
from tenure.aws.eks_cluster import Clusters
from tenure.aws.tags import tag_filters
from tenure.clock import utc_now
from tenure.model.base import Value
from tenure.model.errors import BadInput
from tenure.model.facts import Expression
from tenure.model.requirements import Requirements
from tenure.model.rollout import ImagePin

_ARCHITECTURES: Final = {"x86_64": "amd64", "x86_64_mac": "", "arm64": "arm64"}
_DEFAULT_OWNERS: Final = ("self", "amazon")


class FoundImage(Value):
    id: str
    name: str
    created: str
    """In EC2's text form, which sorts by time."""
    deprecated: bool
    architecture: str


class Images:
    """Raises AliasError for an alias that cannot be used."""

    def __init__(
        self,
        clients: AwsClients,
        clusters: Clusters,
        *,
        refresh_seconds: float = 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients, self._clusters = clients, clusters
        self._resolved: TTLCache[Hashable, Sequence[ResolvedAmi]] = TTLCache(MAX_ENTRIES, refresh_seconds, timer=clock)
        self._parameters = Parameters(clients, clock)

    async def resolve(self, node_class: EC2NodeClass) -> Sequence[ResolvedAmi]:
        """The images, newest first."""
        key = (node_class.uid, node_class.metadata.generation)
        return await get_or_load(self._resolved, key, lambda: self._find_amis(node_class.spec.ami_selector_terms))

    async def apply_pin(
        self, pin: ImagePin, found: Sequence[ResolvedAmi]
    ) -> tuple[Sequence[ResolvedAmi], Sequence[str]]:
        """Replace the images that the pin maps to another image.

        Returns the images, and the IDs of replacements that no longer exist, which are not applied.
        """
        image_ids = {pin.images[one.id] for one in found if one.id in pin.images}
        there = {image.id: image for image in await self._by_id(image_ids)}
        instead = {bad: there[good] for bad, good in pin.images.items() if good in there}
        used = [_resolved_ami(instead[one.id], one.requirements) if one.id in instead else one for one in found]
        return used, sorted(image_ids - there.keys())

    async def _find_amis(self, terms: Sequence[AmiTerm]) -> Sequence[ResolvedAmi]:
        alias = next((term.alias for term in terms if term.alias), "")
        pairs = await (self._of_alias(alias) if alias else self._of_terms(terms))
        newest: dict[tuple[Requirement, ...], FoundImage] = {}
        for image, requirements in pairs:
            if requirements not in newest or _is_better(image, newest[requirements]):
                newest[requirements] = image
        chosen = sorted(newest.items(), key=lambda item: item[1].id)
        chosen.sort(key=lambda item: item[1].created, reverse=True)
        return [_resolved_ami(image, requirements) for requirements, image in chosen]

    async def _of_alias(self, alias: str) -> list[tuple[FoundImage, tuple[Requirement, ...]]]:
        cluster = await self._clusters.facts()
        parameters = parameters_of(alias, cluster.version, cluster.minor)
        images = await self._published_images(parameters)
        stale = [one.path for one in parameters if one.moves and one.path in images and _is_stale(images[one.path])]
        if [path for path in stale if self._parameters.invalidate(path)]:
            images = await self._published_images(parameters)
        return [(image, variant) for one in parameters if (image := images.get(one.path)) for variant in one.variants]

    async def _published_images(self, parameters: Sequence[AliasParameter]) -> dict[str, FoundImage | None]:
        """Images by parameter path. Missing parameters are left out; None if the image no longer exists."""
        ids = await asyncio.gather(*(self._parameters.get_published(one.path) for one in parameters))
        images = {image.id: image for image in await self._by_id(set(filter(None, ids)))}
        return {one.path: images.get(name) for one, name in zip(parameters, ids, strict=True) if name}

    async def _of_terms(self, terms: Sequence[AmiTerm]) -> list[tuple[FoundImage, tuple[Requirement, ...]]]:
        """Resolve each term by its `id`, else by `ssmParameter`, else by the other fields."""
        by_parameter = [term.ssm_parameter for term in terms if term.ssm_parameter and not term.id]
        named = await asyncio.gather(*(self._read_parameter(name) for name in by_parameter))
        ids = {term.id for term in terms if term.id} | {one for one in named if one.startswith("ami-")}
        searches = [self._by_id(ids)]
        searches += [self._search_images(term) for term in terms if not term.id and not term.ssm_parameter]
        found = {image.id: image for images in await asyncio.gather(*searches) for image in images}
        return [
            (image, (Requirement(key=labels.ARCH, operator="In", values=(image.architecture,)),))
            for image in found.values()
            if image.architecture
        ]

    async def _read_parameter(self, name: str) -> str:
        """Raises BadInput for an invalid parameter name."""
        try:
            return await self._parameters.get_custom(name)
        except BadInput as fault:
            raise BadInput(
                f"spec.amiSelectorTerms: ssmParameter {name!r} is not a parameter name or ARN: {fault.message}",
                code=fault.code,
            ) from fault

    async def _by_id(self, ids: Iterable[str]) -> list[FoundImage]:
        image_ids = sorted(ids)
        return await self._describe_images([{"Name": "image-id", "Values": image_ids}], ()) if image_ids else []

    async def _search_images(self, term: AmiTerm) -> list[FoundImage]:
        """Search by name, tags and owner. A name without an owner is limited to the default owners, because any account
        can publish an image under that name."""
        filters = tag_filters(term.tags) + ([{"Name": "name", "Values": [term.name]}] if term.name else [])
        owners = (term.owner,) if term.owner else _DEFAULT_OWNERS if term.name else ()
        if not filters and not owners:
            return []
        try:
            return await self._describe_images(filters, owners)
        except BadInput as fault:
            raise BadInput(
                f"spec.amiSelectorTerms: EC2 rejected the search for name {term.name!r}, owner {term.owner!r}, tags "
                f"{dict(term.tags)}: {fault.message}",
                code=fault.code,
            ) from fault

    async def _describe_images(self, filters: list[Any], owners: Sequence[str]) -> list[FoundImage]:
        return await self._clients.paginate(
            self._clients.ec2.describe_images,
            "Images",
            _parse_image,
            Filters=[*filters, {"Name": "state", "Values": ["available"]}],
            IncludeDeprecated=True,
            PaginationConfig={"PageSize": 1000},
            **({"Owners": list(owners)} if owners else {}),
        )


def _resolved_ami(image: FoundImage, requirements: tuple[Requirement, ...]) -> ResolvedAmi:
    deprecated = {"deprecated": True} if image.deprecated else {}
    return ResolvedAmi(id=image.id, name=image.name, requirements=requirements, **deprecated)


def _parse_image(raw: Mapping[str, Any]) -> FoundImage:
    return FoundImage(
        id=raw["ImageId"],
        name=raw.get("Name", ""),
        created=raw.get("CreationDate", ""),
        deprecated=_is_past(raw.get("DeprecationTime", "")),
        architecture=_ARCHITECTURES.get(raw.get("Architecture", ""), ""),
    )


def _is_stale(image: FoundImage | None) -> bool:
    """Missing or deprecated images, whose parameter may have a new image by now."""
    return image is None or image.deprecated


def _is_past(text: str) -> bool:
    if not text:
        return False
    return datetime.fromisoformat(text.replace("Z", "+00:00")) <= utc_now()


def _is_better(left: FoundImage, right: FoundImage) -> bool:
    """Prefer images that are not deprecated, then newer ones, then larger names.

    Of copies with the same date and name, the status lists the one with the smaller ID first.
    """
    if left.deprecated != right.deprecated:
        return right.deprecated
    if (left.created, left.name) != (right.created, right.name):
        return (left.created, left.name) > (right.created, right.name)
    return left.id < right.id


class ImageMap:
    """Chooses images for the instance types of one class.

    Types with equal values of all labels that the images require share a cached result.
    """

    def __init__(self, amis: Iterable[ResolvedAmi]) -> None:
        self._images = [(ami.id, requirements_of(ami)) for ami in amis]
        self._keys = sorted({key for _, requirements in self._images for key in requirements})
        self._image_by_values: dict[tuple[tuple[str, ...], ...], str] = {}

    def image_for(self, labels: Mapping[str, tuple[str, ...]]) -> str:
        """The ID of the image; empty if none fits."""
        values = tuple(labels.get(key, ()) for key in self._keys)
        if values not in self._image_by_values:
            self._image_by_values[values] = self._first_fit(dict(zip(self._keys, values, strict=True)))
        return self._image_by_values[values]

    def _first_fit(self, labels: Mapping[str, tuple[str, ...]]) -> str:
        described = Requirements.from_choices(labels)
        fits = (image for image, requirements in self._images if described.is_strictly_compatible(requirements))
        return next(fits, "")


def requirements_of(ami: ResolvedAmi) -> Requirements:
    return Requirements.from_expressions(
        Expression(key=one.key, operator=one.operator, values=one.values) for one in ami.requirements
    )


_MISSING_SECONDS: Final = 600.0
"""A new image may be missing at the first read."""


class ImageDiskReader:
    """Reads each image once, since its disks never change. Raises model.faults."""

    def __init__(self, clients: AwsClients, clock: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._known: LRUCache[str, ImageDisks] = LRUCache(MAX_ENTRIES)
        self._missing: TTLCache[str, bool] = TTLCache(MAX_ENTRIES, _MISSING_SECONDS, timer=clock)

    async def disks_of(self, node_class: EC2NodeClass) -> DisksByImage:
        """The disks of the images in the status of the class. Missing images are left out."""
        if any(term.alias for term in node_class.spec.ami_selector_terms):
            return {}
        image_ids = sorted({image.id for image in node_class.status.amis})
        unread = [one for one in image_ids if one not in self._known and one not in self._missing]
        if unread:
            found = dict(await self._describe(unread))
            self._known.update(found)
            self._missing.update((one, True) for one in unread if one not in found)
        return {one: self._known[one] for one in image_ids if one in self._known}

    async def _describe(self, image_ids: Sequence[str]) -> list[tuple[str, ImageDisks]]:
        return await self._clients.paginate(
            self._clients.ec2.describe_images,
            "Images",
            lambda raw: (str(raw["ImageId"]), _parse_disks(raw)),
            Filters=[{"Name": "image-id", "Values": list(image_ids)}],
            IncludeDeprecated=True,
            PaginationConfig={"PageSize": 1000},
        )


def _parse_disks(raw: Mapping[str, Any]) -> ImageDisks:
    volumes = (
        (one["DeviceName"], one.get("Ebs", {}).get("VolumeSize", 0) * GIB)
        for one in raw.get("BlockDeviceMappings") or ()
    )
    return ImageDisks(root_device=raw.get("RootDeviceName") or "", volumes=tuple(volumes))
