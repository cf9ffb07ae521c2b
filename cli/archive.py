"""Where histories are kept when Temporal lets them go: a folder, or a prefix in a bucket of S3."""

from pathlib import Path
from typing import Protocol

from aws.archive import Bucket
from cli.exits import Refused

S3 = "s3://"


class Archive(Protocol):
    def has(self, name: str) -> bool: ...

    def put(self, name: str, text: str) -> None: ...


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def has(self, name: str) -> bool:
        return (self._path / name).exists()

    def put(self, name: str, text: str) -> None:
        """Whole or not at all: what is cut off is written again by the next run."""
        file = self._path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(text)
        part.replace(file)


def archive(to: str) -> Archive:
    """Raises `Refused` for what is neither."""
    if not to.startswith(S3):
        if "://" in to:
            raise Refused(f"history export: --to {to}: write a folder, or s3://bucket/prefix")
        return Folder(Path(to))
    bucket, _, prefix = to.removeprefix(S3).partition("/")
    if not bucket:
        raise Refused(f"history export: --to {to}: which bucket? Write s3://bucket/prefix")
    return Bucket(bucket, prefix)
