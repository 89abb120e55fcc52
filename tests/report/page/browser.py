"""A headless Chromium that tests steer over a pipe: no driver, no port, and no network.

`make picture` runs it as a script: python tests/report/page/browser.py PAGE.html PICTURE.png
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
FLAGS += ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"]
SECONDS = 300  # that anything may take on a busy machine
KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, "Home": 36, "ArrowRight": 39, "ArrowDown": 40}


def executable():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def require_chromium():
    """Skip the test that asks where there is no Chromium; in CI install it instead, and fail where that fails."""
    import pytest

    from debian import install

    if executable() is None and os.environ.get("CI") == "true":
        install("Chromium", ["chromium"], ["chromium"])
    if executable() is None:
        pytest.skip("no Chromium here: `apt-get install chromium` brings one")


class Browser:
    """One page. `errors`: what the console and uncaught exceptions said; `requests`: addresses that were asked for;
    `clicks`: how often the mouse was pressed and something was chosen since it was opened."""

    def __init__(self, folder):
        self.errors, self.requests, self.count, self.clicks, self.rest = [], [], 0, 0, b""
        to_browser, self.input = os.pipe()
        self.output, from_browser = os.pipe()
        command = [executable(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        shell = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "browser"]
        fds, silent = (to_browser, from_browser), subprocess.DEVNULL
        self.process = subprocess.Popen([*shell, *command], pass_fds=fds, stderr=silent, stdout=silent)
        for fd in fds:
            os.close(fd)
        self.session = None
        self.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.size(1400)

    def call(self, method, **parameters):
        """The result of a command of the DevTools protocol. Raises AssertionError when it fails."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.input, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.note(answer)

    def read(self):
        while b"\0" not in self.rest:
            part = os.read(self.output, 2**20)
            assert part, "the browser has ended"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def note(self, event):
        method, said = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(str([each.get("value", each.get("description")) for each in said["args"]]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(said["entry"]["text"])

    def evaluate(self, expression):
        """The value (plain JSON) of a JavaScript expression, awaited when it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression):
        """Wait until an expression is true, also through a change of page. Raises AssertionError after SECONDS."""
        end = time.monotonic() + SECONDS
        while not self.holds(expression):
            assert time.monotonic() < end, f"{expression} never became true; errors: {self.errors}"
            time.sleep(0.05)

    def holds(self, expression):
        """Whether an expression is true; not while one page gives way to another."""
        try:
            return self.evaluate(f"Boolean({expression})")
        except AssertionError:
            return False

    def open(self, path, place=""):
        """Open a file at one place of it, and wait until that is drawn."""
        self.clicks = 0
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"file://{path}{place}")
        self.ready(place)

    def go(self, place):
        """Follow the page to another place."""
        self.evaluate(f"location.hash = {json.dumps(place)}")
        self.ready(place)

    def ready(self, place):
        self.wait(f"document.documentElement?.dataset.ready === {json.dumps(place or '#')}")

    def size(self, width, height=900):
        """Give the window a size in pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def press_mouse(self, element):
        """Press the mouse in the middle of an element (JavaScript expression), after scrolling to it."""
        self.evaluate(f"{element}.scrollIntoView({{block: 'center', inline: 'center', behavior: 'instant'}})")
        box = self.evaluate(f"(({{left, top, width, height}}) => [left, top, width, height])"
                            f"({element}.getBoundingClientRect())")  # fmt: skip
        assert box[2] > 0 and box[3] > 0, f"{element} is not to be seen"
        where = {"x": box[0] + box[2] / 2, "y": box[1] + box[3] / 2, "button": "left", "clickCount": 1}
        self.clicks += 1
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **where)

    def press(self, key):
        """Press a key, one of KEYS or a character."""
        code = {"windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper())), "key": key, "code": key}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def screenshot(self, path, width, height=None, dark=False):
        """A picture (PNG) of the whole page, or of its first `height` pixels."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        metrics = {"width": width, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", height=1000, **metrics)
        time.sleep(1)
        full = height or int(self.evaluate("document.documentElement.scrollHeight"))
        self.call("Emulation.setDeviceMetricsOverride", height=full, **metrics)
        time.sleep(1)
        picture = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(picture))

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        os.close(self.input)
        os.close(self.output)


if __name__ == "__main__":
    page, picture = map(Path, sys.argv[1:])
    if executable() is None or not page.is_file():
        sys.exit(f"error: a picture needs Chromium (Debian's package chromium) and {page} (make demo).")
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        browser.open(page.resolve())
        browser.screenshot(picture, 1080, 1150)
        browser.close()
