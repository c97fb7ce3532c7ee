"""The HTML page: what it says, what it must never hold, and that it stands alone."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from report_records import EAGLE, check, family, full_report
from synthetic import no_views

from analysis.answer import answers
from analysis.compose import compose
from analysis.figures.collection import all_pictures
from analysis.figures.export import inline_svg
from analysis.paper import load_paper
from analysis.records import CurveTest, Difference, Interval, Match, Missing, Problem, Report
from analysis.report import TEMPLATES, render_html
from analysis.tables import all_tables

HOSTILE = "</style><script>alert('x')</script>\"><img src=x onerror=alert(1)> {{ 7*7 }} {% raw %} &"
VOID = {"meta", "link", "br", "img", "hr", "input"}
CSS = (TEMPLATES / "page.css").read_text(encoding="utf-8")


class Page(HTMLParser):
    """Tags with their attributes, what was left open, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def html_of(report: Report) -> str:
    report = report if report.tables else replace(report, tables=all_tables(report))
    pictures = all_pictures(report)
    svgs = {p.name: inline_svg(p) for p in pictures if p.figure is not None}
    return render_html(report, pictures, svgs)


def words_of(report: Report) -> str:
    """The page without its pictures, which take seconds to draw."""
    report = report if report.tables else replace(report, tables=all_tables(report))
    return render_html(report, (), {})


def paper_only() -> Report:
    silent: list[str] = []
    return compose(load_paper(), (), no_views, 1, silent.append)


def curve(
    text: str = "accuracy is indistinguishable; 4.0 points would have been seen",
) -> CurveTest:
    return CurveTest(
        "RL-Zero, CPU", EAGLE.label, "eval/accuracy", 12, Interval(0.01, -0.02, 0.04, 12), 0.6,
        0.04, "binomial", "indistinguishable", text,
    )  # fmt: skip


@pytest.fixture(scope="module")
def html() -> str:
    return html_of(replace(full_report(), curves=(curve(),)))


def test_it_needs_nothing_but_itself(html: str) -> None:
    page = Page(html)
    assert page.open == []
    assert page.all("script") == []
    references = re.findall(r'(?:src|href|xlink:href|url)\s*[=(]\s*"?([^")\s>]+)', html)
    assert references
    assert {r for r in references if not r.startswith(("#", "data:"))} == set()
    assert "@import" not in html
    policies = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_links_lead_somewhere_and_ids_are_unique(html: str) -> None:
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for attributes in page.all("a")]
    assert len(links) > 5
    assert {str(link).removeprefix("#") for link in links} <= set(ids)
    uses = re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', html)
    assert set(uses) <= set(ids)


