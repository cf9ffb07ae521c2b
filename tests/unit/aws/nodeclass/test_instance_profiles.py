"""Instance profiles that another worker changes at the same time."""

from typing import Any, cast

import pytest

from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import fault_of
from tenure.aws.nodeclass.instance_profiles import Profiles
from tenure.model.errors import Conflict
from tests.support.aws.builders import SETTINGS, build_nodeclass
from tests.unit.aws.client.test_errors import client_error
from tests.unit.aws.fakes import Named


class FakeIam:
    """Replaces AwsClients. Another worker adds a role to the new profile first."""

    def __init__(self, other_role: str) -> None:
        self.iam, self.other_role, self.roles = Named(), other_role, list[str]()

    async def call(self, method: str, **request: Any) -> dict[str, Any]:
        if method == "get_instance_profile":
            return {"InstanceProfile": {"Path": "/", "Roles": [{"RoleName": one} for one in self.roles]}}
        assert method == "add_role_to_instance_profile"
        self.roles.append(self.other_role)
        raise fault_of(client_error("LimitExceeded"), method)


@pytest.mark.parametrize("other_role", ["KarpenterNodeRole-demo", "other"])
async def test_role_that_another_worker_added_is_accepted(other_role: str) -> None:
    profiles = Profiles(cast(AwsClients, FakeIam(other_role)), SETTINGS)
    if other_role == "other":
        with pytest.raises(Conflict, match="has another role than KarpenterNodeRole-demo"):
            await profiles.resolve(build_nodeclass())
    else:
        assert (await profiles.resolve(build_nodeclass())).startswith("demo_")
