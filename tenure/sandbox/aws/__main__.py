"""`python -m tenure.sandbox.aws --port N`: run the AWS stand-in until SIGTERM or Ctrl-C. Prints its URL when ready."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tenure.sandbox.aws", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="port; 0 selects a free one")
    parser.add_argument("--state-dir", type=Path, help="folder that keeps the state between runs")
    parser.add_argument(
        "--policy", type=Path, action="append", default=[], help="IAM document bound to the worker's key"
    )
    parser.add_argument("--clock-scale", type=float, default=1.0)
    parser.add_argument("--pending-seconds", type=float, default=1.0)
    parser.add_argument("--shutting-down-seconds", type=float, default=2.0)
    parser.add_argument("--terminated-visible-seconds", type=float, default=60.0)
    parser.add_argument("--account", default="123456789012")
    parser.add_argument("--region", default="us-west-2")
    parser.add_argument("--cluster-name", default="demo")
    parser.add_argument("--cluster-endpoint", default="https://cluster.demo.invalid")
    parser.add_argument("--cluster-ca", help="base64-encoded CA certificate for eks:DescribeCluster")
    parser.add_argument("--cluster-version", default="1.34")
    parser.add_argument("--service-cidr", default="10.100.0.0/16")
    parser.add_argument("--state-change-events", action="store_true", help="send state changes to the cluster's queue")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments(argv)
    gc.disable()  # `serve` enables it: imports and the initial state stay alive.
    # moto reads this when it is first imported, so the imports come after it.
    os.environ["MOTO_ACCOUNT_ID"] = options.account
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    from tenure.sandbox.aws.http.moto import limit_regions  # noqa: PLC0415

    limit_regions(options.region, "us-east-1")
    from tenure.sandbox.aws.process import serve  # noqa: PLC0415

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    serve(options, stop)


if __name__ == "__main__":
    main()
