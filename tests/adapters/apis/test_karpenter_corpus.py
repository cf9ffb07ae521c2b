"""Tenure's CRDs accept and reject the objects of the corpus as Karpenter's CRDs do (`record_karpenter.py`)."""

import json
from typing import Final

from tests.adapters.apis.record_karpenter import find_accepted
from tests.adapters.apis.server import ApiServerClient
from tests.support.apis.crd_corpus import VERDICTS, build_all, digest

DIFFERENCES: Final = {
    # Karpenter 1.14 had this label. NodePools that require it stay valid, and nodes of such types have it.
    "NodePool accepts key karpenter.k8s.aws/nitro-sandbox": True,
}
"""By name of an object, whether Tenure accepts it, where Karpenter does not agree."""


async def test_crds_agree_with_karpenter(server: ApiServerClient) -> None:
    stored = json.loads(VERDICTS.read_text())
    expected = {
        one: kind == "accepted" for kind in ("accepted", "rejected") for line in stored[kind] for one in line.split()
    }
    corpus = build_all()
    recorded = {name: one for name, one in corpus.items() if digest(one) in expected}
    assert len(recorded) >= 0.95 * len(corpus), "the tables have changed: run tests.adapters.apis.record_karpenter"
    actual = await find_accepted(server, recorded)
    different = {name: ours for name, ours in actual.items() if ours != expected[digest(recorded[name])]}
    assert different == DIFFERENCES
