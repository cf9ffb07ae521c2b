"""Credentials that rotate within seconds are read again, and a missing provider fails calls until it returns."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tenure.aws.client.client import AwsClients
from tenure.aws.settings import AwsSettings
from tenure.model.errors import TryLater

EC2_RESPONSE = (
    b'<DescribeSubnetsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><subnetSet/></DescribeSubnetsResponse>'
)


class Provider(ThreadingHTTPServer):
    """A provider of container credentials, and an EC2 that records the access key of each call."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rotations = 0
        self.is_away = False
        self.access_keys: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        if self.server.is_away:
            self._respond(503, b"{}")
            return
        self.server.rotations += 1
        key = f"KEY{self.server.rotations}"
        expires = (datetime.now(UTC) + timedelta(seconds=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
        found = {"AccessKeyId": key, "SecretAccessKey": "s", "Token": "t", "Expiration": expires}
        self._respond(200, json.dumps(found).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.access_keys.append(self.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        self._respond(200, EC2_RESPONSE)

    def _respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """No output."""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with Provider() as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, "/dev/null")
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{server.server_port}/credentials")
        monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
        yield server
        server.shutdown()


async def test_rotated_credentials_are_used_and_a_missing_provider_is_retryable(provider: Provider) -> None:
    endpoint = f"http://127.0.0.1:{provider.server_port}"
    clients = AwsClients(AwsSettings(region="us-west-2", cluster_name="demo", endpoint_url=endpoint))
    try:
        for _ in range(2):
            await clients.call(clients.ec2.describe_subnets)
        assert len(set(provider.access_keys)) == 2
        provider.is_away = True
        with pytest.raises(TryLater):
            await clients.call(clients.ec2.describe_subnets)
        provider.is_away = False
        await clients.call(clients.ec2.describe_subnets)
        assert provider.access_keys[-1] == f"KEY{provider.rotations}" and len(provider.access_keys) == 3
    finally:
        clients.close()
