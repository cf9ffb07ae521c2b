"""Runs `tenure adopt` as a person does, and looks at what it must not touch."""

import asyncio
import json
import subprocess
import sys
from typing import Any

from tenure.apis import labels
from tenure.cli.sandbox.worker_process import clean_environment
from tests.support.product.objects import Object
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, condition


class Adopter:
    """`claims`: the names of NodeClaims that Karpenter made."""

    def __init__(self, product: OwnProduct, scene: Scene, class_path: str, claims: list[str]) -> None:
        self.product, self.scene, self.class_path, self.claims = product, scene, class_path, claims

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "tenure", "adopt", "-o", "json", *arguments],
            env=clean_environment() | self.product.own_sandbox.environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    async def run(self, *arguments: str, **environment: str) -> Object:
        """Its answer; the exit code is 0."""
        child = self.start(*arguments, **environment)
        out, told = await asyncio.to_thread(child.communicate)
        assert child.returncode == 0, f"{child.returncode}: {told}\n{out}"
        answer: Object = json.loads(out)
        return answer

    async def look(self) -> dict[str, Any]:
        """What has to stay, by identity, and the instance profile of the class."""
        claims = [one for one in await self.scene.claims() if one["metadata"]["name"] in self.claims]
        hosts = {one["status"]["nodeName"] for one in claims}
        nodes = [one for one in await self.scene.nodes() if one["metadata"]["name"] in hosts]
        pods = [one for one in await self.scene.pods() if one["spec"].get("nodeName") in hosts]
        found = await self.product.kube.request("GET", self.class_path)
        return {
            "claims": sorted(one["metadata"]["uid"] for one in claims),
            "nodes": sorted(one["metadata"]["uid"] for one in nodes),
            "pods": sorted(one["metadata"]["uid"] for one in pods),
            "instances": sorted(one["status"]["providerID"] for one in claims),
            "profile": found["status"]["instanceProfile"],
        }

    async def goes_on(self, before: dict[str, Any]) -> None:
        assert await self.look() == before
        for claim in await self.scene.claims():
            told = {one: condition(claim, one) for one in (labels.DRIFTED, labels.DISRUPTION_REASON)}
            assert "True" not in told.values() and "deletionTimestamp" not in claim["metadata"], (told, claim)
