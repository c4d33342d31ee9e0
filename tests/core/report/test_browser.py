"""The page in a real browser, without a network: it complains of nothing, and something is to be seen."""

import contextlib
import os
import re
import shutil
import signal
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from lockstep.core.proof import Proof, Status
from lockstep.core.report import words
from lockstep.core.report.html import html
from tests.core.report.examples import ROOT, RULES, example_proof, hostile

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium: apt-get install chromium")
DARK = "--blink-settings=preferredColorScheme=0"


def browse(page: Path, *options: str) -> tuple[str, list[str]]:
    """What the browser prints for a page, and the complaints of its console."""
    assert BROWSER is not None
    home = page.parent / "home"
    command = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-breakpad",
        "--no-first-run", "--hide-scrollbars", "--enable-logging=stderr", f"--user-data-dir={home}",
        "--host-resolver-rules=MAP * ~NOTFOUND", *options, page.as_uri(),
    ]  # fmt: skip
    environment = os.environ | {"HOME": str(home)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            printed, said = process.communicate(timeout=120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said
    return printed, [line for line in said.splitlines() if "CONSOLE" in line]


def written(proof: Proof, folder: Path) -> Path:
    page = folder / "report.html"
    page.write_text(html(proof, RULES, ROOT), encoding="utf-8")
    return page


def drawn_share(png: bytes) -> float:
    """How much of a picture is not like its left or upper neighbour: bytes that are not 0 after the PNG's filters."""
    assert png.startswith(b"\x89PNG\r\n")
    at, packed = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        packed += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    raw = zlib.decompress(packed)
    return 1 - raw.count(0) / len(raw)


@pytest.mark.parametrize(
    "proof", [*map(example_proof, Status), hostile()], ids=["pass", "fail", "abstain", "error", "bad"]
)
def test_the_page_opens_without_complaint(proof: Proof, tmp_path: Path) -> None:
    tree, complaints = browse(written(proof, tmp_path), "--dump-dom")
    assert complaints == []
    assert re.search(rf"<h1><span class=\"chip \w+\">{words.status(proof)}</span>", tree)
    assert tree.count("<svg ") == (0 if not proof.curves else len(proof.shares) + 3)
    assert "<script" not in tree
    assert tree.count('<details class="numbers">') == tree.count("<svg ")


def test_something_is_to_be_seen_in_light_and_in_dark(tmp_path: Path) -> None:
    def shot(page: Path, *options: str) -> bytes:
        picture = tmp_path / "shot.png"
        browse(page, "--window-size=1200,900", f"--screenshot={picture}", *options)
        return picture.read_bytes()

    blank = tmp_path / "blank.html"
    blank.write_text("<!doctype html><title>blank</title>", encoding="utf-8")
    page = written(example_proof(Status.FAIL), tmp_path)
    light, dark = shot(page), shot(page, DARK)
    assert drawn_share(shot(blank)) < 0.005
    assert drawn_share(light) > 0.03
    assert drawn_share(dark) > 0.03
    assert light != dark


def test_a_complaint_would_be_seen(tmp_path: Path) -> None:
    page = written(example_proof(Status.FAIL), tmp_path)
    spoiled = page.read_text(encoding="utf-8").replace(
        "<main", "<script>alert(1)</script><img src='http://a.example/'><main"
    )
    page.write_text(spoiled, encoding="utf-8")
    _, complaints = browse(page, "--dump-dom")
    assert len(complaints) == 2
    assert all("Content Security Policy" in line for line in complaints)
