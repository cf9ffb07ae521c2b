"""`tenure ui` prints links to lists and pages of the Temporal UI."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from tenure.cli.main import main
from tenure.cli.nodes.ui import COLUMNS, COLUMNS_HINT, VIEWS, cluster_links
from tenure.cli.temporal_client import Connection
from workflows import search_attributes

OPTIONS = ["--cluster-name", "demo", "--temporal-namespace", "prod"]


def test_lists_are_queries_of_the_cluster() -> None:
    links = cluster_links(Connection("temporal:7233", "prod", "demo", ui="https://ui/"))
    for label, query in VIEWS.items():
        parts = urlsplit(links[label])
        assert (parts.netloc, parts.path) == ("ui", "/namespaces/prod/workflows")
        assert parse_qs(parts.query) == {"query": [f"WorkflowId STARTS_WITH 'demo/' AND {query}"]}
    assert links["provisioning"] == "https://ui/namespaces/prod/workflows/demo%2Fprovisioning"
    assert set(COLUMNS) <= set(search_attributes.ALL)


def test_links_are_printed_with_a_hint_about_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "--links", "--temporal-ui-url", "https://ui", *OPTIONS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(VIEWS) + 4 and lines[-1] == COLUMNS_HINT
    assert main(["ui", "--temporal-ui-url", "https://ui", "-o", "json", *OPTIONS]) == 0
    assert json.loads(capsys.readouterr().out)["NodePools"].startswith("https://ui/namespaces/prod/workflows?query=")


def test_unknown_address_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "--links", *OPTIONS]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--temporal-ui-url" in line and "TEMPORAL_UI_URL" in line


def test_invalid_address_of_the_page_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "--listen", "everywhere", *OPTIONS]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--listen: invalid address 'everywhere', expected an IP address" in line
