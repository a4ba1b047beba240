"""The report of all passes: what is in the file, and what a browser does with it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tilec.cli import main
from tilec.compiler import compile_file
from tilec.explain.report import Observed, report
from tilec.ir.printer import print_program
from tilec.jobs.explaining import ExplainRequest, explain_file

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
ATTENTION = SAMPLES / "attention.tile"


class Sections(HTMLParser):
    """Lines of each section as (text, source line or 0); every tag must be closed by its own."""

    VOID = ("meta", "rect")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: dict[str, list[tuple[str, int]]] = {}
        self.links: list[str] = []
        self.options: list[str] = []
        self.section = ""
        self.line = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.links += [v or "" for n, v in attrs if n in ("src", "href")]
        if tag == "section":
            self.section = known["id"] or ""
            self.sections[self.section] = []
        if tag == "li":
            self.line = int(known.get("data-line") or 0)
            self.sections[self.section].append(("", self.line))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["li"]:
            text, line = self.sections[self.section][-1]
            self.sections[self.section][-1] = (text + data, line)
        if self.open[-1:] == ["option"]:
            self.options.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert explain_file(ExplainRequest(str(ATTENTION), arch="sm_90a", html=str(path))) == 0
    return path


@pytest.fixture(scope="module")
def parsed(page: Path) -> Sections:
    sections = Sections()
    sections.feed(page.read_text(encoding="utf-8"))
    sections.close()
    assert sections.open == []
    return sections


def test_the_file_needs_nothing_else(page: Path, parsed: Sections) -> None:
    assert parsed.links == []
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
    assert text.startswith("<!DOCTYPE html>\n")


def test_the_source_is_whole(parsed: Sections) -> None:
    written = ATTENTION.read_text(encoding="utf-8").splitlines()
    assert parsed.sections["source"] == [(t, n) for n, t in enumerate(written, 1)]


def test_every_form_has_lines_of_the_source(parsed: Sections) -> None:
    stages = [lines for name, lines in parsed.sections.items() if name.startswith("stage-")]
    assert len(stages) >= 4 + 3 * 3 + 1
    for lines in stages:
        # the first product, the store of the output
        assert {13, 23} <= {line for _, line in lines}
    explained = parsed.sections["explanation"]
    wgmma = [line for text, line in explained if "product: wgmma" in text]
    assert wgmma and set(wgmma) == {13, 21}
    assert parsed.options[0] == "attention_kernel, sm_90a"


def test_forms_are_what_the_other_commands_print() -> None:
    seen = Observed("attention.tile")
    compiled = compile_file(
        str(ATTENTION), archs=("sm_90a",), print_after=("hoist",), observe=seen.see
    )
    source = ATTENTION.read_text(encoding="utf-8")
    (kernel,) = compiled.kernels
    found = report(seen, source, compiled.cu, {k.name: k for k in kernel.lowered["sm_90a"]})
    stages = {stage.key: stage for stage in found.stages}
    hoisted = "\n".join(text for text, _ in stages["0.hoist"].lines)
    assert compiled.snapshots["hoist"].split("\n", 1)[1].rstrip() == hoisted
    assert print_program(kernel.program).splitlines()[0] == stages["0.hoist"].lines[0][0]
    last = [stages[f"{k.name}.sm_90a.synchronize"] for k in kernel.lowered["sm_90a"]]
    texts = ["\n".join(text for text, _ in stage.lines) + "\n" for stage in last]
    assert "\n".join(texts) == kernel.kernel_ir["sm_90a"]
    cuda = "\n".join(text for text, _ in stages["attention.cuda"].lines)
    assert cuda and cuda in compiled.cu
    # a line stands where its quotation says
    for (before, _), (_, line) in zip(
        stages["attention.cuda"].lines, stages["attention.cuda"].lines[1:], strict=False
    ):
        if quoted := re.match(r"\s*// attention\.tile:(\d+)  ", before):
            assert line == int(quoted[1])
    assert stages["0.schedule"].changed
    assert "move in front of their loop" in stages["0.hoist"].what
    assert [len(v.stages) for v in found.views] == [14] * len(kernel.lowered["sm_90a"])


def test_a_kernel_of_two_nests_and_text_that_looks_like_a_tag(tmp_path: Path) -> None:
    path = tmp_path / "two.html"
    with pytest.raises(SystemExit) as stopped:
        main(["explain", str(SAMPLES / "decode.tile"), "--html", str(path)])
    assert stopped.value.code == 0
    sections = Sections()
    sections.feed(path.read_text(encoding="utf-8"))
    assert len(sections.options) >= 3
    assert any(
        "template <int" in t or "<float" in t for ls in sections.sections.values() for t, _ in ls
    )


PARTS = """kernel k(x: f32[R, 64], z: f32[R, 64]) -> (y: f32[R, 4], w: f32[R, 8]):
    for r in parallel(R):
        a, b = topk(x[r, :], 4, axis=0)
        y[r, :] = a
    for r in parallel(R):
        w[r, :] = (z[r, :] * 2.0)[8:16]
"""


def test_passes_in_front_belong_to_their_nest(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(PARTS, encoding="utf-8")
    seen = Observed("k.tile")
    compile_file(str(path), archs=("sm_80",), print_after=("topk", "reindex"), observe=seen.see)
    assert [[name for name, _ in nest.programs][:3] for nest in seen.nests] == [
        ["topk", "reindex", "eliminate_dead"]
    ] * 2
    first, second = (dict(nest.programs)["reindex"] for nest in seen.nests)
    assert any("round" in text for text, _ in first)
    assert any("span(8, 8" in text for text, _ in second)
    assert all(nest.kernels for nest in seen.nests)


def test_in_a_browser(page: Path, request: pytest.FixtureRequest) -> None:
    """`TILEC_BROWSER` names a Chromium where `chromium` is not on the search path."""
    browser = os.environ.get("TILEC_BROWSER") or shutil.which("chromium")
    if browser is None or importlib.util.find_spec("playwright") is None:
        pytest.skip(f"no Chromium or no playwright: would have run `{request.node.name}`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        view = chromium.new_page(viewport={"width": 1400, "height": 900})
        wrong: list[str] = []
        view.on("pageerror", lambda error: wrong.append(str(error)))
        view.goto(page.as_uri())
        titles = view.locator("#tabs button").all_inner_texts()
        assert titles[0] == "Tile IR after eliminate_dead"
        assert titles[-3:] == ["CUDA", "layouts", "explanation"]
        view.locator("#source li[data-line='13']").click()
        for title in titles:
            shown = view.locator("main > section.stage:not([hidden])")
            assert shown.count() == 1 and shown.get_attribute("data-title") == title
            lit = shown.locator("li.on")
            if title == "layouts":
                assert shown.locator("svg").count() >= 4
            else:
                assert lit.count() >= 1
                # the first of them has been scrolled to
                box, frame = lit.first.bounding_box(), shown.bounding_box()
                assert box and frame and frame["y"] <= box["y"] <= frame["y"] + frame["height"]
            view.keyboard.press("ArrowRight")
        # a line of the generated code leads back to the source
        view.get_by_role("tab", name="CUDA").click()
        view.locator("section.stage:not([hidden]) li[data-line='23']").first.click()
        assert view.locator("#source li.on").get_attribute("data-line") == "23"
        view.select_option("#view", "1")
        assert view.locator("#tabs button").count() == len(titles)
        assert wrong == []
        chromium.close()
