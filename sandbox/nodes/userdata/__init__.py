"""Reads an instance's user data the way its boot would, and says how the machine is to join a cluster, if at all."""

from sandbox.nodes.userdata.join import Join, UserDataError
from sandbox.nodes.userdata.reader import read_user_data

__all__ = ["Join", "UserDataError", "read_user_data"]
