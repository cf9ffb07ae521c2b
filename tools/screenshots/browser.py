"""Headless Chromium, controlled through its DevTools protocol.

https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
TO_INSTALL: Final = (
    "Chromium not found: install it (Debian: `apt-get install chromium`; Fedora: `dnf install chromium`; "
    "macOS: `brew install chromium`), or set CHROMIUM=/path/to/chrome"
)
FLAGS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-lcd-text")
"""Without Chromium's sandbox, because it may run as root in a container. It only opens pages of this machine."""
POLL_INTERVAL_SECONDS: Final = 0.1
TEXT: Final = (
    "[document, ...[...document.querySelectorAll('iframe')].map(one => one.contentDocument)]"
    ".map(one => one?.body?.innerText ?? '').join(' ')"
)
"""Visible text, also in frames of the same site, in which Temporal's UI renders Markdown."""
PRESSABLE: Final = "button, a, [role=menuitem], [role=option]"


class NoBrowser(Exception):
    """The message has the installation command."""


class BrowserFault(Exception):
    """A page did not reach the expected state, or a script failed."""


def find_chromium(named: str = "") -> str:
    """Path of the executable. Raises `NoBrowser`."""
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoBrowser(f"CHROMIUM={named}: no such executable" if named else TO_INSTALL)
    return found


class Browser:
    """An async context manager: one page with a fresh profile."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._stack = AsyncExitStack()
        self._numbers = itertools.count(1)
        self._page: aiohttp.ClientWebSocketResponse

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        arguments = [*FLAGS, f"--user-data-dir={folder}", "--remote-debugging-port=0", "about:blank"]
        process = await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._stack.push_async_callback(_terminate, process)
        port = await _wait_for_port(folder / "DevToolsActivePort", process)
        session = await self._stack.enter_async_context(aiohttp.ClientSession())
        async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
            page = next(one for one in await response.json() if one["type"] == "page")
        self._page = await self._stack.enter_async_context(
            session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)
        )

    async def _send_command(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._page.send_json({"id": number, "method": method, "params": parameters})
        while True:
            response = json.loads(await self._page.receive_str())
            if response.get("id") == number:
                if "error" in response:
                    raise BrowserFault(f"{method}: {response['error']['message']}")
                result: dict[str, Any] = response["result"]
                return result

    async def size(self, width: int, height: int) -> None:
        """Set the size of the page in CSS pixels."""
        await self._send_command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def open(self, url: str) -> None:
        await self._send_command("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """The value of the expression; promises are awaited."""
        response = await self._send_command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if exception := response.get("exceptionDetails"):
            raise BrowserFault(f"{script[:80]}: {exception.get('exception', {}).get('description', exception['text'])}")
        return response["result"].get("value")

    async def wait_for(self, script: str, seconds: float = 30.0) -> Any:
        """Wait until the expression is true. Raises `BrowserFault` with the text of the page."""
        try:
            async with asyncio.timeout(seconds):
                while not (found := await self.run(script)):  # noqa: ASYNC110 - no event to wait for
                    await asyncio.sleep(POLL_INTERVAL_SECONDS)
                return found
        except TimeoutError:
            text = await self.run(TEXT)
            raise BrowserFault(
                f"{script[:120]}: not true within {seconds:g} s; the page shows: {text[-600:]}"
            ) from None

    async def wait_for_text(self, *texts: str, seconds: float = 30.0) -> None:
        """Wait until the page shows all texts."""
        for text in texts:
            await self.wait_for(f"{TEXT}.includes({json.dumps(text)})", seconds)

    async def click(self, text: str = "", *, within: str = PRESSABLE, seconds: float = 30.0) -> None:
        """Click the first visible element that matches the CSS selector and whose first line is `text`."""
        label = json.dumps(text)
        await self.wait_for(
            f"(() => {{ const one = [...document.querySelectorAll({json.dumps(within)})].find(each =>"
            f" each.checkVisibility({{visibilityProperty: true}}) && (!{label}"
            f" || each.innerText.trim().split('\\n')[0] === {label}));"
            " if (one) one.click(); return !!one; })()",
            seconds,
        )

    async def write(self, text: str, *, into: str) -> None:
        """Type into the element that matches the CSS selector."""
        await self.wait_for(
            f"(() => {{ const one = document.querySelector({json.dumps(into)}); one?.focus(); return !!one; }})()"
        )
        await self._send_command("Input.insertText", text=text)

    async def store_local(self, name: str, value: Any) -> None:
        """Set an item in the local storage of the site; it takes effect when a page is opened again."""
        await self.run(f"localStorage.setItem({json.dumps(name)}, {json.dumps(json.dumps(value))})")

    async def bounding_box(self, css: str) -> dict[str, float]:
        """Position and size of an element, for `capture_screenshot`."""
        found: dict[str, float] = await self.run(
            f"(() => {{ const {{x, y, width, height}} = document.querySelector({json.dumps(css)})"
            ".getBoundingClientRect(); return {x, y, width, height}; })()"
        )
        return found

    async def capture_screenshot(self, *, x: float, y: float, width: float, height: float) -> bytes:
        """A PNG of that part of the page, after its fonts are loaded."""
        await self.run("document.fonts.ready.then(() => true)")
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        response = await self._send_command("Page.captureScreenshot", format="png", clip=clip)
        return base64.b64decode(response["data"])


async def _wait_for_port(file: Path, process: asyncio.subprocess.Process, seconds: float = 30.0) -> int:
    """The port that Chromium writes to `file`. Raises `BrowserFault`."""
    try:
        async with asyncio.timeout(seconds):
            while not (file.exists() and (lines := file.read_text().splitlines())):  # noqa: ASYNC240 - local, tiny
                if process.returncode is not None:
                    raise BrowserFault(f"Chromium exited at startup with code {process.returncode}")
                await asyncio.sleep(POLL_INTERVAL_SECONDS)
            return int(lines[0])
    except TimeoutError:
        raise BrowserFault(f"Chromium did not listen within {seconds:g} s") from None


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """Also ends its child processes."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
