"""AMIs by alias and by selector term: requests, caching, missing variants, and which image is selected."""

from typing import Any, cast

import pytest

from tenure.aws.amifamily import ssm
from tenure.aws.amifamily.families import AliasError, parameters_of
from tenure.aws.client.client import AwsClients
from tenure.model.errors import BadInput, Fault, Forbidden, Throttled, TryLater
from tests.unit.aws.amifamily.image_cloud import (
    ARM,
    HOUR,
    LATEST,
    NVIDIA,
    STANDARD,
    X86,
    Cloud,
    build_images,
    published_cloud,
    resolve_image_ids,
    resolve_images,
)


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


async def test_parameters_that_no_nodeclass_names_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssm, "MAX_ENTRIES", 2)
    cloud = Cloud()
    parameters = ssm.Parameters(cast(AwsClients, cloud), clock=lambda: cloud.now)
    for name in ("/a", "/b", "/c"):
        cloud.parameters[name] = cloud.image("ami-a")
        assert await parameters.get_custom(name) == "ami-a"
    assert set(parameters._last) == {"/b", "/c"} and not parameters._read_locks


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
