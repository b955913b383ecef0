"""Pages in a real browser: they load without errors, sort, search, and tell what is chosen in a figure."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest
from report.test_page import RUN, a_page

from asa.report.page import Column, Figure, Table
from asa.report.page.drawing import gantt

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

# What a user would do, one thing after the other; what they would see is written into the page.
WATCH = "<script>window.wrong = []; addEventListener('error', (e) => wrong.push(e.message));</script>"
USE = """<script>
const seen = {};
const shown = () => [...document.querySelectorAll("tbody tr")].filter((row) => !row.hidden);
const rows = () => shown().map((row) => row.cells[0].textContent);
const heading = (n) => document.querySelectorAll("thead th")[n];
const press = (n) => heading(n).querySelector("button").click();
seen.first = rows();
press(1); seen.up = rows(); seen.sort = heading(1).getAttribute("aria-sort");
press(1); seen.down = rows();
press(0); seen.names = rows(); seen.left = heading(1).getAttribute("aria-sort");
const input = document.querySelector("input[type=search]");
input.value = "EVEN row"; input.dispatchEvent(new Event("input"));
seen.found = rows().length; seen.count = document.querySelector(".search output").textContent;
input.value = ""; input.dispatchEvent(new Event("input"));
seen.all = rows().length;
const bar = document.querySelector("figure rect[tabindex]");
bar.focus(); seen.focused = document.activeElement === bar; seen.told = document.querySelector(".told").textContent;
document.querySelector("figure .believed[tabindex]").dispatchEvent(new Event("mouseover", {bubbles: true}));
seen.believed = document.querySelector(".told").textContent;
seen.overflows = document.documentElement.scrollWidth > document.documentElement.clientWidth;
seen.wrong = wrong;
const out = document.createElement("pre"); out.id = "seen"; out.textContent = JSON.stringify(seen);
document.body.append(out);
</script>"""


def visit(tmp_path, page, width=1000):
    """Open a page, use it, and say what was seen."""
    file = tmp_path / "page.html"
    file.write_text(page.replace("<head>", f"<head>{WATCH}", 1).replace("</body>", f"{USE}</body>", 1))
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},800", "--virtual-time-budget=2000", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    return json.loads(unescape(found[1]))


@pytest.fixture(scope="module")
def page():
    rows = [(f"row {i} {'even' if i % 2 == 0 else 'odd'}", None if i == 3 else (7 * i) % 10 + 0.5) for i in range(10)]
    return a_page(Figure(gantt(RUN)), Table([Column("Name"), Column("Much", 1)], rows, "A table."))


@pytest.mark.parametrize("width", [1000, 400])
def test_a_page_can_be_used(tmp_path, page, width):
    seen = visit(tmp_path, page, width)
    assert seen["wrong"] == []
    much = {f"row {i} {'even' if i % 2 == 0 else 'odd'}": (7 * i) % 10 + 0.5 for i in range(10) if i != 3}
    up = sorted(much, key=much.get)
    assert seen["up"] == [*up, "row 3 odd"], "what is unknown comes last"
    assert seen["down"] == [*reversed(up), "row 3 odd"]
    assert seen["sort"] == "ascending"
    assert seen["names"] == sorted(seen["first"])
    assert seen["left"] is None
    assert (seen["found"], seen["count"], seen["all"]) == (5, "5 of 10 rows", 10)
    assert seen["focused"]
    assert seen["told"] == "pending: 0s to 20s, 20s; 8 cores; job 1, completed"
    assert seen["believed"] == "a to b: believed to start at 30s"
    assert not seen["overflows"], "the page itself must not scroll sideways"
