"""Which EC2NodeClasses the API server takes, field by field, and what it says to the others."""

from typing import Any

import pytest

from tests.adapters.apis.server import ApiServerClient, assert_row
from tests.support.apis.crd_rows import ABSENT, NODECLASS, Row, accepts, rejects

TAGS = {"team": "a"}


def image(*terms: dict[str, Any], family: str | None = "AL2023") -> dict[str, Any]:
    return {"amiSelectorTerms": list(terms), "amiFamily": family if family else ABSENT}


def selector(field: str, prefix: str, *exclusive_fields: str) -> tuple[Row, ...]:
    """Rows for a list of selector terms; `exclusive_fields` are the fields that may not stand beside `id`, with tags
    first."""
    values: dict[str, Any] = {"tags": TAGS, "name": "a", "ownerID": "012345678901", "instanceMatchCriteria": "open"}
    return (
        accepts(f"{field}: tags", **{field: [{"tags": TAGS}]}),
        accepts(f"{field}: any value of a tag", **{field: [{"tags": {"team": "*"}}]}),
        accepts(f"{field}: 20 tags", **{field: [{"tags": {f"t{i}": "x" for i in range(20)}}]}),
        rejects(f"{field}: 21 tags", "at most 20", **{field: [{"tags": {f"t{i}": "x" for i in range(21)}}]}),
        rejects(f"{field}: a tag without value", "'*' for any value", **{field: [{"tags": {"team": ""}}]}),
        rejects(f"{field}: a tag without key", "'*' for any value", **{field: [{"tags": {"": "a"}}]}),
        accepts(f"{field}: id", **{field: [{"id": f"{prefix}-0123abc"}]}),
        rejects(f"{field}: a wrong id", "should match", **{field: [{"id": "i-0123"}]}),
        accepts(f"{field}: several terms", **{field: [{"tags": TAGS}, {"id": f"{prefix}-1"}]}),
        accepts(f"{field}: 30 terms", **{field: [{"tags": TAGS}] * 30}),
        rejects(f"{field}: 31 terms", "at most 30", **{field: [{"tags": TAGS}] * 31}),
        rejects(f"{field}: an empty list", f"{field}", **{field: []}),
        rejects(f"{field}: an empty term", "each term of", **{field: [{}]}),
        rejects(f"{field}: one empty term of two", "each term of", **{field: [{"tags": TAGS}, {}]}),
        rejects(f"{field}: an unknown field", "unknown field", **{field: [{"tags": TAGS, "colour": "x"}]}),
        *(
            row
            for other in exclusive_fields
            for row in (
                rejects(
                    f"{field}: id beside {other}",
                    "an 'id' stands alone",
                    **{field: [{"id": f"{prefix}-1", other: values[other]}]},
                ),
                # Karpenter refuses the list only if every term is of this kind, so one clean term lets it pass.
                accepts(
                    f"{field}: id beside {other} and a clean term",
                    **{field: [{"id": f"{prefix}-1", other: values[other]}, {"tags": TAGS}]},
                ),
                rejects(
                    f"{field}: id beside {other} twice",
                    "an 'id' stands alone",
                    **{field: [{"id": f"{prefix}-1", other: values[other]}] * 2},
                ),
            )
        ),
    )


