"""The attention page's own script, in a real browser: everything is drawn, and pointing tells the right numbers."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from sesame.explain.attention import Maps
from sesame.explain.page import write_attention

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVE = """
<script>
const seen = [];
const at = (box, tag) => [...document.querySelectorAll(box + " " + tag)];
addEventListener("error", (event) => seen.push("error: " + event.message));
seen.push(at("#thumbs", "canvas").length, at("#matrix", "rect").length, at("#kind", "option").length);
document.querySelector('#thumbs [data-at="0-1"]').click();
at("#matrix", "rect")[5].dispatchEvent(new MouseEvent("mousemove", {bubbles: true}));
seen.push(document.getElementById("said").textContent);
at("#lines", "text")[1].dispatchEvent(new Event("focus"));
seen.push(document.getElementById("said").textContent, at("#lines", "line").filter((l) => !l.style.display).length);
const kind = document.getElementById("kind");
kind.value = "1";
kind.dispatchEvent(new Event("change"));
seen.push(at("#thumbs", "canvas").length, at("#matrix", "rect").length);
document.body.append(Object.assign(document.createElement("pre"), {id: "seen", textContent: JSON.stringify(seen)}));
</script>
</body>
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt install chromium")
def test_the_page_draws_and_answers(tmp_path: Path) -> None:
    one = np.full((2, 3, 4), 0.25, dtype=np.float32)
    one[1, 1] = [0.1, 0.7, 0.2, 0.0]
    two = np.ones((1, 1, 1), dtype=np.float32)
    file = tmp_path / "a.html"
    write_attention([Maps("one", [*"abc"], ["<w>", "x", "y", "z"], [one, one]), Maps("two", ["a"], ["b"], [two])], file)
    file.write_text(file.read_text(encoding="utf-8").replace("</body>", DRIVE), encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    told = subprocess.run([*command, "--dump-dom", f"file://{file}"], capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="seen">(.*?)</pre>', told.stdout, re.DOTALL)
    assert found is not None, told.stderr[-2000:]
    seen = json.loads(unescape(found[1]))
    assert seen[:3] == [4, 12, 2]
    assert seen[3] == "“b” looks at “x”: 70.00 %"
    assert seen[4] == "“b” looks at “x” 70.0 %, “y” 20.0 %, “<w>” 10.0 %, “z” 0.0 %"
    assert seen[5:] == [3, 1, 1], "lines of one token; then the other kind"
