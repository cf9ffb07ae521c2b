"""Runs `tenure adopt` as a user does, and checks the objects that it must not change."""

import asyncio
import json
import subprocess
import sys
from typing import Any

from tenure.apis import labels
from tenure.cli.sandbox.worker_process import clean_environment
from tests.support.product.cluster_scope import ClusterScope, condition_status
from tests.support.product.objects import Object
from tests.support.product.product import DedicatedProduct


class AdoptionRunner:
    """`claims`: the names of NodeClaims that Karpenter created."""

    def __init__(self, product: DedicatedProduct, scope: ClusterScope, class_path: str, claims: list[str]) -> None:
        self.product, self.scope, self.class_path, self.claims = product, scope, class_path, claims

    def start_cli(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "tenure", "adopt", "-o", "json", *arguments],
            env=clean_environment() | self.product.own_sandbox.environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    async def run_cli(self, *arguments: str, **environment: str) -> Object:
        """Returns the command's output; its exit code must be 0."""
        child = self.start_cli(*arguments, **environment)
        out, errors = await asyncio.to_thread(child.communicate)
        assert child.returncode == 0, f"{child.returncode}: {errors}\n{out}"
        result: Object = json.loads(out)
        return result

    async def snapshot(self) -> dict[str, Any]:
        """Identities of objects that must not be replaced, and the instance profile of the class."""
        claims = [one for one in await self.scope.nodeclaims() if one["metadata"]["name"] in self.claims]
        hosts = {one["status"]["nodeName"] for one in claims}
        nodes = [one for one in await self.scope.nodes() if one["metadata"]["name"] in hosts]
        pods = [one for one in await self.scope.pods() if one["spec"].get("nodeName") in hosts]
        found = await self.product.kube.request("GET", self.class_path)
        return {
            "claims": sorted(one["metadata"]["uid"] for one in claims),
            "nodes": sorted(one["metadata"]["uid"] for one in nodes),
            "pods": sorted(one["metadata"]["uid"] for one in pods),
            "instances": sorted(one["status"]["providerID"] for one in claims),
            "profile": found["status"]["instanceProfile"],
        }

    async def assert_unchanged(self, before: dict[str, Any]) -> None:
        assert await self.snapshot() == before
        for claim in await self.scope.nodeclaims():
            statuses = {one: condition_status(claim, one) for one in (labels.DRIFTED, labels.DISRUPTION_REASON)}
            assert "True" not in statuses.values() and "deletionTimestamp" not in claim["metadata"], (statuses, claim)
