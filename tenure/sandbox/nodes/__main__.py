"""The node simulator as a process: `python -m tenure.sandbox.nodes --kubeconfig FILE --aws-endpoint URL`."""

import argparse
import asyncio
import logging
from pathlib import Path

from tenure.sandbox.nodes.service import serve
from tenure.sandbox.nodes.settings import NodesSettings


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    options = {name: value for name, value in vars(_parser().parse_args()).items() if value is not None}
    asyncio.run(serve(NodesSettings(**options)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tenure.sandbox.nodes", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--aws-endpoint", required=True, help="URL of the AWS stand-in or of another EC2 endpoint")
    parser.add_argument("--region")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, help="port of the control API; 0, the default, selects a free one")
    parser.add_argument("--boot-seconds", type=float, help="seconds from running to registered (2)")
    parser.add_argument("--ready-seconds", type=float, help="seconds from registered to Ready (0.5)")
    parser.add_argument("--device-seconds", type=float, help="seconds from Ready to devices such as GPUs (1)")
    return parser


if __name__ == "__main__":
    main()
