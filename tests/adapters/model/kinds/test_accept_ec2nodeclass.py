"""Which EC2NodeClasses the API server takes, field by field, and what it says to the others."""

from typing import Any

import pytest

from tests.adapters.model.kinds.server import Server, assert_row
from tests.support.model.kinds.table import ABSENT, NODECLASS, Row, no, ok

TAGS = {"team": "a"}


def image(*terms: dict[str, Any], family: str | None = "AL2023") -> dict[str, Any]:
    return {"amiSelectorTerms": list(terms), "amiFamily": family if family else ABSENT}


def selector(field: str, prefix: str, *beside: str) -> tuple[Row, ...]:
    """Rows for a list of selector terms; `beside` are the fields that may not stand beside `id`, with tags first."""
    values: dict[str, Any] = {"tags": TAGS, "name": "a", "ownerID": "012345678901", "instanceMatchCriteria": "open"}
    return (
        ok(f"{field}: tags", **{field: [{"tags": TAGS}]}),
        ok(f"{field}: any value of a tag", **{field: [{"tags": {"team": "*"}}]}),
        ok(f"{field}: 20 tags", **{field: [{"tags": {f"t{i}": "x" for i in range(20)}}]}),
        no(f"{field}: 21 tags", "at most 20", **{field: [{"tags": {f"t{i}": "x" for i in range(21)}}]}),
        no(f"{field}: a tag without value", "'*' for any value", **{field: [{"tags": {"team": ""}}]}),
        no(f"{field}: a tag without key", "'*' for any value", **{field: [{"tags": {"": "a"}}]}),
        ok(f"{field}: id", **{field: [{"id": f"{prefix}-0123abc"}]}),
        no(f"{field}: a wrong id", "should match", **{field: [{"id": "i-0123"}]}),
        ok(f"{field}: several terms", **{field: [{"tags": TAGS}, {"id": f"{prefix}-1"}]}),
        ok(f"{field}: 30 terms", **{field: [{"tags": TAGS}] * 30}),
        no(f"{field}: 31 terms", "at most 30", **{field: [{"tags": TAGS}] * 31}),
        no(f"{field}: an empty list", f"{field}", **{field: []}),
        no(f"{field}: an empty term", "each term of", **{field: [{}]}),
        no(f"{field}: one empty term of two", "each term of", **{field: [{"tags": TAGS}, {}]}),
        no(f"{field}: an unknown field", "unknown field", **{field: [{"tags": TAGS, "colour": "x"}]}),
        *(
            row
            for other in beside
            for row in (
                no(
                    f"{field}: id beside {other}",
                    "an 'id' stands alone",
                    **{field: [{"id": f"{prefix}-1", other: values[other]}]},
                ),
                # Karpenter refuses the list only if every term is of this kind, so one clean term lets it pass.
                ok(
                    f"{field}: id beside {other} and a clean term",
                    **{field: [{"id": f"{prefix}-1", other: values[other]}, {"tags": TAGS}]},
                ),
                no(
                    f"{field}: id beside {other} twice",
                    "an 'id' stands alone",
                    **{field: [{"id": f"{prefix}-1", other: values[other]}] * 2},
                ),
            )
        ),
    )


SELECTORS = (
    no("no subnets", "subnetSelectorTerms: Required", subnetSelectorTerms=ABSENT),
    *selector("subnetSelectorTerms", "subnet", "tags"),
    no("a subnet name", "unknown field", subnetSelectorTerms=[{"name": "a"}]),
    no("no security groups", "securityGroupSelectorTerms: Required", securityGroupSelectorTerms=ABSENT),
    *selector("securityGroupSelectorTerms", "sg", "tags", "name"),
    ok("a security group's name", securityGroupSelectorTerms=[{"name": "a"}]),
    no("a name beside tags", "a 'name' stands alone", securityGroupSelectorTerms=[{"name": "a", "tags": TAGS}]),
    ok(
        "a name beside tags and a clean term",
        securityGroupSelectorTerms=[{"name": "a", "tags": TAGS}, {"tags": TAGS}],
    ),
    ok("no reservations", capacityReservationSelectorTerms=ABSENT),
    *selector("capacityReservationSelectorTerms", "cr", "tags", "ownerID", "instanceMatchCriteria"),
    ok("tags and owner", capacityReservationSelectorTerms=[{"tags": TAGS, "ownerID": "012345678901"}]),
    ok("open", capacityReservationSelectorTerms=[{"instanceMatchCriteria": "open"}]),
    ok("targeted", capacityReservationSelectorTerms=[{"instanceMatchCriteria": "targeted"}]),
    no("another criterion", "Unsupported value", capacityReservationSelectorTerms=[{"instanceMatchCriteria": "any"}]),
    no("an owner alone", "each term of", capacityReservationSelectorTerms=[{"ownerID": "012345678901"}]),
    no("a short owner", "should match", capacityReservationSelectorTerms=[{"tags": TAGS, "ownerID": "1234"}]),
    no("text before the id", "should match", capacityReservationSelectorTerms=[{"id": "my-cr-0123"}]),
    ok("text before a subnet's id", subnetSelectorTerms=[{"id": "my-subnet-0123"}]),
    ok("a placement group's name", placementGroupSelector={"name": "training"}),
    ok("a placement group's id", placementGroupSelector={"id": "pg-0123abc"}),
    no("both of a placement group", "either 'name' or 'id'", placementGroupSelector={"name": "a", "id": "pg-1"}),
    no("neither of a placement group", "either 'name' or 'id'", placementGroupSelector={}),
    no("an empty placement group name", "at least 1 char", placementGroupSelector={"name": ""}),
    no("a wrong placement group id", "should match", placementGroupSelector={"id": "group-1"}),
)

