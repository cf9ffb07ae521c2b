"""AL2: MIME with a shell script that calls the image's bootstrap.sh. Custom user data comes first."""

import shlex
from typing import Final

from tenure.aws.amifamily.user_data.config import Bootstrap, kubelet_flags
from tenure.aws.amifamily.user_data.mime import SHELL_TYPE, is_mime, join_parts, make_part, parts_of

_LOG: Final = "exec > >(tee /var/log/user-data.log | logger -t user-data -s 2>/dev/console) 2>&1"


def render_al2(bootstrap: Bootstrap) -> str:
    """Raises UserDataError for invalid MIME."""
    custom = bootstrap.custom
    own = [] if not custom.strip() else parts_of(custom) if is_mime(custom) else [make_part(SHELL_TYPE, custom)]
    return join_parts([*own, make_part(SHELL_TYPE, _render_script(bootstrap))])


def _render_script(bootstrap: Bootstrap) -> str:
    arguments = [
        f"/etc/eks/bootstrap.sh {shlex.quote(bootstrap.cluster.name)}",
        f"--apiserver-endpoint {shlex.quote(bootstrap.cluster.endpoint)}",
    ]
    if bootstrap.cluster.ca_bundle:
        arguments.append(f"--b64-cluster-ca {shlex.quote(bootstrap.cluster.ca_bundle)}")
    if bootstrap.is_ipv6:
        arguments.append("--ip-family ipv6")
    if bootstrap.dns:
        arguments.append(f"--dns-cluster-ip {shlex.quote(bootstrap.dns[0])}")
    arguments.append("--use-max-pods false")
    if bootstrap.raid0:
        arguments.append("--local-disks raid0")
    arguments.append(f"--kubelet-extra-args {shlex.quote(' '.join(kubelet_flags(bootstrap)))}")
    return "#!/bin/bash -xe\n" + _LOG + "\n" + " \\\n".join(arguments) + "\n"
