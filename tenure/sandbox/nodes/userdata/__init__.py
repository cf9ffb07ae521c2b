"""Reads an instance's user data the way its boot would, and says how the machine is to join a cluster, if at all."""

from tenure.sandbox.nodes.userdata.kubelet_join import Join, UserDataError
from tenure.sandbox.nodes.userdata.parser import read_user_data

__all__ = ["Join", "UserDataError", "read_user_data"]