FAMILIES = ("al2", "al2023", "bottlerocket", "windows2019", "windows2022", "windows2025")
NAMES = {"al2": "AL2", "al2023": "AL2023", "bottlerocket": "Bottlerocket"} | {
    f"windows{year}": f"Windows{year}" for year in (2019, 2022, 2025)
}
IMAGES = (
    no("no images", "amiSelectorTerms: Required", amiSelectorTerms=ABSENT),
    no("an empty list of images", "at least 1 items", **image()),
    *(ok(f"alias {family}@latest", **image({"alias": f"{family}@latest"}, family=None)) for family in FAMILIES),
    *(
        ok(f"alias {family}@latest with {name}", **image({"alias": f"{family}@latest"}, family=name))
        for family, short in NAMES.items()
        for name in (short, "Custom")
    ),
    *(
        no(
            f"alias {family}@latest with {other}",
            "amiFamily and the alias differ",
            **image({"alias": f"{family}@latest"}, family=other),
        )
        for family in FAMILIES
        for other in NAMES.values()
        if other != NAMES[family]
    ),
    ok("a pinned al2023", **image({"alias": "al2023@v20240625"}, family=None)),
    ok("a pinned Bottlerocket", **image({"alias": "bottlerocket@v1.10.0"}, family=None)),
    ok("an alias with two at signs", **image({"alias": "al2023@a@b"}, family=None)),
    *(
        no(f"a pinned {family}", "write @latest", **image({"alias": f"{family}@v1"}, family=None))
        for family in FAMILIES
        if family.startswith("windows")
    ),
    *(
        no(f"alias {alias!r}", "family@version", **image({"alias": alias}, family=None))
        for alias in ("al2023", "al2023@", "@latest", "al 2023@latest")
    ),
    *(
        no(f"alias {alias!r}", "in small letters", **image({"alias": alias}, family=None))
        for alias in ("AL2023@latest", "ubuntu@latest", "custom@latest", "windows2016@latest")
    ),
    no("an alias of 31", "Too long", **image({"alias": "bottlerocket@" + "1" * 18}, family=None)),
    ok("an alias of 30", **image({"alias": "bottlerocket@" + "1" * 17}, family=None)),
    no("two aliases", "only term", **image({"alias": "al2023@latest"}, {"alias": "al2023@v1"}, family=None)),
    no("an alias and another term", "only term", **image({"alias": "al2023@latest"}, {"id": "ami-1"})),
    *(
        no(f"an alias beside {field}", "stands alone", **image({"alias": "al2023@latest", field: value}))
        for field, value in {"id": "ami-1", "tags": TAGS, "name": "a", "owner": "self"}.items()
    ),
    # Karpenter leaves ssmParameter out of all these rules, so it may stand beside anything.
    ok("an alias beside an ssmParameter", **image({"alias": "al2023@latest", "ssmParameter": "/a"})),
    ok("an id beside an ssmParameter", **image({"id": "ami-1", "ssmParameter": "/a"})),
    *(
        ok(f"by {'+'.join(term)}", **image(term))
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
        no(f"an id beside {field}", "an 'id' stands alone", **image({"id": "ami-1", field: value}, {"tags": TAGS}))
        for field, value in {"tags": TAGS, "name": "a", "owner": "self"}.items()
    ),
    no("an owner alone", "each term of", **image({"owner": "self"})),
    no("an empty term", "each term of", **image({})),
    no("a wrong id", "should match", **image({"id": "i-1"})),
    no("a tag without value", "'*' for any value", **image({"tags": {"a": ""}})),
    ok("30 terms", **image(*[{"id": "ami-1"}] * 30)),
    no("31 terms", "at most 30", **image(*[{"id": "ami-1"}] * 31)),
    no("no family without an alias", "write amiFamily", **image({"id": "ami-1"}, family=None)),
    *(ok(f"family {family}", **image({"id": "ami-1"}, family=family)) for family in (*NAMES.values(), "Custom")),
    *(
        no(f"family {family}", "Unsupported value", **image({"id": "ami-1"}, family=family))
        for family in ("Ubuntu", "al2023")
    ),
)

