"""Keeps moto small: of the offerings of all the world it is to load two regions only. Call before moto's EC2 is
imported.

Without this the process carries about 100 MB of rows that nobody asks for, and starts half a second later.
"""

from __future__ import annotations

from typing import Any

import moto.utilities.utils as moto_utilities

OFFERINGS = "ec2/resources/instance_type_offerings/"


def keep_regions(*regions: str) -> None:
    load = moto_utilities.load_resource

    def load_wanted(resource: str) -> Any:
        region = resource.rsplit("/", 1)[-1].split(".")[0]
        unwanted = resource.startswith(OFFERINGS) and region not in regions
        return [] if unwanted else load(resource)

    moto_utilities.load_resource = load_wanted
