"""A headless Chromium that tests steer over a pipe: no driver, no port, and no network.

python tests/report/page/browser.py results/report/_page/index.html docs/report.png     # README's picture
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

EXECUTABLE = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--no-first-run", "--disable-dev-shm-usage"]
SECONDS = 120  # that anything may take on a busy machine


class Browser:
    """One page. `errors`: what the console and uncaught exceptions said; `requests`: addresses that were asked for."""

    def __init__(self, folder):
        self.errors, self.requests, self.count, self.rest = [], [], 0, b""
        to_browser, self.input = os.pipe()
        self.output, from_browser = os.pipe()
        command = [EXECUTABLE, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        shell = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "browser"]
        fds, silent = (to_browser, from_browser), subprocess.DEVNULL
        self.process = subprocess.Popen([*shell, *command], pass_fds=fds, stderr=silent, stdout=silent)
        for fd in fds:
            os.close(fd)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

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
        """Wait until an expression is true. Raises AssertionError after SECONDS."""
        end = time.monotonic() + SECONDS
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < end, f"{expression} never became true; errors: {self.errors}"
            time.sleep(0.05)

    def open(self, path, place=""):
        """Open a file at one place of it, and wait until that is drawn."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"file://{path}{place}")
        self.ready(place)

    def go(self, place):
        """Follow the page to another place."""
        self.evaluate(f"location.hash = {json.dumps(place)}")
        self.ready(place)

    def ready(self, place):
        self.wait(f"document.documentElement?.dataset.ready === {json.dumps(place or '#')}")

    def click(self, selector):
        """Press on the first element of a selector with the mouse's event."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

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
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        browser.open(page.resolve())
        browser.screenshot(picture, 1080, 1150)
        browser.close()