IDENTITY = (
    ok("a class without spec", spec=ABSENT),
    ok("an instance profile", role=ABSENT, instanceProfile="nodes"),
    no("neither role nor profile", "write either 'role'", role=ABSENT),
    no("both role and profile", "write either 'role'", instanceProfile="nodes"),
    no("an empty role", "role may not be empty", role=""),
    no("an empty profile", "instanceProfile may not be empty", role=ABSENT, instanceProfile=""),
    ok("tags", tags={"team": "a", "empty": "", "karpenter.sh/discovery": "x"}),
    no("a tag without key", "a tag needs a key", tags={"": "a"}),
    *(
        no(f"tag {key}", "remove it from 'tags'", tags={key: "x"})
        for key in (
            "eks:eks-cluster-name",
            "kubernetes.io/cluster/mine",
            "kubernetes.io/cluster",
            "karpenter.sh/nodepool",
            "karpenter.sh/nodeclaim",
            "karpenter.k8s.aws/ec2nodeclass",
        )
    ),
    ok("user data", userData="#!/bin/sh\n"),
    ok("an empty context", context=""),
    ok("a context", context="a"),
    no("an unknown field", "unknown field", launchTemplate="a"),
    ok("detailed monitoring", detailedMonitoring=True),
    ok("public addresses", associatePublicIPAddress=False),
    no("a switch as text", "must be of type boolean", associatePublicIPAddress="no"),
    ok("no prefixes", ipPrefixCount=0),
    no("a negative prefix count", "greater than or equal to 0", ipPrefixCount=-1),
    ok("RAID0", instanceStorePolicy="RAID0"),
    no("RAID1", "Unsupported value", instanceStorePolicy="RAID1"),
)

KUBELET = (
    ok("managed kubelet fields", kubelet={"maxPods": 20, "clusterDNS": ["10.0.0.10"], "kubeReserved": {"cpu": "100m"}}),
    ok("an expression", kubelet={"maxPods": "min(110, max_pods)"}),
    ok("any kubelet field", kubelet={"shutdownGracePeriod": "30s", "nested": {"deep": [1, "two", None]}}),
    ok("what the status will call wrong", kubelet={"registerWithTaints": [], "imageGCHighThresholdPercent": 500}),
    no("a kubelet that is no object", "must be of type object", kubelet=[]),
)


