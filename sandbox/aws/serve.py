"""Builds the stand-in from the command line's options and serves it until told to stop."""

from __future__ import annotations

import argparse
import threading

from sandbox.aws.app import Application
from sandbox.aws.seed import seed
from sandbox.aws.server import Server
from sandbox.aws.settings import DEFAULT_CA, SimSettings
from sandbox.aws.standin import StandIn


def settings_from(options: argparse.Namespace) -> SimSettings:
    return SimSettings(
        account=options.account,
        region=options.region,
        cluster_name=options.cluster_name,
        cluster_endpoint=options.cluster_endpoint,
        cluster_ca=options.cluster_ca or DEFAULT_CA,
        cluster_version=options.cluster_version,
        service_cidr=options.service_cidr,
        pending_seconds=options.pending_seconds,
        shutting_down_seconds=options.shutting_down_seconds,
        terminated_visible_seconds=options.terminated_visible_seconds,
        state_change_events=options.state_change_events,
        clock_scale=options.clock_scale,
    )


def serve(options: argparse.Namespace, stop: threading.Event) -> None:
    standin = StandIn(settings_from(options))
    seed(standin)
    server = Server(options.host, options.port, Application(standin))
    server.serve_in_thread()
    print(f"AWS stand-in ready at {server.url}", flush=True)
    stop.wait()
    server.shutdown()
    server.server_close()
