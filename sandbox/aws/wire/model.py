"""botocore's description of the EC2 API, loaded once: the shapes that `query` reads by and `xml` writes by."""

from __future__ import annotations

from functools import cache

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel


@cache
def ec2_model() -> ServiceModel:
    return ServiceModel(Loader().load_service_model("ec2", "service-2"), service_name="ec2")


@cache
def ec2_operation(action: str) -> OperationModel:
    """Raises botocore's OperationNotFoundError for an action that EC2 does not have."""
    return ec2_model().operation_model(action)