SELECTORS = (
    rejects("no subnets", "subnetSelectorTerms: Required", subnetSelectorTerms=ABSENT),
    *selector("subnetSelectorTerms", "subnet", "tags"),
    rejects("a subnet name", "unknown field", subnetSelectorTerms=[{"name": "a"}]),
    rejects("no security groups", "securityGroupSelectorTerms: Required", securityGroupSelectorTerms=ABSENT),
    *selector("securityGroupSelectorTerms", "sg", "tags", "name"),
    accepts("a security group's name", securityGroupSelectorTerms=[{"name": "a"}]),
    rejects("a name beside tags", "a 'name' stands alone", securityGroupSelectorTerms=[{"name": "a", "tags": TAGS}]),
    accepts(
        "a name beside tags and a clean term",
        securityGroupSelectorTerms=[{"name": "a", "tags": TAGS}, {"tags": TAGS}],
    ),
    accepts("no reservations", capacityReservationSelectorTerms=ABSENT),
    *selector("capacityReservationSelectorTerms", "cr", "tags", "ownerID", "instanceMatchCriteria"),
    accepts("tags and owner", capacityReservationSelectorTerms=[{"tags": TAGS, "ownerID": "012345678901"}]),
    accepts("open", capacityReservationSelectorTerms=[{"instanceMatchCriteria": "open"}]),
    accepts("targeted", capacityReservationSelectorTerms=[{"instanceMatchCriteria": "targeted"}]),
    rejects(
        "another criterion", "Unsupported value", capacityReservationSelectorTerms=[{"instanceMatchCriteria": "any"}]
    ),
    rejects("an owner alone", "each term of", capacityReservationSelectorTerms=[{"ownerID": "012345678901"}]),
    rejects("a short owner", "should match", capacityReservationSelectorTerms=[{"tags": TAGS, "ownerID": "1234"}]),
    rejects("text before the id", "should match", capacityReservationSelectorTerms=[{"id": "my-cr-0123"}]),
    accepts("text before a subnet's id", subnetSelectorTerms=[{"id": "my-subnet-0123"}]),
    accepts("a placement group's name", placementGroupSelector={"name": "training"}),
    accepts("a placement group's id", placementGroupSelector={"id": "pg-0123abc"}),
    rejects("both of a placement group", "either 'name' or 'id'", placementGroupSelector={"name": "a", "id": "pg-1"}),
    rejects("neither of a placement group", "either 'name' or 'id'", placementGroupSelector={}),
    rejects("an empty placement group name", "at least 1 char", placementGroupSelector={"name": ""}),
    rejects("a wrong placement group id", "should match", placementGroupSelector={"id": "group-1"}),
)

