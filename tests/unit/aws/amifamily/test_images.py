"""AMIs by alias and by selector term: requests, caching, missing variants, and which image is selected."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedAmi
from tenure.aws.amifamily.families import AliasError, parameters_of
from tenure.aws.amifamily.images import Images
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.nodeclass.status import Parts
from tenure.model.errors import BadInput, Fault, Forbidden, NotFound, Throttled, TryLater
from tenure.model.rollout import ImagePin, ami_selector_digest
from tests.support.aws.builders import build_nodeclass
from tests.unit.aws.fakes import Named

HOUR = 3600.0
X86 = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64"
ARM = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/arm64"
STANDARD, NVIDIA, NEURON = (f"{X86}/{kind}/recommended/image_id" for kind in ("standard", "nvidia", "neuron"))
ARM_STANDARD = f"{ARM}/standard/recommended/image_id"


class Cloud:
    """Fake SSM and EC2: parameters by name, images by ID, and recorded requests."""

    def __init__(self) -> None:
        self.ec2 = self.ssm = Named()
        self.parameters: dict[str, str] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.faults: dict[str, Fault] = {}
        self.call_counts = Counter[str]()
        self.searches: list[dict[str, Any]] = []
        self.now = 0.0

    def image(self, image_id: str, *, created: str = "2026-01-01", arch: str = "x86_64", **more: Any) -> str:
        self.images[image_id] = {"ImageId": image_id, "Architecture": arch, "CreationDate": created} | more
        return image_id

    async def call(self, method: str, Name: str) -> dict[str, Any]:
        self.call_counts[Name] += 1
        fault = self.faults.get(Name) or self.faults.get("*")
        if fault:
            raise fault
        if Name not in self.parameters:
            raise NotFound("none", code="ParameterNotFound")
        return {"Parameter": {"Value": self.parameters[Name]}}

    async def paginate(self, method: str, key: str, pick: Any, **request: Any) -> list[Any]:
        self.call_counts["describe_images"] += 1
        self.searches.append(request)
        ids = next((f["Values"] for f in request["Filters"] if f["Name"] == "image-id"), list(self.images))
        return [pick(self.images[one]) for one in ids if one in self.images]


class Cluster:
    async def facts(self) -> ClusterFacts:
        return ClusterFacts(name="demo", version="1.34")


def build_images(cloud: Cloud, refresh_seconds: float = 60) -> Images:
    return Images(cloud, Cluster(), refresh_seconds=refresh_seconds, clock=lambda: cloud.now)  # type: ignore[arg-type]


async def resolve_images(one: Images, *terms: dict[str, Any], uid: str = "u") -> list[ResolvedAmi]:
    spec: dict[str, Any] = {"amiSelectorTerms": list(terms)}
    if "alias" not in terms[0]:
        spec["amiFamily"] = "AL2023"
    return list(await one.resolve(build_nodeclass(uid=uid, **spec)))


async def resolve_image_ids(one: Images, *terms: dict[str, Any], uid: str = "u") -> list[str]:
    return [image.id for image in await resolve_images(one, *terms, uid=uid)]


def published_cloud() -> Cloud:
    cloud = Cloud()
    for number, path in enumerate((STANDARD, NVIDIA, NEURON, ARM_STANDARD)):
        arch = "arm64" if path == ARM_STANDARD else "x86_64"
        cloud.parameters[path] = cloud.image(f"ami-{number}", arch=arch, created=f"2026-01-0{number + 1}")
    return cloud


LATEST = {"alias": "al2023@latest"}


async def test_variant_without_parameter_is_left_out_and_read_again_later() -> None:
    cloud = published_cloud()
    one = build_images(cloud)
    assert await resolve_image_ids(one, LATEST) == ["ami-3", "ami-2", "ami-1", "ami-0"]
    missing = f"{ARM}/nvidia/recommended/image_id"
    cloud.now = 200
    await resolve_image_ids(one, LATEST)
    assert cloud.call_counts[missing] == 1
    cloud.parameters[missing] = cloud.image("ami-new", arch="arm64", created="2026-02-01")
    cloud.now = 600
    assert (await resolve_image_ids(one, LATEST))[0] == "ami-new"


@pytest.mark.parametrize("fault", [Throttled("slow down"), TryLater("500")])
async def test_cached_images_are_kept_while_ssm_fails(fault: Fault) -> None:
    cloud = published_cloud()
    one = build_images(cloud)
    before = await resolve_images(one, LATEST)
    cloud.now = 25 * HOUR
    cloud.faults[NVIDIA] = fault
    assert await resolve_images(one, LATEST) == before
    del cloud.faults[NVIDIA]
    cloud.parameters[NVIDIA] = cloud.image("ami-next", created="2026-02-01")
    cloud.now += 120
    assert (await resolve_image_ids(one, LATEST))[0] == "ami-next"


@pytest.mark.parametrize("fault", [Throttled("slow down"), TryLater("500"), Forbidden("no ssm:GetParameter")])
async def test_ssm_fault_without_cache_is_raised(fault: Fault) -> None:
    cloud = published_cloud()
    cloud.faults[NVIDIA] = fault
    with pytest.raises(type(fault)):
        await resolve_images(build_images(cloud), LATEST)


async def test_latest_parameter_is_cached_for_a_day() -> None:
    cloud = published_cloud()
    one = build_images(cloud)
    await resolve_image_ids(one, LATEST)
    cloud.parameters[STANDARD] = cloud.image("ami-newer", created="2026-03-01")
    cloud.now = 23 * HOUR
    assert "ami-newer" not in await resolve_image_ids(one, LATEST)
    assert cloud.call_counts[STANDARD] == 1
    cloud.now = 25 * HOUR
    assert "ami-newer" in await resolve_image_ids(one, LATEST)


@pytest.mark.parametrize("image_state", ["deprecated", "gone"])
async def test_deprecated_or_deleted_image_reads_latest_parameter_again(image_state: str) -> None:
    cloud = published_cloud()
    one = build_images(cloud)
    await resolve_image_ids(one, LATEST)
    if image_state == "gone":
        del cloud.images["ami-0"]
    else:
        cloud.images["ami-0"]["DeprecationTime"] = "2020-01-01T00:00:00.000Z"
    cloud.parameters[STANDARD] = cloud.image("ami-good", created="2026-01-02T00:00:00")
    cloud.now = 120
    found_now = await resolve_image_ids(one, LATEST)
    assert "ami-good" in found_now
    assert "ami-0" not in found_now


async def test_parameter_of_deprecated_image_is_read_every_half_hour() -> None:
    cloud = published_cloud()
    cloud.images["ami-0"]["DeprecationTime"] = "2020-01-01T00:00:00.000Z"
    one = build_images(cloud)
    for minute in range(0, 60, 2):
        cloud.now = minute * 60
        assert any(image.deprecated for image in await resolve_images(one, LATEST))
    # At the first resolution, at the next one because the image is deprecated, and once more after half an hour.
    assert cloud.call_counts[STANDARD] == 3


async def test_pinned_version_is_read_once_a_day() -> None:
    cloud = Cloud()
    path = f"{X86}/standard/amazon-eks-node-al2023-x86_64-standard-1.34-v20260101/image_id"
    cloud.parameters[path] = cloud.image("ami-pinned", DeprecationTime="2020-01-01T00:00:00.000Z")
    one = build_images(cloud)
    for hour in range(0, 20, 2):
        cloud.now = hour * HOUR
        assert await resolve_image_ids(one, {"alias": "al2023@v20260101"}) == ["ami-pinned"]
    assert cloud.call_counts[path] == 1


async def test_nodeclasses_with_same_alias_share_parameters() -> None:
    cloud = published_cloud()
    one = build_images(cloud)
    for uid in ("a", "b", "c"):
        await resolve_image_ids(one, LATEST, uid=uid)
    assert cloud.call_counts[STANDARD] == 1


async def test_images_are_read_again_after_refresh_interval() -> None:
    cloud = published_cloud()
    one = build_images(cloud, refresh_seconds=300)
    await resolve_image_ids(one, LATEST)
    cloud.now = 299
    await resolve_image_ids(one, LATEST)
    assert cloud.call_counts["describe_images"] == 1
    cloud.now = 301
    await resolve_image_ids(one, LATEST)
    assert cloud.call_counts["describe_images"] == 2


async def test_custom_parameter_is_cached_for_five_minutes() -> None:
    cloud = Cloud()
    arn = "arn:aws:ssm:us-west-2:111122223333:parameter/mine"
    cloud.parameters[arn] = cloud.image("ami-a")
    one = build_images(cloud)
    assert await resolve_image_ids(one, {"ssmParameter": arn}) == ["ami-a"]
    cloud.parameters[arn] = cloud.image("ami-b")
    cloud.now = 240
    assert await resolve_image_ids(one, {"ssmParameter": arn}) == ["ami-a"]
    cloud.now = 360
    assert await resolve_image_ids(one, {"ssmParameter": arn}) == ["ami-b"]


async def test_parameter_without_image_id_selects_nothing() -> None:
    cloud = Cloud()
    cloud.parameters["/text"] = "hello"
    assert await resolve_image_ids(build_images(cloud), {"ssmParameter": "/text"}, {"ssmParameter": "/none"}) == []


async def test_rejected_parameter_name_is_reported_with_its_field() -> None:
    cloud = Cloud()
    cloud.faults["a b"] = BadInput("not a valid parameter name", code="ValidationException")
    with pytest.raises(BadInput, match=r"amiSelectorTerms: ssmParameter 'a b'"):
        await resolve_image_ids(build_images(cloud), {"ssmParameter": "a b"})


@pytest.mark.parametrize(
    ("term", "owners", "filters"),
    [
        ({"name": "mine-*"}, ["self", "amazon"], {"name": ["mine-*"]}),
        ({"name": "mine-*", "owner": "111122223333"}, ["111122223333"], {"name": ["mine-*"]}),
        ({"tags": {"team": "a"}}, None, {"tag:team": ["a"]}),
        ({"tags": {"team": "*"}}, None, {"tag-key": ["team"]}),
        ({"tags": {"team": "a"}, "owner": "self"}, ["self"], {"tag:team": ["a"]}),
        ({"name": "x", "tags": {"team": "a"}}, ["self", "amazon"], {"tag:team": ["a"], "name": ["x"]}),
    ],
)
async def test_selector_term_becomes_one_search(
    term: dict[str, Any], owners: Any, filters: dict[str, list[str]]
) -> None:
    cloud = Cloud()
    await resolve_image_ids(build_images(cloud), term)
    (search,) = cloud.searches
    assert search.get("Owners") == owners
    assert {f["Name"]: f["Values"] for f in search["Filters"]} == filters | {"state": ["available"]}
    assert search["IncludeDeprecated"] is True


async def test_ids_of_nodeclass_are_one_search_and_override_other_fields() -> None:
    cloud = Cloud()
    cloud.parameters["/mine"] = cloud.image("ami-parameter")
    terms: list[dict[str, Any]] = [{"id": "ami-a"}, {"id": "ami-b"}, {"ssmParameter": "/mine", "name": "ignored"}]
    await resolve_image_ids(build_images(cloud), *terms)
    (search,) = cloud.searches
    assert search["Filters"][0] == {"Name": "image-id", "Values": ["ami-a", "ami-b", "ami-parameter"]}


async def test_newest_image_per_architecture_is_selected_unless_deprecated() -> None:
    cloud = Cloud()
    for name, created, arch in (
        ("ami-old", "2026-01-01", "x86_64"),
        ("ami-new", "2026-02-01", "x86_64"),
        ("ami-arm", "2026-01-15", "arm64"),
        ("ami-mac", "2026-03-01", "x86_64_mac"),
    ):
        cloud.image(name, created=created, arch=arch)
    cloud.image("ami-out", created="2026-05-01", DeprecationTime="2026-05-02T00:00:00.000Z")
    assert await resolve_image_ids(build_images(cloud), {"tags": {"a": "*"}}) == ["ami-new", "ami-arm"]
    cloud.images["ami-new"]["DeprecationTime"] = cloud.images["ami-old"]["DeprecationTime"] = "2026-05-02T00:00:00Z"
    assert await resolve_image_ids(build_images(cloud), {"tags": {"a": "*"}}) == ["ami-out", "ami-arm"]


async def test_images_with_equal_dates_are_ordered_by_name() -> None:
    cloud = Cloud()
    cloud.image("ami-1", Name="node-1.9")
    cloud.image("ami-2", Name="node-1.10")
    assert await resolve_image_ids(build_images(cloud), {"tags": {"a": "*"}}) == ["ami-1"]


async def test_newest_image_is_first_and_ties_are_ordered_by_id() -> None:
    cloud = Cloud()
    cloud.image("ami-z", arch="arm64", created="2026-01-01")
    cloud.image("ami-a", arch="x86_64", created="2026-01-01")
    assert await resolve_image_ids(build_images(cloud), {"tags": {"a": "*"}}) == ["ami-a", "ami-z"]


@pytest.mark.parametrize(
    "alias", ["al2023@a@b", "al2023", "al2023@", "@latest", "ubuntu@latest", "windows2022@v1", "custom@latest"]
)
def test_invalid_alias_is_rejected(alias: str) -> None:
    with pytest.raises(AliasError):
        parameters_of(alias, "1.34", 34)


@pytest.mark.parametrize(
    ("alias", "minor", "is_valid"),
    [
        ("al2@latest", 32, True),
        ("al2@latest", 33, False),
        ("windows2025@latest", 34, False),
        ("windows2025@latest", 35, True),
        ("windows2019@latest", 34, True),
    ],
)
def test_aliases_are_limited_to_kubernetes_versions(alias: str, minor: int, is_valid: bool) -> None:
    if is_valid:
        assert parameters_of(alias, f"1.{minor}", minor)
    else:
        with pytest.raises(AliasError, match=f"1.{minor}"):
            parameters_of(alias, f"1.{minor}", minor)


EKS = "/aws/service/eks/optimized-ami/1.32"
ROCKET = "/aws/service/bottlerocket/aws-k8s-1.32"


def al2(*images: str) -> dict[str, int]:
    products = ("amazon-linux-2", "amazon-linux-2-arm64", "amazon-linux-2-gpu")
    return {
        f"{EKS}/{product}/{image}/image_id": count
        for product, image, count in zip(products, images, (1, 1, 2), strict=True)
    }


def al2023(image: str) -> dict[str, int]:
    kinds = ("x86_64/standard", "x86_64/nvidia", "x86_64/neuron", "arm64/standard", "arm64/nvidia")
    return {f"{EKS}/amazon-linux-2023/{kind}/{image.format(kind=kind.replace('/', '-'))}/image_id": 1 for kind in kinds}


def bottlerocket(release: str) -> dict[str, int]:
    kinds = {"/x86_64": 2, "/arm64": 1, "-nvidia/x86_64": 1, "-nvidia/arm64": 1}
    return {f"{ROCKET}{kind}/{release}/image_id": count for kind, count in kinds.items()}


PINNED_AL2 = [f"amazon-eks-{kind}-1.32-v20250101" for kind in ("node", "arm64-node", "gpu-node")]
WINDOWS = "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.32/image_id"


@pytest.mark.parametrize(
    ("alias", "paths"),
    [
        ("al2@latest", al2(*["recommended"] * 3)),
        ("al2@v20250101", al2(*PINNED_AL2)),
        ("al2023@v20250101", al2023("amazon-eks-node-al2023-{kind}-1.32-v20250101")),
        ("al2023@latest", al2023("recommended")),
        ("bottlerocket@latest", bottlerocket("latest")),
        ("bottlerocket@v1.32.0-cacc4ce9", bottlerocket("1.32.0-cacc4ce9")),
        ("windows2022@latest", {WINDOWS: 1}),
    ],
)
def test_alias_resolves_to_published_parameters(alias: str, paths: dict[str, int]) -> None:
    assert {one.path: len(one.variants) for one in parameters_of(alias, "1.32", 32)} == paths


def test_bottlerocket_version_may_start_with_v() -> None:
    assert parameters_of("bottlerocket@1.40.0", "1.34", 34) == parameters_of("bottlerocket@v1.40.0", "1.34", 34)


async def test_each_variant_requires_its_kind_of_node() -> None:
    requirements_by_image = {
        image.id: {r.key: (r.operator, r.values) for r in image.requirements}
        for image in await resolve_images(build_images(published_cloud()), LATEST)
    }
    gpus, accelerators = labels.INSTANCE_GPU_COUNT, labels.INSTANCE_ACCELERATOR_COUNT
    assert requirements_by_image["ami-0"] == {
        labels.ARCH: ("In", ("amd64",)),
        gpus: ("DoesNotExist", ()),
        accelerators: ("DoesNotExist", ()),
    }
    assert requirements_by_image["ami-1"] == {labels.ARCH: ("In", ("amd64",)), gpus: ("Exists", ())}
    assert requirements_by_image["ami-2"] == {labels.ARCH: ("In", ("amd64",)), accelerators: ("Exists", ())}
    assert requirements_by_image["ami-3"][labels.ARCH] == ("In", ("arm64",))


def image_pin(**images: str) -> ImagePin:
    """`ami_1="ami-0"` replaces ami-1 by ami-0."""
    now = datetime.now(UTC)
    return ImagePin(
        images={bad.replace("_", "-"): good for bad, good in images.items()},
        terms=ami_selector_digest(build_nodeclass()),
        by="ann",
        reason="its kubelet dies",
        since=now,
        until=now + timedelta(days=1),
    )


async def test_pin_replaces_images_with_same_requirements() -> None:
    cloud = published_cloud()
    cloud.image("ami-old", created="2025-01-01")
    one = build_images(cloud)
    before = await resolve_images(one, LATEST)
    used, missing = await one.apply_pin(image_pin(ami_1="ami-old", ami_77="ami-0"), before)
    assert [image.id for image in used] == ["ami-3", "ami-2", "ami-old", "ami-0"]
    assert [image.requirements for image in used] == [image.requirements for image in before]
    assert missing == []


async def test_missing_pinned_image_is_not_used() -> None:
    cloud = published_cloud()
    one = build_images(cloud)
    before = await resolve_images(one, LATEST)
    used, missing = await one.apply_pin(image_pin(ami_1="ami-old"), before)
    assert (used, missing) == (before, ["ami-old"])


def status_parts(one: Images) -> Parts:
    others: Any = None
    return Parts(images=one, networks=others, profiles=others, placement=others, reservations=others)


def annotated_nodeclass(written: str, **more: Any) -> EC2NodeClass:
    raw = build_nodeclass(**more).to_object()
    return EC2NodeClass.from_object(
        {**raw, "metadata": {**raw["metadata"], "annotations": {labels.IMAGE_PIN: written}}}
    )


async def test_pinned_nodeclass_reports_used_images_and_reason() -> None:
    cloud = published_cloud()
    cloud.image("ami-old", created="2025-01-01")
    part = await status_parts(build_images(cloud)).resolve_amis(
        annotated_nodeclass(image_pin(ami_1="ami-old").model_dump_json())
    )
    assert [one["id"] for one in part.status["amis"]] == ["ami-3", "ami-2", "ami-old", "ami-0"]
    condition = part.conditions[-1]
    assert (condition.type, condition.status, condition.reason) == ("ImagesPinned", "True", "RolledBack")
    assert condition.message.startswith("ami-old instead of ami-1; rolled back by ann at ")
    assert "its kubelet dies" in condition.message


async def test_missing_pinned_image_is_reported() -> None:
    part = await status_parts(build_images(published_cloud())).resolve_amis(
        annotated_nodeclass(image_pin(ami_1="ami-old").model_dump_json())
    )
    assert [one["id"] for one in part.status["amis"]] == ["ami-3", "ami-2", "ami-1", "ami-0"]
    condition = part.conditions[-1]
    assert (condition.status, condition.reason) == ("False", "ImageGone")
    assert condition.message.startswith("replacement ami-old no longer exists; until ")


async def test_pin_ends_when_selectors_find_other_images() -> None:
    cloud = published_cloud()
    one = build_images(cloud)
    part = await status_parts(one).resolve_amis(annotated_nodeclass(image_pin(ami_77="ami-0").model_dump_json()))
    assert [each.type for each in part.conditions] == ["AMIsReady"]
    there = [{"type": "ImagesPinned", "status": "True", "reason": "RolledBack"}]
    was = EC2NodeClass.from_object({**build_nodeclass().to_object(), "status": {"conditions": there}})
    part = await status_parts(one).resolve_amis(was)
    assert (part.conditions[-1].type, part.conditions[-1].status) == ("ImagesPinned", "")
