"""Histories in S3: what is there is known again, and what may not be read or written says so."""

import boto3
import pytest
from moto import mock_aws

from tenure.aws.client.s3_archive import Bucket
from tenure.model.errors import Fault


def test_what_was_put_is_there_under_the_prefix_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        s3 = boto3.session.Session().client("s3")
        s3.create_bucket(Bucket="kept", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        bucket = Bucket("kept", "/histories/")
        assert not bucket.has("demo/one.json")
        bucket.put("demo/one.json", '{"events": []}')
        assert bucket.has("demo/one.json")
        body = s3.get_object(Bucket="kept", Key="histories/demo/one.json")["Body"].read()
        assert body == b'{"events": []}'
        with pytest.raises(Fault):
            Bucket("another", "").put("demo/one.json", "{}")
