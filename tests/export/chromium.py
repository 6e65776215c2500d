"""A headless Chromium with WebGPU on its software adapter, driven by the DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
"""The browser; None if there is none."""
_FLAGS = ("--headless", "--no-sandbox", "--disable-dev-shm-usage", "--enable-unsafe-webgpu", "--remote-debugging-pipe")
_PATIENCE = 120.0


class Chromium:
    """A browser with one page."""

    def __init__(self, size: tuple[int, int] = (900, 900)) -> None:
        assert PROGRAM is not None
        self._profile = tempfile.mkdtemp(prefix="polyhal-chromium-")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        words = [
            PROGRAM,
            *_FLAGS,
            f"--user-data-dir={self._profile}",
            f"--window-size={size[0]},{size[1]}",
            "about:blank",
        ]
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", *words],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._received = b""
        self._next = 0
        self._session = ""
        self.console: list[str] = []
        """Errors that the page has printed."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, address: str | Path) -> None:
        """Open a page, by its address or as a file."""
        self._call("Page.navigate", url=address.absolute().as_uri() if isinstance(address, Path) else address)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, which may be a promise. Raises RuntimeError for its error."""
        found = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Return as soon as an expression is true. Raises TimeoutError with the page's status."""
        end = time.monotonic() + _PATIENCE
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression}: {self.evaluate('document.body.innerText')[:500]} {self.console}")
            time.sleep(0.05)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Send a mouse event: mousePressed, mouseMoved or mouseReleased."""
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def picture(self, path: Path) -> None:
        """Write a picture of the page."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _call(self, method: str, **params: Any) -> Any:
        self._next += 1
        command = {"id": self._next, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + _PATIENCE
        while True:
            reply = self._message(end)
            if reply.get("id") == self._next:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']['message']}")
                return reply["result"]
            if reply.get("method") == "Runtime.consoleAPICalled" and reply["params"]["type"] == "error":
                texts = [a.get("description") or str(a.get("value")) for a in reply["params"]["args"]]
                self.console.append(" ".join(texts))
            if reply.get("method") == "Runtime.exceptionThrown":
                self.console.append(
                    reply["params"]["exceptionDetails"].get("exception", {}).get("description", "error")
                )

    def _message(self, end: float) -> Any:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("the browser does not answer")
            self._received += part
        text, _, self._received = self._received.partition(b"\0")
        return json.loads(text)
