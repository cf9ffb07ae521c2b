"""Texts under a prefix of an S3 bucket. Credentials and region are those of boto3's usual chain."""

from typing import Any

import boto3
from botocore.exceptions import ClientError

from tenure.aws.client.errors import BOTO_ERRORS, fault_of

ABSENT = ("404", "NoSuchKey", "NotFound")


class Bucket:
    """For threads. Raises model.faults."""

    def __init__(self, bucket: str, prefix: str, *, endpoint_url: str | None = None) -> None:
        self._bucket, self._prefix = bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        # Its types are not among those that are installed.
        session: Any = boto3.session.Session()
        self._where = f"s3://{bucket}"
        self._client = session.client("s3", endpoint_url=endpoint_url)

    def has(self, name: str) -> bool:
        try:
            self._client.head_object(Bucket=self._bucket, Key=self._prefix + name)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ABSENT:
                return False
            raise fault_of(error, self._where) from error
        except BOTO_ERRORS as error:
            raise fault_of(error, self._where) from error
        return True

    def put(self, name: str, text: str) -> None:
        try:
            self._client.put_object(
                Bucket=self._bucket, Key=self._prefix + name, Body=text.encode(), ContentType="application/json"
            )
        except BOTO_ERRORS as error:
            raise fault_of(error, self._where) from error
