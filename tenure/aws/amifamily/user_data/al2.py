"""AL2: MIME with a shell script that calls the image's bootstrap.sh. The user's parts come first."""

import shlex
from typing import Final

from tenure.aws.amifamily.user_data.config import Bootstrap, kubelet_flags
from tenure.aws.amifamily.user_data.mime import SHELL_TYPE, is_mime, joined, part, parts_of

_LOG: Final = "exec > >(tee /var/log/user-data.log | logger -t user-data -s 2>/dev/console) 2>&1"


def render_al2(bootstrap: Bootstrap) -> str:
    """Raises UserDataError for MIME that is none."""
    custom = bootstrap.custom
    own = [] if not custom.strip() else parts_of(custom) if is_mime(custom) else [part(SHELL_TYPE, custom)]
    return joined([*own, part(SHELL_TYPE, _script(bootstrap))])


def _script(bootstrap: Bootstrap) -> str:
    words = [
        f"/etc/eks/bootstrap.sh {shlex.quote(bootstrap.cluster.name)}",
        f"--apiserver-endpoint {shlex.quote(bootstrap.cluster.endpoint)}",
    ]
    if bootstrap.cluster.ca_bundle:
        words.append(f"--b64-cluster-ca {shlex.quote(bootstrap.cluster.ca_bundle)}")
    if bootstrap.ipv6:
        words.append("--ip-family ipv6")
    if bootstrap.dns:
        words.append(f"--dns-cluster-ip {shlex.quote(bootstrap.dns[0])}")
    words.append("--use-max-pods false")
    if bootstrap.raid0:
        words.append("--local-disks raid0")
    words.append(f"--kubelet-extra-args {shlex.quote(' '.join(kubelet_flags(bootstrap)))}")
    return "#!/bin/bash -xe\n" + _LOG + "\n" + " \\\n".join(words) + "\n"
