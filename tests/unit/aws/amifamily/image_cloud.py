"""Fake EC2 images and SSM parameters, and their resolution."""

from collections import Counter
from typing import Any

from tenure.apis.ec2nodeclass import ResolvedAmi
from tenure.aws.amifamily.images import Images
from tenure.aws.cluster_facts import ClusterFacts
from tenure.model.errors import Fault, NotFound
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
