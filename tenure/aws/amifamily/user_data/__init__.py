"""User data: what an instance reads at boot to join the cluster, in the dialect of its image family."""

from tenure.aws.amifamily.user_data.bootstrap import Bootstrap, UserDataError, UserDataTooLarge, render

__all__ = ["Bootstrap", "UserDataError", "UserDataTooLarge", "render"]