FAMILIES = ("al2", "al2023", "bottlerocket", "windows2019", "windows2022", "windows2025")
NAMES = {"al2": "AL2", "al2023": "AL2023", "bottlerocket": "Bottlerocket"} | {
    f"windows{year}": f"Windows{year}" for year in (2019, 2022, 2025)
}
IMAGES = (
    rejects("no images", "amiSelectorTerms: Required", amiSelectorTerms=ABSENT),
    rejects("an empty list of images", "at least 1 items", **image()),
    *(accepts(f"alias {family}@latest", **image({"alias": f"{family}@latest"}, family=None)) for family in FAMILIES),
    *(
        accepts(f"alias {family}@latest with {name}", **image({"alias": f"{family}@latest"}, family=name))
        for family, short in NAMES.items()
        for name in (short, "Custom")
    ),
    *(
        rejects(
            f"alias {family}@latest with {other}",
            "amiFamily and the alias differ",
            **image({"alias": f"{family}@latest"}, family=other),
        )
        for family in FAMILIES
        for other in NAMES.values()
        if other != NAMES[family]
    ),
    accepts("a pinned al2023", **image({"alias": "al2023@v20240625"}, family=None)),
    accepts("a pinned Bottlerocket", **image({"alias": "bottlerocket@v1.10.0"}, family=None)),
    accepts("an alias with two at signs", **image({"alias": "al2023@a@b"}, family=None)),
    *(
        rejects(f"a pinned {family}", "write @latest", **image({"alias": f"{family}@v1"}, family=None))
        for family in FAMILIES
        if family.startswith("windows")
    ),
    *(
        rejects(f"alias {alias!r}", "family@version", **image({"alias": alias}, family=None))
        for alias in ("al2023", "al2023@", "@latest", "al 2023@latest")
    ),
    *(
        rejects(f"alias {alias!r}", "in small letters", **image({"alias": alias}, family=None))
        for alias in ("AL2023@latest", "ubuntu@latest", "custom@latest", "windows2016@latest")
    ),
    rejects("an alias of 31", "Too long", **image({"alias": "bottlerocket@" + "1" * 18}, family=None)),
    accepts("an alias of 30", **image({"alias": "bottlerocket@" + "1" * 17}, family=None)),
    rejects("two aliases", "only term", **image({"alias": "al2023@latest"}, {"alias": "al2023@v1"}, family=None)),
    rejects("an alias and another term", "only term", **image({"alias": "al2023@latest"}, {"id": "ami-1"})),
    *(
        rejects(f"an alias beside {field}", "stands alone", **image({"alias": "al2023@latest", field: value}))
        for field, value in {"id": "ami-1", "tags": TAGS, "name": "a", "owner": "self"}.items()
    ),
    # Karpenter leaves ssmParameter out of all these rules, so it may stand beside anything.
    accepts("an alias beside an ssmParameter", **image({"alias": "al2023@latest", "ssmParameter": "/a"})),
    accepts("an id beside an ssmParameter", **image({"id": "ami-1", "ssmParameter": "/a"})),
    *(
        accepts(f"by {'+'.join(term)}", **image(term))
        for term in (
            {"id": "ami-0123abc"},
            {"tags": TAGS},
            {"tags": {"a": "*"}},
            {"name": "my-image"},
            {"name": "my-image", "owner": "self"},
            {"name": "my-image", "tags": TAGS, "owner": "amazon"},
            {"ssmParameter": "/my/image"},
        )
    ),
    *(
        rejects(f"an id beside {field}", "an 'id' stands alone", **image({"id": "ami-1", field: value}, {"tags": TAGS}))
        for field, value in {"tags": TAGS, "name": "a", "owner": "self"}.items()
    ),
    rejects("an owner alone", "each term of", **image({"owner": "self"})),
    rejects("an empty term", "each term of", **image({})),
    rejects("a wrong id", "should match", **image({"id": "i-1"})),
    rejects("a tag without value", "'*' for any value", **image({"tags": {"a": ""}})),
    accepts("30 terms", **image(*[{"id": "ami-1"}] * 30)),
    rejects("31 terms", "at most 30", **image(*[{"id": "ami-1"}] * 31)),
    rejects("no family without an alias", "write amiFamily", **image({"id": "ami-1"}, family=None)),
    *(accepts(f"family {family}", **image({"id": "ami-1"}, family=family)) for family in (*NAMES.values(), "Custom")),
    *(
        rejects(f"family {family}", "Unsupported value", **image({"id": "ami-1"}, family=family))
        for family in ("Ubuntu", "al2023")
    ),
)

IDENTITY = (
    accepts("a class without spec", spec=ABSENT),
    accepts("an instance profile", role=ABSENT, instanceProfile="nodes"),
    rejects("neither role nor profile", "write either 'role'", role=ABSENT),
    rejects("both role and profile", "write either 'role'", instanceProfile="nodes"),
    rejects("an empty role", "role may not be empty", role=""),
    rejects("an empty profile", "instanceProfile may not be empty", role=ABSENT, instanceProfile=""),
    accepts("tags", tags={"team": "a", "empty": "", "karpenter.sh/discovery": "x"}),
    rejects("a tag without key", "a tag needs a key", tags={"": "a"}),
    *(
        rejects(f"tag {key}", "remove it from 'tags'", tags={key: "x"})
        for key in (
            "eks:eks-cluster-name",
            "kubernetes.io/cluster/mine",
            "kubernetes.io/cluster",
            "karpenter.sh/nodepool",
            "karpenter.sh/nodeclaim",
            "karpenter.k8s.aws/ec2nodeclass",
        )
    ),
    accepts("user data", userData="#!/bin/sh\n"),
    accepts("an empty context", context=""),
    accepts("a context", context="a"),
    rejects("an unknown field", "unknown field", launchTemplate="a"),
    accepts("detailed monitoring", detailedMonitoring=True),
    accepts("public addresses", associatePublicIPAddress=False),
    rejects("a switch as text", "must be of type boolean", associatePublicIPAddress="no"),
    accepts("no prefixes", ipPrefixCount=0),
    rejects("a negative prefix count", "greater than or equal to 0", ipPrefixCount=-1),
    accepts("RAID0", instanceStorePolicy="RAID0"),
    rejects("RAID1", "Unsupported value", instanceStorePolicy="RAID1"),
)

