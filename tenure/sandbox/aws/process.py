"""Build the AWS stand-in from command line options and serve it until stopped.

A thread runs due transitions without requests, for clients that wait for a change or its messages.
"""

from __future__ import annotations

import argparse
import gc
import threading
from pathlib import Path
from typing import Any

from tenure.sandbox.aws.ec2.records import Instance
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.application import Application
from tenure.sandbox.aws.http.server import Server
from tenure.sandbox.aws.iam.credentials import WORKER_KEY
from tenure.sandbox.aws.iam.policy import render_policy
from tenure.sandbox.aws.services.eventbridge import send_event, state_change
from tenure.sandbox.aws.settings import DEFAULT_CA, SimSettings
from tenure.sandbox.aws.state.initial_state import seed
from tenure.sandbox.aws.state.snapshot import load, save

IDLE_SECONDS = 5.0


def start_ticker(environment: Environment) -> threading.Thread:
    """A daemon thread that sleeps until the next transition is due."""
    thread = threading.Thread(
        target=_run_transitions, args=(environment,), name=f"ticker-{environment.region}", daemon=True
    )
    thread.start()
    return thread


def _run_transitions(environment: Environment) -> None:
    with environment.lock:
        while True:
            environment.run_due_transitions()
            due = environment.next_due()
            environment.moved.wait(IDLE_SECONDS if due is None else environment.clock.seconds_until(due, IDLE_SECONDS))


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


def build(settings: SimSettings, state_dir: Path | None = None) -> FakeAws:
    """A running stand-in with the state of `state_dir`, or with the initial state if there is none."""
    fake_aws = FakeAws(settings)
    if state_dir is None or not load(fake_aws, state_dir):
        seed(fake_aws)
    fake_aws.default_environment.listeners.append(lambda instance: _send_state_change(fake_aws, instance))
    start_ticker(fake_aws.default_environment)
    return fake_aws


def serve(options: argparse.Namespace, stop: threading.Event) -> None:
    settings = settings_from(options)
    fake_aws = build(settings, options.state_dir)
    if options.policy:
        documents = [_load_policy(settings, file) for file in options.policy]
        fake_aws.keys.bind_for_good(WORKER_KEY, documents)
    server = Server(options.host, options.port, Application(fake_aws))
    server.serve_in_thread()
    gc.freeze()
    gc.enable()
    print(f"AWS stand-in ready at {server.url}", flush=True)
    stop.wait()
    server.shutdown()
    server.server_close()
    if options.state_dir is not None:
        save(fake_aws, options.state_dir)


def _load_policy(settings: SimSettings, file: Path) -> dict[str, Any]:
    return render_policy(
        file.read_text(), cluster=settings.cluster_name, region=settings.region, account=settings.account
    )


def _send_state_change(fake_aws: FakeAws, instance: Instance) -> None:
    settings = fake_aws.settings
    if settings.state_change_events:
        send_event(settings, state_change(settings, fake_aws.default_environment.now(), instance.id, instance.state))
