"""Record which objects of the corpus a real API server accepts with Karpenter's CRDs.

    .venv/bin/python -m tests.adapters.apis.record_karpenter

For maintainers: after a change of the tables or of Karpenter's version. It downloads the source of Karpenter's AWS
provider with Go, creates its examples with both CRDs too, and fails if the results differ.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import CRDS, Plan
from tests.adapters.apis.server import ApiServerClient, open_client
from tests.support.apis.crd_corpus import VERDICTS, build_all, digest
from tests.support.apis.crd_rows import RESOURCES, Object
from tests.support.sandbox.go_modules import unpack_module

MODULE: Final = "github.com/aws/karpenter-provider-aws"
VERSION: Final = "1.15.1"
_LINE: Final = 12
"""Digests of one line of the file."""


async def find_accepted(server: ApiServerClient, objects: Mapping[str, Object]) -> dict[str, bool]:
    """By name, whether the API server accepts the object."""
    limit = asyncio.Semaphore(4)

    async def is_accepted(found: Object) -> bool:
        async with limit:
            status, _ = await server.create(found)
            return status == 201

    return dict(zip(objects, await asyncio.gather(*map(is_accepted, objects.values())), strict=True))


def verdicts_with_crds(folder: Path, objects: Mapping[str, Object]) -> dict[str, bool]:
    """By name, whether a new API server with the CRDs in `folder` accepts the object."""

    async def ask(kubeconfig: Path) -> dict[str, bool]:
        async with open_client(kubeconfig) as server:
            return await find_accepted(server, objects)

    with Sandbox(plan=Plan(parts=("kubernetes",), manifests=(folder,))) as sandbox:
        return asyncio.run(ask(Path(sandbox.kubeconfig)))


def read_examples(folder: Path) -> dict[str, Object]:
    """Karpenter's objects in the YAML files of `folder`, by file and number."""
    documents = {
        f"{file.name} {number}": document
        for file in sorted(folder.rglob("*.yaml"))
        for number, document in enumerate(yaml.safe_load_all(file.read_text()))
    }
    return {name: one for name, one in documents.items() if one and one.get("kind") in RESOURCES}


def _lines(digests: list[str]) -> list[str]:
    ordered = sorted(digests)
    return [" ".join(ordered[start : start + _LINE]) for start in range(0, len(ordered), _LINE)]


def main() -> int:
    with TemporaryDirectory() as folder:
        return _record(unpack_module(MODULE, VERSION, Path(folder)))


def _record(module: Path) -> int:
    corpus, examples = build_all(), read_examples(module / "examples")
    accepted = verdicts_with_crds(module / "pkg" / "apis" / "crds", corpus | examples)
    accepted_examples = {name: accepted.pop(name) for name in examples}
    verdicts = {
        "source": f"{MODULE}@v{VERSION}",
        "accepted": _lines([digest(corpus[name]) for name, is_accepted in accepted.items() if is_accepted]),
        "rejected": _lines([digest(corpus[name]) for name, is_accepted in accepted.items() if not is_accepted]),
    }
    VERDICTS.write_text(json.dumps(verdicts, indent=0) + "\n")
    ours = verdicts_with_crds(CRDS, examples)
    different = [name for name, is_accepted in accepted_examples.items() if is_accepted != ours[name]]
    print(f"{len(corpus)} objects, {sum(accepted.values())} accepted; {len(examples)} examples, different: {different}")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
