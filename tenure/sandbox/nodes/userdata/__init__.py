"""Parse the user data of an instance like its boot would, for the way in which it joins a cluster, if any."""

from tenure.sandbox.nodes.userdata.kubelet_join import Join, UserDataError
from tenure.sandbox.nodes.userdata.parser import read_user_data

__all__ = ["Join", "UserDataError", "read_user_data"]
