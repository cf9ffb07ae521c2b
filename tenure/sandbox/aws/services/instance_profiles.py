"""iam:ListInstanceProfiles for moto's profiles, with PathPrefix, MaxItems and Marker."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any
from xml.sax.saxutils import escape

from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.request import AwsCall
from tenure.sandbox.aws.state.instance_profiles import instance_profiles
from tenure.sandbox.aws.wire.responses import Response, xml_response
from tenure.sandbox.aws.wire.xml import iso

NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"


def list_instance_profiles(fake_aws: FakeAws, call: AwsCall) -> Response:
    prefix, marker = call.form.get("PathPrefix", "/"), call.form.get("Marker", "")
    limit = int(call.form.get("MaxItems", "100"))
    profiles = instance_profiles(fake_aws.settings.account)
    chosen = sorted((p for p in profiles if p.path.startswith(prefix) and p.name > marker), key=lambda p: str(p.name))
    page_items = chosen[:limit]
    more = len(chosen) > limit
    members = "".join(f"<member>{_profile_xml(p)}</member>" for p in page_items)
    tail = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
    tail += f"<Marker>{escape(page_items[-1].name)}</Marker>" if more else ""
    return xml_response(
        f'<ListInstanceProfilesResponse xmlns="{NAMESPACE}"><ListInstanceProfilesResult>'
        f"<InstanceProfiles>{members}</InstanceProfiles>{tail}</ListInstanceProfilesResult>"
        f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata>"
        "</ListInstanceProfilesResponse>".encode()
    )


def _profile_xml(profile: Any) -> str:
    roles = "".join(f"<member>{_role_xml(role)}</member>" for role in profile.roles)
    return (
        f"<Path>{escape(profile.path)}</Path><InstanceProfileName>{escape(profile.name)}</InstanceProfileName>"
        f"<InstanceProfileId>{profile.id}</InstanceProfileId><Arn>{escape(profile.arn)}</Arn>"
        f"<CreateDate>{_create_date(profile)}</CreateDate><Roles>{roles}</Roles>"
    )


def _role_xml(role: Any) -> str:
    return (
        f"<Path>{escape(role.path)}</Path><RoleName>{escape(role.name)}</RoleName><RoleId>{role.id}</RoleId>"
        f"<Arn>{escape(role.arn)}</Arn><CreateDate>{_create_date(role)}</CreateDate>"
    )


def _create_date(record: Any) -> str:
    created = record.create_date
    return iso(created.replace(tzinfo=created.tzinfo or dt.UTC)) if isinstance(created, dt.datetime) else str(created)