def test_a_reader_who_cannot_see_it_is_told_everything(html: str) -> None:
    page = Page(html)
    assert page.all("html") == [{"lang": "en"}]
    pictures = [a for a in page.all("div") if a.get("role") == "img"]
    assert len(pictures) == len(page.all("svg")) > 5
    assert all(len(str(a["aria-label"])) > 20 for a in pictures)
    assert len(page.all("caption")) == len(page.all("table")) > 5
    assert all(a.get("scope") for a in page.all("th"))
    assert len(page.all("figure")) == len(page.all("figcaption"))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels.count(1) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(scheme: str) -> None:
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    colours: dict[str, str] = {}
    for block in blocks[: 1 if scheme == "light" else 2]:
        colours |= dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    behind = ("page", "panel", "ours", "good-panel", "open-panel", "bad-panel")
    pairs = [(text, back) for text in ("ink", "muted") for back in behind]
    pairs += [("link", "page"), ("bad", "page"), ("bad", "bad-panel"), ("bad", "ours")]
    low = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, relative luminance."""
    lights = []
    for colour in (one, other):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_hostile_names_stay_text() -> None:
    report = full_report()
    run = replace(report.runs[0], name=HOSTILE, source=HOSTILE, machine=HOSTILE, status=HOSTILE,
                  git_commit=HOSTILE, config={"name": HOSTILE, "seed": HOSTILE})  # fmt: skip
    bad = replace(
        report,
        runs=(run,),
        families=(replace(
            family(HOSTILE), regime=HOSTILE, settings=HOSTILE,
            missing=(Missing(EAGLE, HOSTILE),),
        ),),
        checks=(check(HOSTILE, violation=HOSTILE),),
        views=tuple(replace(row, title=HOSTILE, label=HOSTILE) for row in report.views),
        problems=(Problem(HOSTILE, HOSTILE, True),),
        curves=(curve(HOSTILE),),
        sources=(HOSTILE,),
    )  # fmt: skip
    html = html_of(bad)
    page = Page(html)
    assert page.open == []
    assert page.all("script") == page.all("img") == []
    assert HOSTILE not in html
    assert "{{ 7*7 }}" in page.text
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]


def test_without_runs_it_says_so_and_gives_the_papers_numbers_and_commands() -> None:
    page = Page(html_of(paper_only()))
    assert "No runs yet: the paper only" in page.text
    assert "1.41× a step" in page.text
    assert "specrl experiment=rl_zero drafter=none" in page.text
    assert "specrl experiment=rl_think drafter=ngram drafter.k=3" in page.text


def test_the_answer_is_the_fastest_fair_arm_with_its_interval() -> None:
    helps, drafter, bound = answers(full_report())
    assert helps.tone == "yes"
    assert "Yes. With eagle3 k=3 dapo offline a step is 1.41× [1.36, 1.46] as fast" in helps.ours[0]
    assert "2.00× [1.90, 2.10]" in drafter.ours[0]
    assert "generation is 58 % [56, 60] of the autoregressive step" in bound.ours[0]
    assert "no drafter can give more than 2.38×" in bound.ours[0]


@pytest.mark.parametrize(
    ("step", "tone", "said"),
    [
        (Interval(0.8, 0.7, 0.9, 40), "no", "No, it is slower"),
        (Interval(1.1, 0.9, 1.3, 40), "open", "Not told apart from no gain"),
        (Interval(1.4, steps=3), "open", "No interval"),
    ],
)
def test_no_gain_is_claimed_that_the_interval_does_not_bear(
    step: Interval, tone: str, said: str
) -> None:
    whole = family()
    report = replace(
        full_report(), families=(replace(whole, matches=(replace(whole.matches[0], step=step),)),)
    )
    answer = answers(report)[0]
    assert answer.tone == tone
    assert said in answer.ours[0]


def test_a_refused_pair_is_no_answer_and_says_why() -> None:
    whole = family()
    refused = Match(*whole.arms, differences=(Difference("rollout.max_tokens", "160", "320"),))
    report = replace(full_report(), families=(replace(whole, matches=(refused,)),))
    assert answers(report)[0].ours[0].startswith("No matched pair of arms")
    assert "rollout.max_tokens: 160 against 320" in Page(words_of(report)).text


def test_an_impossible_speedup_is_red_and_on_top() -> None:
    suspect = "RL-Zero: measured 2.1x is above 1.5x; suspect: training time"
    html = words_of(replace(full_report(), checks=(check(), check(violation=suspect))))
    page = Page(html)
    alerts = [a for a in page.all("div") if a.get("role") == "alert"]
    assert len(alerts) == 1
    assert html.index(suspect) < html.index('class="answers"')
    assert len([a for a in page.all("tr") if a.get("class") == "violation"]) == 1
    assert 'role="alert"' not in words_of(full_report())


def test_indistinguishable_never_stands_without_what_would_have_been_seen(html: str) -> None:
    page = Page(html)
    assert "4.0 points would have been seen" in page.text
    assert "0.0400" in page.text


def test_where_the_numbers_are_from_is_told() -> None:
    page = Page(words_of(replace(full_report(), sources=("outputs",))))
    for told in ("760fa13dc8", "2 cores", "2026-11-30 12:00 UTC", "matplotlib ", "Read: outputs"):
        assert told in page.text
