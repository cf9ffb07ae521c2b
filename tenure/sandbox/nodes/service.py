"""Assemble the simulator and serve it until stopped."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from tenure.sandbox.nodes.api_connection import KubeConnection
from tenure.sandbox.nodes.boot import Facts
from tenure.sandbox.nodes.control_api import build_app
from tenure.sandbox.nodes.instance_source import AnySource, Ec2, Ec2Source, FakeAwsSource
from tenure.sandbox.nodes.node_objects import NodesApi
from tenure.sandbox.nodes.settings import NodesSettings
from tenure.sandbox.nodes.simulator import Simulator

_LOG = logging.getLogger(__name__)


async def serve(settings: NodesSettings) -> None:
    """Run until SIGTERM or SIGINT, or raise the error of the simulator."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with running_simulator(settings) as (_, url, work):
        print(f"node simulator listens on {url}", flush=True)
        waiting = asyncio.ensure_future(stopped.wait())
        await asyncio.wait({waiting, work}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if work.done():
            work.result()


@contextlib.asynccontextmanager
async def running_simulator(settings: NodesSettings) -> AsyncIterator[tuple[Simulator, str, asyncio.Task[None]]]:
    """A running simulator, the URL of its control API, and its task."""
    ec2 = Ec2(settings.aws_endpoint, settings.region)
    timeout = aiohttp.ClientTimeout(total=30)
    async with KubeConnection(settings.kubeconfig) as connection, aiohttp.ClientSession(timeout=timeout) as session:
        fake_aws = FakeAwsSource(session, settings.aws_endpoint, settings.region)
        source = AnySource(fake_aws, Ec2Source(ec2, settings.poll_seconds))
        simulator = Simulator(source, Facts(ec2.user_data, ec2.machine_type), NodesApi(connection), settings)
        runner = web.AppRunner(build_app(simulator), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, settings.host, settings.port)
        await site.start()
        work = asyncio.create_task(simulator.run())
        try:
            yield simulator, f"http://{settings.host}:{runner.addresses[0][1]}", work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await runner.cleanup()
