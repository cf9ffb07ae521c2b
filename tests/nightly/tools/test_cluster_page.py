"""The cluster page in headless Chromium: it renders the sections, follows changes, and adds no markup from texts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure.cli.page.sections import Section
from tenure.cli.page.server import SectionFeed, accepted_host_names, make_application, serving
from tools.screenshots.browser import Browser, NoBrowser, find_chromium

MARKUP = "<img src=x onerror=\"document.title='attacked'\">"


def node(name: str, **fields: Any) -> dict[str, Any]:
    common = {
        "nodeClaim": name,
        "node": f"ip-{name}",
        "nodePool": "web",
        "phase": "Ready",
        "since": "2026-11-29T08:00:00+00:00",
        "deadline": None,
        "overdue": False,
        "paused": False,
        "blockedBy": "",
        "code": "",
        "instanceType": "m6i.large",
        "zone": "us-west-2a",
        "capacityType": "spot",
        "pricePerHour": 0.096,
        "workflowUrl": f"http://temporal.example/{name}",
    }
    return common | fields


VERDICT = {
    "code": "NoInstanceTypeFits",
    "sentence": f"pool web: needs 400 cpu {MARKUP}",
    "since": "2026-11-29T08:00:00Z",
    "clears_by_itself": False,
    "remedy": "allow larger instance types",
}
CONTENT: dict[str, dict[str, Any]] = {
    "nodes": {
        "nodes": [
            node("web-1"),
            node(
                "web-2",
                phase="Drain",
                overdue=True,
                deadline="2026-11-29T08:00:00+00:00",
                code="PodDisruptionBudget",
                blockedBy=f"PodDisruptionBudget: default/web {MARKUP}",
                workflowUrl="javascript:alert(1)",
            ),
        ],
        "pricePerHour": 0.192,
    },
    "attention": {
        "late": [],
        "paused": [],
        "invalidObjects": [{"kind": "Pod", "name": "default/odd", "message": MARKUP}],
    },
    "pods": {"groups": [{"pod": "default/huge", "pods": 3, "verdict": VERDICT}], "more": 0, "unknown": ""},
    "commands": {"commands": []},
    "plan": {
        "nodes": 2,
        "eligible": 1,
        "commands": [{"reason": "Underutilized", "nodes": ["web-1"], "price_before": 0.096}],
    },
    "events": {
        "events": [
            {
                "received_at": "2026-11-29T08:00:00Z",
                "kind": "spotInterruption",
                "nodeClaim": "web-2",
                "nodePool": "web",
                "policy": "",
                "action": "drain",
                "done": "draining",
            }
        ]
    },
}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    try:
        program = find_chromium()
    except NoBrowser as absent:
        pytest.skip(str(absent))
    feed = SectionFeed({name: Section(_reader(name), 0.2) for name in CONTENT})
    application = make_application(feed, "demo", host_names=accepted_host_names("127.0.0.1"))
    async with serving(application, feed, "127.0.0.1", 0) as port, Browser(program) as opened:
        await opened.size(1280, 900)
        await opened.open(f"http://127.0.0.1:{port}/")
        yield opened


def _reader(name: str) -> Any:
    async def read() -> dict[str, Any]:
        return CONTENT[name]

    return read


async def test_page_renders_all_sections_and_follows_changes(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    await browser.wait_for_text("Tenure demo", "connected", "web: 2 nodes, 0.1920 $/h", "Drain overdue")
    await browser.wait_for_text("pod default/huge and 2 more", "allow larger instance types", "Underutilized")
    await browser.wait_for_text("spotInterruption", "2 nodes, 1 eligible", "No disruption command")
    assert await browser.run("document.querySelector('#nodes a').href") == "http://temporal.example/web-1"
    await browser.write("drain", into="#filter")
    await browser.wait_for("!document.querySelector('#nodes').innerText.includes('web-1')")
    monkeypatch.setitem(CONTENT, "nodes", {"nodes": [node("web-3", phase="Launch")], "pricePerHour": 0.096})
    await browser.wait_for("document.querySelector('#summary').innerText.startsWith('1 node')")


async def test_texts_of_objects_add_no_markup_and_no_script_links(browser: Browser) -> None:
    await browser.wait_for_text(MARKUP, "default/odd")
    assert await browser.run("document.querySelectorAll('main img').length") == 0
    assert await browser.run("document.title") == "demo - Tenure"
    links = await browser.run("[...document.querySelectorAll('main a')].map(one => one.getAttribute('href'))")
    assert links and all(one.startswith("http://temporal.example/") for one in links)
