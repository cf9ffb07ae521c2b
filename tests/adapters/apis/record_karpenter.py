"""Record which objects of the corpus a real API server accepts with Karpenter's CRDs.

    .venv/bin/python -m tests.adapters.apis.record_karpenter DIRECTORY

DIRECTORY is the source of Karpenter's AWS provider, for example in the cache of Go modules.

For maintainers: after a change of the tables or of Karpenter's version. It also creates Karpenter's examples with
both CRDs, and fails if the results differ.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import CRDS, Plan
from tests.adapters.apis.server import ApiServerClient, open_client
from tests.support.apis.crd_corpus import VERDICTS, build_all, digest
from tests.support.apis.crd_rows import RESOURCES, Object

SOURCE: Final = "github.com/aws/karpenter-provider-aws@v1.15.1"
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


def _with_crds(folder: Path, objects: Mapping[str, Object]) -> dict[str, bool]:
    async def ask(kubeconfig: Path) -> dict[str, bool]:
        async with open_client(kubeconfig) as server:
            return await find_accepted(server, objects)

    with Sandbox(plan=Plan(parts=("kubernetes",), manifests=(folder,))) as sandbox:
        return asyncio.run(ask(Path(sandbox.kubeconfig)))


def _examples(folder: Path) -> dict[str, Object]:
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
    (module,) = map(Path, sys.argv[1:])
    corpus, examples = build_all(), _examples(module / "examples")
    accepted = _with_crds(module / "pkg" / "apis" / "crds", corpus | examples)
    accepted_examples = {name: accepted.pop(name) for name in examples}
    verdicts = {
        "source": SOURCE,
        "accepted": _lines([digest(corpus[name]) for name, is_accepted in accepted.items() if is_accepted]),
        "rejected": _lines([digest(corpus[name]) for name, is_accepted in accepted.items() if not is_accepted]),
    }
    VERDICTS.write_text(json.dumps(verdicts, indent=0) + "\n")
    ours = _with_crds(CRDS, examples)
    different = [name for name, is_accepted in accepted_examples.items() if is_accepted != ours[name]]
    print(f"{len(corpus)} objects, {sum(accepted.values())} accepted; {len(examples)} examples, different: {different}")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
