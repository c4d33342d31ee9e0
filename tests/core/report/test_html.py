"""The page: what is on it, that nothing leaves its place, and that it needs nothing else."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from lockstep.core.proof import Proof, Status
from lockstep.core.report.html import html
from tests.core.report.examples import BYPASS, ROOT, RULES, example_proof, failed, hostile, passed

VOID = {"meta", "br", "link", "img"}
TAGS = re.compile(
    "html|head|meta|title|style|body|a|header|div|span|nav|h[123]|p|b|strong|em|code|main|dl|dt|dd|section|ol|ul|li|"
    "article|details|summary|table|thead|tbody|tr|th|td|mark|figure|figcaption|pre|svg|g|path|rect|line|text"
)


class Page(HTMLParser):
    """The elements and texts of a page; fails where they are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, name: str) -> list[str]:
        return [str(attrs[name]) for _, attrs in self.tags if name in attrs]


EXAMPLES = [*map(example_proof, Status), hostile(), Proof("a.py", "b.py", 2, ())]


@pytest.mark.parametrize("proof", EXAMPLES, ids=lambda one: one.program[:12])
def test_it_is_well_formed_and_needs_nothing_else(proof: Proof) -> None:
    text = html(proof, RULES, ROOT)
    text.encode("utf-8")
    page = Page(text)
    assert all(TAGS.fullmatch(tag) for tag, _ in page.tags)
    assert all(link.startswith("#") for link in page.all("href"))
    assert not page.all("src")
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    style = text[text.index("<style>") : text.index("</style>")]
    assert not re.search(r"url\(|@import|https?:", style)
    assert "default-src 'none'" in page.all("content")[1]


@pytest.mark.parametrize("proof", EXAMPLES, ids=lambda one: one.program[:12])
def test_links_and_labels_lead_somewhere(proof: Proof) -> None:
    page = Page(html(proof, RULES, ROOT))
    ids = page.all("id")
    assert len(set(ids)) == len(ids)
    assert {link[1:] for link in page.all("href")} | set(page.all("aria-labelledby")) <= set(ids)
    assert all(attrs.get("aria-label") for tag, attrs in page.tags if tag == "svg")
    headings = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3")]
    assert headings[0] == 1
    assert headings.count(1) == 1


def test_hostile_text_stays_text() -> None:
    text = html(hostile(), RULES, ROOT)
    assert "<script" not in text.lower()
    assert "<img" not in text.lower()
    assert "\x1b" not in text
    assert "\x00" not in text
    words = Page(text).words
    assert words.count("</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>-->") > 20
    assert "äöü 数据 ]]> {{ 7*7 }}" in words


def test_a_failure_shows_the_break_both_sides_and_the_pictures() -> None:
    words = Page(html(failed(), RULES, ROOT)).words
    for part in (
        "FAIL train_ddp.py --epochs 3 on 2 ranks is not the same training as train.py --epochs 3: 'mirror' is broken.",
        "Next call wrapped(inputs) instead of model(inputs) in line 28.",
        "The break: mirror Step 0, gradient of 0.weight, rank 1 train_ddp.py:28",
        "run, rank 1 norm 0.5031 [0.0121, -0.0377, ...] reference norm 0.4402 [0.0098, -0.0251, ...]",
        "28 loss = torch.nn.functional.cross_entropy(model(inputs), targets)",
        "confirmed LS101 The forward called the module inside the wrapper",
        "refuted The loss is divided",
        "not tried LS111 The ranks start",
        "2 later differences",
        "error LS101 through_wrapper law SAME",
        "18 wrapped = DistributedDataParallel(model) if distributed else model",
        "1 more place",
        "DDP reduces there.",
        "Distance from the reference 2 ranks: apart at 11 of 12 steps",
        "Tiles/64/64#0, pass 2 64 samples, each read once.",
        "What the ranks did 2 ranks, steps 0 to 2",
        "train_ddp.py 9f2c9f2c",
    ):
        assert part in words, part


def test_a_pass_has_no_break_and_marks_what_was_accepted() -> None:
    page = Page(html(passed(), RULES, ROOT))
    assert "break" not in page.all("id")
    assert "deviation LS116 synchronised_batch_norm law SAME accepted" in page.words
    assert "2 ranks: equal, to the last bit, at all 12 steps." in page.words


def test_a_page_without_pictures_has_no_empty_sections() -> None:
    page = Page(html(example_proof(Status.ERROR)))
    assert not {"curves", "data", "timeline"} & set(page.all("id"))
    assert "svg" not in {tag for tag, _ in page.tags}


def test_an_abstention_that_a_later_rung_proves_says_so() -> None:
    words = Page(html(example_proof(Status.ABSTAIN))).words
    assert words.count("A later rung proves it instead.") == 1
    assert "No rule found anything in these runs." in words


def test_unread_samples_are_wrong_only_where_a_rule_or_the_ladder_says_so() -> None:
    cut = replace(passed(), shares=(replace(passed().shares[0], length=640),))
    assert 'class="wrong"' not in html(cut)
    finding = replace(BYPASS, code="LS202")
    rungs = (*cut.rungs[:-1], replace(cut.rungs[-1], findings=(finding,)))
    assert 'class="wrong"' in html(replace(cut, rungs=rungs))


def test_many_findings_are_folded() -> None:
    many = tuple(replace(BYPASS, code=f"LS{number}") for number in range(110, 140))
    proof = failed()
    rungs = (*proof.rungs[:-1], replace(proof.rungs[-1], findings=many))
    page = Page(html(replace(proof, rungs=rungs), {}, ROOT))
    assert sum(tag == "article" for tag, _ in page.tags) == 30
    assert "18 more findings" in page.words