def disk(**ebs: Any) -> dict[str, Any]:
    return {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": ebs}]}


SIZES = ("1Gi", "59000Gi", "1G", "64000G", "1Ti", "58Ti", "1T", "64T", "57Ti", "63T", "8192Gi")
DISKS = (
    ok("no disks", blockDeviceMappings=[]),
    ok("a disk without ebs", blockDeviceMappings=[{"deviceName": "/dev/xvda"}]),
    ok("a disk without name", blockDeviceMappings=[{"ebs": {"volumeSize": "1Gi"}}]),
    ok("50 disks", blockDeviceMappings=[{}] * 50),
    no("51 disks", "at most 50", blockDeviceMappings=[{}] * 51),
    ok("one root", blockDeviceMappings=[{"rootVolume": True}, {"rootVolume": False}, {}]),
    no("two roots", "one root volume", blockDeviceMappings=[{"rootVolume": True}] * 2),
    *(ok(f"size {size}", **disk(volumeSize=size)) for size in SIZES),
    *(
        no(f"size {size!r}", "should match", **disk(volumeSize=size))
        for size in ("0Gi", "59001Gi", "64001G", "59Ti", "65T", "100Mi", "100", "1.5Gi", "-1Gi", "")
    ),
    no("a size as number", "must be of type string", **disk(volumeSize=100)),
    ok("a snapshot alone", **disk(snapshotID="snap-1")),
    no("neither size nor snapshot", "a volume needs a size", **disk(volumeType="gp3")),
    *(
        ok(f"type {kind}", **disk(volumeSize="1Gi", volumeType=kind))
        for kind in ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
    ),
    no("type gp4", "Unsupported value", **disk(volumeSize="1Gi", volumeType="gp4")),
    ok(
        "all of a disk",
        **disk(volumeSize="1Gi", iops=3000, throughput=125, encrypted=True, kmsKeyID="a", deleteOnTermination=False),
    ),
    ok("an initialization rate", **disk(snapshotID="snap-1", volumeInitializationRate=100)),
    ok("the highest rate", **disk(snapshotID="snap-1", volumeInitializationRate=300)),
    no("a rate of 99", "greater than or equal to 100", **disk(snapshotID="snap-1", volumeInitializationRate=99)),
    no("a rate of 301", "less than or equal to 300", **disk(snapshotID="snap-1", volumeInitializationRate=301)),
    no("a rate without snapshot", "write 'snapshotID' too", **disk(volumeSize="1Gi", volumeInitializationRate=100)),
    no(
        "a rate with an empty snapshot",
        "write 'snapshotID' too",
        **disk(volumeSize="1Gi", snapshotID="", volumeInitializationRate=100),
    ),
)


def card(card: int = 0, device: int = 0, kind: str = "interface") -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


PRIMARY = card()
NETWORK = (
    ok("the primary interface", networkInterfaces=[PRIMARY]),
    ok("EFA on two cards", networkInterfaces=[PRIMARY, card(0, 1, "efa-only"), card(1, 0, "efa-only")]),
    ok("150 interfaces", networkInterfaces=[card(i) for i in range(150)]),
    no("151 interfaces", "at most 150", networkInterfaces=[card(i) for i in range(151)]),
    no("an empty list of interfaces", "needs the primary one", networkInterfaces=[]),
    no("no primary interface", "needs the primary one", networkInterfaces=[card(1, 0)]),
    no("an EFA as primary", "needs the primary one", networkInterfaces=[card(0, 0, "efa-only")]),
    no("two on one place", "same place", networkInterfaces=[PRIMARY, card(1, 1), card(1, 1, "efa-only")]),
    no(
        "two EFAs on one card",
        "one efa-only interface",
        networkInterfaces=[PRIMARY, card(1, 0, "efa-only"), card(1, 1, "efa-only")],
    ),
    no("a negative card", "greater than or equal to 0", networkInterfaces=[PRIMARY, card(-1, 0)]),
    no("a negative device", "greater than or equal to 0", networkInterfaces=[PRIMARY, card(0, -1)]),
    no("type efa", "Unsupported value", networkInterfaces=[PRIMARY, card(1, 0, "efa")]),
    *(
        no(f"no {field}", "Required", networkInterfaces=[PRIMARY, {k: v for k, v in card(1).items() if k != field}])
        for field in PRIMARY
    ),
)

OPTIONS = (
    *(
        row
        for field in ("httpEndpoint", "httpProtocolIPv6")
        for row in (
            ok(f"{field} enabled", metadataOptions={field: "enabled"}),
            ok(f"{field} disabled", metadataOptions={field: "disabled"}),
            no(f"{field} on", "Unsupported value", metadataOptions={field: "on"}),
        )
    ),
    ok("tokens optional", metadataOptions={"httpTokens": "optional"}),
    ok("tokens required", metadataOptions={"httpTokens": "required"}),
    no("tokens enabled", "Unsupported value", metadataOptions={"httpTokens": "enabled"}),
    ok("hop limit 1", metadataOptions={"httpPutResponseHopLimit": 1}),
    ok("hop limit 64", metadataOptions={"httpPutResponseHopLimit": 64}),
    no("hop limit 0", "greater than or equal to 1", metadataOptions={"httpPutResponseHopLimit": 0}),
    no("hop limit 65", "less than or equal to 64", metadataOptions={"httpPutResponseHopLimit": 65}),
    no("no time-out", "needs one of", connectionTracking={}),
    *(
        row
        for field, low, high in (
            ("tcpEstablishedTimeout", 60, 432000),
            ("udpStreamTimeout", 60, 180),
            ("udpTimeout", 30, 60),
        )
        for row in (
            ok(f"{field} {low}", connectionTracking={field: low}),
            ok(f"{field} {high}", connectionTracking={field: high}),
            no(f"{field} {low - 1}", "greater than or equal", connectionTracking={field: low - 1}),
            no(f"{field} {high + 1}", "less than or equal", connectionTracking={field: high + 1}),
        )
    ),
    ok("nested virtualization", cpuOptions={"nestedVirtualization": "enabled"}),
    ok("no nested virtualization", cpuOptions={"nestedVirtualization": "disabled"}),
    no("virtualization on", "Unsupported value", cpuOptions={"nestedVirtualization": "on"}),
)

ROWS = (*SELECTORS, *IMAGES, *IDENTITY, *KUBELET, *DISKS, *NETWORK, *OPTIONS)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_the_api_server(row: Row, server: Server) -> None:
    await assert_row(server, NODECLASS, row)
