"""User data with which an instance joins the cluster at boot, in the format of its image family."""

from tenure.aws.amifamily.user_data.bootstrap import Bootstrap, UserDataError, UserDataTooLarge, render

__all__ = ["Bootstrap", "UserDataError", "UserDataTooLarge", "render"]
