"""The images that an EC2NodeClass's `amiSelectorTerms` select, and the nodes that each is for.

Aliases and parameters are looked up in SSM, all images are described by EC2; of images for the same kind of node the
newest that is not deprecated is kept.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from aws.cache import Expiring
from aws.client import AwsClients
from aws.cluster import Clusters
from aws.image_aliases import parameters_of
from aws.tags import tag_filters
from model import labels
from model.base import Value
from model.faults import NotFound
from model.kinds import EC2NodeClass, Requirement
from model.kinds.ec2nodeclass import ResolvedAmi
from model.kinds.selectors import AmiTerm

_FRESH_SECONDS: Final = 60.0
_ALIAS_SECONDS: Final = 24 * 3600.0
_CUSTOM_SECONDS: Final = 300.0
_MISSING_SECONDS: Final = 300.0
_ARCHITECTURES: Final = {"x86_64": "amd64", "x86_64_mac": "", "arm64": "arm64"}
_DEFAULT_OWNERS: Final = ("self", "amazon")
_MISSING: Final = ""


class FoundImage(Value):
    id: str
    name: str
    created: str
    """As EC2 writes it: sorts as it is."""
    deprecated: bool
    architecture: str


class Images:
    """Raises model.faults, and aws.image_aliases.AliasError for an alias that cannot be used."""

    def __init__(self, clients: AwsClients, clusters: Clusters) -> None:
        self._clients, self._clusters = clients, clusters
        self._resolved: Expiring[Sequence[ResolvedAmi]] = Expiring(_FRESH_SECONDS)
        self._parameters: Expiring[str] = Expiring(_ALIAS_SECONDS)
        self._custom: Expiring[str] = Expiring(_CUSTOM_SECONDS)
        self._missing: Expiring[bool] = Expiring(_MISSING_SECONDS)

    async def resolve(self, node_class: EC2NodeClass) -> Sequence[ResolvedAmi]:
        """Newest first; empty when nothing is found."""
        key = (node_class.uid, node_class.metadata.generation)
        return await self._resolved.get_or(key, lambda: self._find(node_class.spec.ami_selector_terms))

    async def _find(self, terms: Sequence[AmiTerm]) -> Sequence[ResolvedAmi]:
        alias = next((term.alias for term in terms if term.alias), "")
        pairs = await (self._of_alias(alias) if alias else self._of_terms(terms))
        kept: dict[tuple[Requirement, ...], FoundImage] = {}
        for image, wants in pairs:
            if wants not in kept or _better(image, kept[wants]):
                kept[wants] = image
        chosen = sorted(kept.items(), key=lambda item: item[1].id)
        chosen.sort(key=lambda item: item[1].created, reverse=True)
        return [
            ResolvedAmi(id=image.id, name=image.name, deprecated=image.deprecated, requirements=wants)
            if image.deprecated
            else ResolvedAmi(id=image.id, name=image.name, requirements=wants)
            for wants, image in chosen
        ]

    async def _of_alias(self, alias: str) -> list[tuple[FoundImage, tuple[Requirement, ...]]]:
        cluster = await self._clusters.facts()
        wanted = parameters_of(alias, cluster.version, cluster.minor)
        ids = await asyncio.gather(*(self._parameter(one.path, self._parameters) for one in wanted))
        images = {image.id: image for image in await self._by_id(set(filter(None, ids)))}
        for one, image_id in zip(wanted, ids, strict=True):
            if image_id and (image_id not in images or images[image_id].deprecated):
                # The parameter may name a newer one by now.
                self._parameters.forget(one.path)
        return [
            (images[image_id], variant)
            for one, image_id in zip(wanted, ids, strict=True)
            if image_id in images
            for variant in one.variants
        ]

    async def _of_terms(self, terms: Sequence[AmiTerm]) -> list[tuple[FoundImage, tuple[Requirement, ...]]]:
        named = await asyncio.gather(
            *(self._parameter(term.ssm_parameter, self._custom) for term in terms if term.ssm_parameter)
        )
        ids = {term.id for term in terms if term.id} | {one for one in named if one.startswith("ami-")}
        searches = [self._by_id(ids)]
        searches += [self._search(term) for term in terms if not term.id and (term.name or term.tags)]
        found = {image.id: image for images in await asyncio.gather(*searches) for image in images}
        return [
            (image, (Requirement(key=labels.ARCH, operator="In", values=(image.architecture,)),))
            for image in found.values()
            if image.architecture
        ]

    async def _parameter(self, name: str, held: Expiring[str]) -> str:
        """The image id that a parameter holds; empty when there is no such parameter."""
        if self._missing.get(name):
            return _MISSING
        try:
            return await held.get_or(name, lambda: self._read_parameter(name))
        except NotFound:
            self._missing.put(name, True)
            return _MISSING

    async def _read_parameter(self, name: str) -> str:
        answer = await self._clients.call(self._clients.ssm.get_parameter, Name=name)
        return str(answer["Parameter"].get("Value", ""))

    async def _by_id(self, ids: Iterable[str]) -> list[FoundImage]:
        wanted = sorted(ids)
        return await self._describe([{"Name": "image-id", "Values": wanted}], ()) if wanted else []

    async def _search(self, term: AmiTerm) -> list[FoundImage]:
        filters = tag_filters(term.tags) + ([{"Name": "name", "Values": [term.name]}] if term.name else [])
        owners = (term.owner,) if term.owner else _DEFAULT_OWNERS if term.name else ()
        return await self._describe(filters, owners)

    async def _describe(self, filters: list[Any], owners: Sequence[str]) -> list[FoundImage]:
        return await self._clients.pages(
            self._clients.ec2.describe_images,
            "Images",
            _image,
            Filters=[*filters, {"Name": "state", "Values": ["available"]}],
            IncludeDeprecated=True,
            PaginationConfig={"PageSize": 1000},
            **({"Owners": list(owners)} if owners else {}),
        )


def _image(raw: Mapping[str, Any]) -> FoundImage:
    return FoundImage(
        id=raw["ImageId"],
        name=raw.get("Name", ""),
        created=raw.get("CreationDate", ""),
        deprecated=_is_past(raw.get("DeprecationTime", "")),
        architecture=_ARCHITECTURES.get(raw.get("Architecture", ""), ""),
    )


def _is_past(text: str) -> bool:
    if not text:
        return False
    return datetime.fromisoformat(text.replace("Z", "+00:00")) <= datetime.now(UTC)


def _better(left: FoundImage, right: FoundImage) -> bool:
    if left.deprecated != right.deprecated:
        return right.deprecated
    return (left.created, left.name) > (right.created, right.name)
