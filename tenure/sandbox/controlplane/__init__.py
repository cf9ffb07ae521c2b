"""The binaries of the control plane: from the user's path, from the cache, downloaded, or built from Go modules.

`find_or_build` returns them; `kubernetes.py` starts them.
"""

from tenure.sandbox.controlplane.binaries import find_or_build
from tenure.sandbox.controlplane.versions import Binaries

__all__ = ["Binaries", "find_or_build"]