KUBELET = (
    accepts(
        "managed kubelet fields", kubelet={"maxPods": 20, "clusterDNS": ["10.0.0.10"], "kubeReserved": {"cpu": "100m"}}
    ),
    accepts("an expression", kubelet={"maxPods": "min(110, max_pods)"}),
    accepts("any kubelet field", kubelet={"shutdownGracePeriod": "30s", "nested": {"deep": [1, "two", None]}}),
    accepts("what the status will call wrong", kubelet={"registerWithTaints": [], "imageGCHighThresholdPercent": 500}),
    rejects("a kubelet that is no object", "must be of type object", kubelet=[]),
)


def disk(**ebs: Any) -> dict[str, Any]:
    return {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": ebs}]}


SIZES = ("1Gi", "59000Gi", "1G", "64000G", "1Ti", "58Ti", "1T", "64T", "57Ti", "63T", "8192Gi")
DISKS = (
    accepts("no disks", blockDeviceMappings=[]),
    accepts("a disk without ebs", blockDeviceMappings=[{"deviceName": "/dev/xvda"}]),
    accepts("a disk without name", blockDeviceMappings=[{"ebs": {"volumeSize": "1Gi"}}]),
    accepts("50 disks", blockDeviceMappings=[{}] * 50),
    rejects("51 disks", "at most 50", blockDeviceMappings=[{}] * 51),
    accepts("one root", blockDeviceMappings=[{"rootVolume": True}, {"rootVolume": False}, {}]),
    rejects("two roots", "one root volume", blockDeviceMappings=[{"rootVolume": True}] * 2),
    *(accepts(f"size {size}", **disk(volumeSize=size)) for size in SIZES),
    *(
        rejects(f"size {size!r}", "should match", **disk(volumeSize=size))
        for size in ("0Gi", "59001Gi", "64001G", "59Ti", "65T", "100Mi", "100", "1.5Gi", "-1Gi", "")
    ),
    rejects("a size as number", "must be of type string", **disk(volumeSize=100)),
    accepts("a snapshot alone", **disk(snapshotID="snap-1")),
    rejects("neither size nor snapshot", "a volume needs a size", **disk(volumeType="gp3")),
    *(
        accepts(f"type {kind}", **disk(volumeSize="1Gi", volumeType=kind))
        for kind in ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
    ),
    rejects("type gp4", "Unsupported value", **disk(volumeSize="1Gi", volumeType="gp4")),
    accepts(
        "all of a disk",
        **disk(volumeSize="1Gi", iops=3000, throughput=125, encrypted=True, kmsKeyID="a", deleteOnTermination=False),
    ),
    accepts("an initialization rate", **disk(snapshotID="snap-1", volumeInitializationRate=100)),
    accepts("the highest rate", **disk(snapshotID="snap-1", volumeInitializationRate=300)),
    rejects("a rate of 99", "greater than or equal to 100", **disk(snapshotID="snap-1", volumeInitializationRate=99)),
    rejects("a rate of 301", "less than or equal to 300", **disk(snapshotID="snap-1", volumeInitializationRate=301)),
    rejects(
        "a rate without snapshot", "write 'snapshotID' too", **disk(volumeSize="1Gi", volumeInitializationRate=100)
    ),
    rejects(
        "a rate with an empty snapshot",
        "write 'snapshotID' too",
        **disk(volumeSize="1Gi", snapshotID="", volumeInitializationRate=100),
    ),
)


def card(card: int = 0, device: int = 0, kind: str = "interface") -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


PRIMARY = card()
NETWORK = (
    accepts("the primary interface", networkInterfaces=[PRIMARY]),
    accepts("EFA on two cards", networkInterfaces=[PRIMARY, card(0, 1, "efa-only"), card(1, 0, "efa-only")]),
    accepts("150 interfaces", networkInterfaces=[card(i) for i in range(150)]),
    rejects("151 interfaces", "at most 150", networkInterfaces=[card(i) for i in range(151)]),
    rejects("an empty list of interfaces", "needs the primary one", networkInterfaces=[]),
    rejects("no primary interface", "needs the primary one", networkInterfaces=[card(1, 0)]),
    rejects("an EFA as primary", "needs the primary one", networkInterfaces=[card(0, 0, "efa-only")]),
    rejects("two on one place", "same place", networkInterfaces=[PRIMARY, card(1, 1), card(1, 1, "efa-only")]),
    rejects(
        "two EFAs on one card",
        "one efa-only interface",
        networkInterfaces=[PRIMARY, card(1, 0, "efa-only"), card(1, 1, "efa-only")],
    ),
    rejects("a negative card", "greater than or equal to 0", networkInterfaces=[PRIMARY, card(-1, 0)]),
    rejects("a negative device", "greater than or equal to 0", networkInterfaces=[PRIMARY, card(0, -1)]),
    rejects("type efa", "Unsupported value", networkInterfaces=[PRIMARY, card(1, 0, "efa")]),
    *(
        rejects(
            f"no {field}", "Required", networkInterfaces=[PRIMARY, {k: v for k, v in card(1).items() if k != field}]
        )
        for field in PRIMARY
    ),
)

OPTIONS = (
    *(
        row
        for field in ("httpEndpoint", "httpProtocolIPv6")
        for row in (
            accepts(f"{field} enabled", metadataOptions={field: "enabled"}),
            accepts(f"{field} disabled", metadataOptions={field: "disabled"}),
            rejects(f"{field} on", "Unsupported value", metadataOptions={field: "on"}),
        )
    ),
    accepts("tokens optional", metadataOptions={"httpTokens": "optional"}),
    accepts("tokens required", metadataOptions={"httpTokens": "required"}),
    rejects("tokens enabled", "Unsupported value", metadataOptions={"httpTokens": "enabled"}),
    accepts("hop limit 1", metadataOptions={"httpPutResponseHopLimit": 1}),
    accepts("hop limit 64", metadataOptions={"httpPutResponseHopLimit": 64}),
    rejects("hop limit 0", "greater than or equal to 1", metadataOptions={"httpPutResponseHopLimit": 0}),
    rejects("hop limit 65", "less than or equal to 64", metadataOptions={"httpPutResponseHopLimit": 65}),
    rejects("no time-out", "needs one of", connectionTracking={}),
    *(
        row
        for field, low, high in (
            ("tcpEstablishedTimeout", 60, 432000),
            ("udpStreamTimeout", 60, 180),
            ("udpTimeout", 30, 60),
        )
        for row in (
            accepts(f"{field} {low}", connectionTracking={field: low}),
            accepts(f"{field} {high}", connectionTracking={field: high}),
            rejects(f"{field} {low - 1}", "greater than or equal", connectionTracking={field: low - 1}),
            rejects(f"{field} {high + 1}", "less than or equal", connectionTracking={field: high + 1}),
        )
    ),
    accepts("nested virtualization", cpuOptions={"nestedVirtualization": "enabled"}),
    accepts("no nested virtualization", cpuOptions={"nestedVirtualization": "disabled"}),
    rejects("virtualization on", "Unsupported value", cpuOptions={"nestedVirtualization": "on"}),
)

ROWS = (*SELECTORS, *IMAGES, *IDENTITY, *KUBELET, *DISKS, *NETWORK, *OPTIONS)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_the_api_server(row: Row, server: ApiServerClient) -> None:
    await assert_row(server, NODECLASS, row)
