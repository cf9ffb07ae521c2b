"""EKS's public images and their SSM parameters: AL2023, AL2, Bottlerocket and Windows, for every Kubernetes minor.

IDs are derived from the names, so they are the same in every run. Names, paths and variants are those of AWS.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from tenure.sandbox.aws.ec2.records import Image

MINORS = tuple(f"1.{minor}" for minor in range(30, 37))
AL2_MINORS = ("1.30", "1.31", "1.32")
EKS_OWNER = "602401143452"
BOTTLEROCKET_OWNER = "092701018921"
WINDOWS_OWNER = "801119661308"
AL2023_VARIANTS = (
    ("x86_64", "standard"),
    ("x86_64", "nvidia"),
    ("x86_64", "neuron"),
    ("arm64", "standard"),
    ("arm64", "nvidia"),
)
AL2_VARIANTS = (
    ("amazon-linux-2", "amazon-eks-node", "x86_64"),
    ("amazon-linux-2-gpu", "amazon-eks-gpu-node", "x86_64"),
    ("amazon-linux-2-arm64", "amazon-eks-arm64-node", "arm64"),
)
WINDOWS = (("2019", "1.0"), ("2022", "1.0"), ("2025", "1.35"))


@dataclass(frozen=True)
class Release:
    """A version in the format of its family, and its release date. Aliases such as `latest` name only the newest."""

    version: str
    created: dt.datetime
    latest: bool = False

    def image_created_at(self, index: int) -> dt.datetime:
        """Creation time of the image at this index: some minutes apart, GPU images last."""
        return self.created + dt.timedelta(minutes=7 * index)


@dataclass(frozen=True)
class Published:
    """An image and the names of the SSM parameters with its ID."""

    image: Image
    parameters: tuple[str, ...]


Publisher = Callable[[str, Release], list[Published]]


def published_images() -> list[Published]:
    """Images of all families for all Kubernetes minor versions: three releases each, for Windows only the latest."""
    return [
        one
        for family, versions in SEEDED.items()
        for minor in MINORS
        for number, (version, day) in enumerate(versions, 1)
        for one in FAMILIES[family](minor, Release(version, _parse_day(day), number == len(versions)))
    ]


def publish_release(family: str, version: str, created: dt.datetime, minor: str | None = None) -> list[Published]:
    """A new release of a family, for one minor version or all. Raises KeyError for an unknown family."""
    publish, release = FAMILIES[family], Release(version, created, latest=True)
    return [one for each in ([minor] if minor else MINORS) for one in publish(each, release)]


def _parse_day(text: str) -> dt.datetime:
    return dt.datetime.strptime(text, "%Y%m%d").replace(hour=20, tzinfo=dt.UTC)


def _al2023(minor: str, release: Release) -> list[Published]:
    found = []
    for index, (arch, variant) in enumerate(AL2023_VARIANTS):
        base = f"/aws/service/eks/optimized-ami/{minor}/amazon-linux-2023/{arch}/{variant}"
        name = f"amazon-eks-node-al2023-{arch}-{variant}-{minor}-v{release.version}"
        text = f"EKS-optimized Kubernetes node based on Amazon Linux 2023 ({minor})"
        image = _make_image(name, EKS_OWNER, arch, release.image_created_at(index), text, "/dev/xvda", [20])
        found.append(Published(image, _parameter_paths(release, "recommended", f"{base}/{name}")))
    return found


def _al2(minor: str, release: Release) -> list[Published]:
    found = []
    for index, (folder, stem, arch) in enumerate(AL2_VARIANTS if minor in AL2_MINORS else ()):
        base, name = f"/aws/service/eks/optimized-ami/{minor}/{folder}", f"{stem}-{minor}-v{release.version}"
        text = f"EKS Kubernetes Worker AMI with AmazonLinux2 image ({minor})"
        image = _make_image(name, EKS_OWNER, arch, release.image_created_at(index), text, "/dev/xvda", [20])
        found.append(Published(image, _parameter_paths(release, "recommended", f"{base}/{name}")))
    return found


def _bottlerocket(minor: str, release: Release) -> list[Published]:
    found = []
    commit = hashlib.sha256(release.version.encode()).hexdigest()[:8]
    for number, flavour in enumerate(("", "-nvidia")):
        for index, arch in enumerate(("x86_64", "arm64"), 2 * number):
            base = f"/aws/service/bottlerocket/aws-k8s-{minor}{flavour}/{arch}"
            name = f"bottlerocket-aws-k8s-{minor}{flavour}-{arch}-v{release.version}-{commit}"
            image = _make_image(
                name, BOTTLEROCKET_OWNER, arch, release.image_created_at(index), name, "/dev/xvda", [2, 20]
            )
            names = (f"{base}/{release.version}", f"{base}/{release.version}-{commit}")
            found.append(Published(image, _parameter_paths(release, "latest", *names)))
    return found


def _windows(minor: str, release: Release) -> list[Published]:
    found = []
    for year, since in WINDOWS:
        if _minor_number(minor) >= _minor_number(since):
            stem = f"Windows_Server-{year}-English-Core-EKS_Optimized-{minor}"
            image = _make_image(
                f"{stem}-{release.version}", WINDOWS_OWNER, "x86_64", release.created, "EKS Optimized Windows",
                "/dev/sda1", [50],
            )  # fmt: skip
            image.platform = "windows"
            found.append(Published(image, (f"/aws/service/ami-windows-latest/{stem}/image_id",)))
    return found


def _parameter_paths(release: Release, latest: str, *pinned: str) -> tuple[str, ...]:
    """Parameters of an image: with its version, and the moving one if it is the latest."""
    moving = (f"{pinned[0].rsplit('/', 1)[0]}/{latest}",) if release.latest else ()
    return tuple(f"{one}/image_id" for one in (*pinned, *moving))


def _minor_number(minor: str) -> int:
    return int(minor.split(".")[1])


def _make_image(
    name: str, owner: str, arch: str, created: dt.datetime, text: str, root: str, sizes: list[int]
) -> Image:
    digest = hashlib.sha256(name.encode()).hexdigest()
    devices = [root, "/dev/xvdb"]
    volumes = [
        {
            "DeviceName": device,
            "Ebs": {
                "SnapshotId": f"snap-{digest[20 + n : 37 + n]}",
                "VolumeSize": size,
                "VolumeType": "gp3",
                "DeleteOnTermination": True,
                "Encrypted": False,
            },
        }
        for n, (device, size) in enumerate(zip(devices, sizes, strict=False))
    ]
    return Image(
        id=f"ami-{digest[:17]}",
        name=name,
        owner=owner,
        owner_alias="amazon",
        architecture=arch,
        created=created,
        description=text,
        root_device=root,
        volumes=volumes,
        deprecation=created + dt.timedelta(days=730),
    )


FAMILIES: dict[str, Publisher] = {
    "al2023": _al2023,
    "al2": _al2,
    "bottlerocket": _bottlerocket,
    "windows": _windows,
}
DAYS = ("20250715", "20250829", "20250920")
SEEDED: dict[str, list[tuple[str, str]]] = {
    "al2023": [(day, day) for day in DAYS],
    "al2": [(day, day) for day in DAYS],
    "bottlerocket": list(zip(("1.44.0", "1.45.0", "1.46.0"), DAYS, strict=True)),
    "windows": [("2025.09.15", DAYS[-1])],
}
