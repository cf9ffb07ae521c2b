"""The public images of EKS and their SSM parameters: AL2023, AL2, Bottlerocket and Windows, for every Kubernetes minor.

Ids derive from the names, so that they are the same on every run; names, paths and variants are AWS's.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass

from sandbox.aws.ec2.records import Image

MINORS = tuple(f"1.{minor}" for minor in range(30, 37))
AL2_MINORS = ("1.30", "1.31", "1.32")
RELEASES = ("20250715", "20250829", "20250920")
BOTTLEROCKET_RELEASES = ("1.44.0", "1.45.0", "1.46.0")
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
class Published:
    """An image and the names of the SSM parameters whose value is its id."""

    image: Image
    parameters: tuple[str, ...]


def published_images() -> list[Published]:
    found = []
    for minor in MINORS:
        found += _al2023(minor) + _bottlerocket(minor) + _windows(minor)
        if minor in AL2_MINORS:
            found += _al2(minor)
    return found


def _al2023(minor: str) -> list[Published]:
    found = []
    for arch, variant in AL2023_VARIANTS:
        base = f"/aws/service/eks/optimized-ami/{minor}/amazon-linux-2023/{arch}/{variant}"
        stem = f"amazon-eks-node-al2023-{arch}-{variant}-{minor}"
        for release in RELEASES:
            name = f"{stem}-v{release}"
            paths = [f"{base}/{name}/image_id"]
            if release == RELEASES[-1]:
                paths.append(f"{base}/recommended/image_id")
            image = _linux(
                name, EKS_OWNER, arch, release, f"EKS-optimized Kubernetes node based on Amazon Linux 2023 ({minor})"
            )
            found.append(Published(image, tuple(paths)))
    return found


def _al2(minor: str) -> list[Published]:
    found = []
    for folder, stem, arch in AL2_VARIANTS:
        for release in RELEASES:
            name = f"{stem}-{minor}-v{release}"
            base = f"/aws/service/eks/optimized-ami/{minor}/{folder}"
            paths = [f"{base}/{name}/image_id"]
            if release == RELEASES[-1]:
                paths.append(f"{base}/recommended/image_id")
            image = _linux(
                name, EKS_OWNER, arch, release, f"EKS Kubernetes Worker AMI with AmazonLinux2 image ({minor})"
            )
            found.append(Published(image, tuple(paths)))
    return found


def _bottlerocket(minor: str) -> list[Published]:
    found = []
    for flavour in ("", "-nvidia"):
        for arch in ("x86_64", "arm64"):
            base = f"/aws/service/bottlerocket/aws-k8s-{minor}{flavour}/{arch}"
            for version, release in zip(BOTTLEROCKET_RELEASES, RELEASES, strict=True):
                commit = hashlib.sha256(version.encode()).hexdigest()[:8]
                name = f"bottlerocket-aws-k8s-{minor}{flavour}-{arch}-v{version}-{commit}"
                paths = [f"{base}/{version}/image_id", f"{base}/{version}-{commit}/image_id"]
                if version == BOTTLEROCKET_RELEASES[-1]:
                    paths.append(f"{base}/latest/image_id")
                found.append(Published(_two_disks(name, arch, release), tuple(paths)))
    return found


def _windows(minor: str) -> list[Published]:
    found = []
    for year, since in WINDOWS:
        if _number(minor) >= _number(since):
            stem = f"Windows_Server-{year}-English-Core-EKS_Optimized-{minor}"
            image = _image(
                f"{stem}-2025.09.15", WINDOWS_OWNER, "x86_64", RELEASES[-1], "EKS Optimized Windows", "/dev/sda1", [50]
            )
            image.platform = "windows"
            found.append(Published(image, (f"/aws/service/ami-windows-latest/{stem}/image_id",)))
    return found


def _number(minor: str) -> int:
    return int(minor.split(".")[1])


def _linux(name: str, owner: str, arch: str, release: str, description: str) -> Image:
    return _image(name, owner, arch, release, description, "/dev/xvda", [20])


def _two_disks(name: str, arch: str, release: str) -> Image:
    return _image(name, BOTTLEROCKET_OWNER, arch, release, name, "/dev/xvda", [2, 20])


def _image(name: str, owner: str, arch: str, release: str, text: str, root: str, sizes: list[int]) -> Image:
    digest = hashlib.sha256(name.encode()).hexdigest()
    created = dt.datetime.strptime(release, "%Y%m%d").replace(hour=20, tzinfo=dt.UTC)
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
