"""A real browser, driven as its own tools drive it: by messages through a pair of pipes."""

import base64
import fcntl
import json
import os
import shutil
import tempfile

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "Home": 36}


class Chromium:
    """One page at a time; `wrong` has what went wrong in it, `asked` what it asked the network or the disk for."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        it_reads, self._to = os.pipe()
        self._from, it_writes = os.pipe()
        apart = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 100) for end in (it_reads, it_writes)]
        command = [
            PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            f"--user-data-dir={self._profile.name}", "about:blank",
        ]  # fmt: skip
        begin = [
            (os.POSIX_SPAWN_DUP2, apart[0], 3),  # it reads from 3 and writes to 4
            (os.POSIX_SPAWN_DUP2, apart[1], 4),
            *((os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0) for out in (1, 2)),
        ]
        self._process = os.posix_spawn(PROGRAM, command, os.environ, file_actions=begin)
        for end in (it_reads, it_writes, *apart):
            os.close(end)
        self._left, self._number, self._session = b"", 0, None
        self.wrong, self.asked, self._loaded = [], [], False
        pages = self.send("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in pages if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        """Send a command, and give its result; take notice of what happens meanwhile."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (told := self._read()).get("id") != self._number:
            pass
        assert "error" not in told, told
        return told["result"]

    def _read(self):
        while b"\0" not in self._left:
            part = os.read(self._from, 1 << 20)
            assert part, "the browser has ended"
            self._left += part
        message, _, self._left = self._left.partition(b"\0")
        told = json.loads(message)
        match told.get("method"):
            case "Runtime.exceptionThrown":
                self.wrong.append(told["params"]["exceptionDetails"]["text"])
            case "Log.entryAdded" if told["params"]["entry"]["level"] == "error":
                self.wrong.append(told["params"]["entry"]["text"])
            case "Network.requestWillBeSent":
                self.asked.append(told["params"]["request"]["url"])
            case "Page.loadEventFired":
                self._loaded = True
        return told

    def open(self, file, width=1000, *, dark=False):
        """Open a file in a window of a width."""
        self.wrong, self.asked, self._loaded = [], [], False
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.send("Emulation.setEmulatedMedia", media="", features=[scheme, still])
        self.send("Page.navigate", url=file.as_uri())
        self.loaded()

    def loaded(self):
        """Wait until a page that was asked for is there."""
        while not self._loaded:
            self._read()
        self._loaded = False

    def ask(self, expression):
        """Evaluate an expression on the page."""
        told = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def press(self, key):
        """Press a key as a person does."""
        typed = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = KEYS.get(key, ord(key[0].upper()))
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **typed)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def printed(self):
        """Return what is printed, as PDF."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

    def close(self):
        """End it."""
        try:
            self._session = None
            self.send("Browser.close")
        finally:
            os.waitpid(self._process, 0)
            os.close(self._to)
            os.close(self._from)
            self._profile.cleanup()
