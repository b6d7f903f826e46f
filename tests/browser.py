"""A headless Chromium for tests of HTML pages, driven by the DevTools protocol through two pipes.

No package is needed: a message is one JSON object that ends in a zero byte, on the browser's file
descriptors 3 (to it) and 4 (from it). A page sees no network; what it asks for is kept in `Page.requests`.
Where there is no Chromium, `pages()` skips the test with the reason. GPUSIM_CHROMIUM names another binary.

    with pages() as page:
        page.open(tmp_path / "report.html", width=360, scheme="dark")
        assert page.run("document.title") == "..." and page.errors == [] and not page.scrolls_sideways
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--hide-scrollbars", "--disable-background-networking", "--remote-debugging-pipe",
)  # fmt: skip
SECONDS = 30.0
"""How long an answer may take: a cold start on a shared machine takes some seconds."""
KEYS = {" ": ("Space", 32), "ArrowLeft": ("ArrowLeft", 37), "ArrowRight": ("ArrowRight", 39),
        "Tab": ("Tab", 9), "Home": ("Home", 36), "End": ("End", 35), "Enter": ("Enter", 13)}  # fmt: skip
"""Key -> its code and its number in the protocol."""
Message = dict[str, Any]


def chromium() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return os.environ.get("GPUSIM_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """Be one page of a browser: open a file, run scripts in it, press keys, look at it.

    errors: exceptions that nobody caught and what the page's scripts print as errors. requests: addresses
    that the page asked for, its own file first.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._last, self._waiting = 0, b""
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._is_loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Message:
        """Call a method of the protocol and return its result; raise RuntimeError for a refusal."""
        self._last += 1
        message: Message = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._hear(answer)

    def _next(self) -> Message:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._waiting:
            if not select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"the browser did not answer in {SECONDS:g} s")
            more = os.read(self._from, 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self._waiting += more
        first, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(first)

    def _hear(self, event: Message) -> None:
        """Keep what an event says that a test may ask for."""
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._is_loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                found = params["exceptionDetails"]
                self.errors.append(found.get("exception", {}).get("description") or found["text"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                said = (str(a.get("value", a.get("description"))) for a in params["args"])
                self.errors.append(" ".join(said))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.errors.append(params["entry"]["text"])

    def open(self, path: Path, width: int = 1280, height: int = 800, scheme: str = "light",
             still: bool = False) -> None:  # fmt: skip
        """Load a file at a size in CSS pixels, in a "light" or "dark" scheme; still: with reduced motion."""
        motion = "reduce" if still else "no-preference"
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion}])  # fmt: skip
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)  # fmt: skip
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1,
                  uploadThroughput=-1)  # fmt: skip
        self.errors.clear()
        self.requests.clear()
        self._is_loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._is_loaded:
            self._hear(self._next())

    def run(self, script: str) -> Any:
        """Return the value of a script's last expression (a promise's result), as JSON has it."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    def wait_for(self, script: str, seconds: float = 5.0) -> None:
        """Wait until a script's value is true; raise TimeoutError after some seconds."""
        end = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > end:
                raise TimeoutError(f"not true after {seconds:g} s: {script}")
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press and release a key of KEYS where the focus is."""
        code, number = KEYS[key]
        text = {"text": key} if key == " " else {}
        for kind, more in (("keyDown", text), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number,
                      **more)  # fmt: skip

    def click(self, selector: str) -> None:
        """Click in the middle of the element of a CSS selector."""
        x, y = self.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: "center"}}); const b = e.getBoundingClientRect();
            return [b.x + b.width / 2, b.y + b.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    @property
    def scrolls_sideways(self) -> bool:
        """Return whether the page as a whole is wider than its window."""
        return bool(self.run("document.scrollingElement.scrollWidth > innerWidth"))

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write a PNG of the page, of what is beyond the window too if whole."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def pages() -> Iterator[Page]:
    """Start a Chromium with an empty profile, give its page, and end it; skip the test where there is none.
    """
    binary = chromium()
    if binary is None or sys.platform == "win32":
        pytest.skip("no Chromium here: install the package chromium, or name one in GPUSIM_CHROMIUM")
    from_test, to_browser = os.pipe()
    from_browser, to_test = os.pipe()
    with tempfile.TemporaryDirectory(prefix="gpusim-chromium-", ignore_cleanup_errors=True) as profile:
        # A shell puts the pipes at 3 and 4 by way of 0 and 1, so that no code runs between fork and exec.
        shell = ["/bin/sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh"]
        command = [*shell, binary, *FLAGS, f"--user-data-dir={profile}"]
        started = subprocess.Popen(command, stdin=from_test, stdout=to_test, stderr=subprocess.DEVNULL,
                                   start_new_session=True)  # fmt: skip
        os.close(from_test)
        os.close(to_test)
        try:
            yield Page(to_browser, from_browser)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
            os.close(to_browser)
            os.close(from_browser)
