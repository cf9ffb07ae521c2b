"""AWS::SQS::QueuePolicy for moto's CloudFormation, which leaves the type out: a stack's queue has its policy.

moto finds the types among the subclasses that there are when the first stack is made.
"""

from __future__ import annotations

import json
from typing import Any

from moto.core.common_models import CloudFormationModel
from moto.sqs.models import sqs_backends


class QueuePolicy(CloudFormationModel):  # type: ignore[misc]
    def __init__(self, queues: list[str]) -> None:
        self.queues = queues
        self.physical_resource_id = queues[0].rpartition("/")[2] + "-policy"

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SQS::QueuePolicy"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> QueuePolicy:
        said = cloudformation_json["Properties"]
        for url in said["Queues"]:
            queue = sqs_backends[account_id][region_name].get_queue(url.rpartition("/")[2])
            queue.policy = json.dumps(said["PolicyDocument"])
        return cls(list(said["Queues"]))

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> QueuePolicy:
        return cls.create_from_cloudformation_json(new_resource_name, cloudformation_json, account_id, region_name)

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        """It goes with its queue."""
