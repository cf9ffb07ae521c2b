"""The control plane's binaries: found where the user says, in the cache, downloaded, or built from Go modules.

`find_or_build` is the door; `kubernetes.py` starts what it returns.
"""

from tenure.sandbox.controlplane.binaries import find_or_build
from tenure.sandbox.controlplane.versions import Binaries

__all__ = ["Binaries", "find_or_build"]
