"""The page is one whole file that says what the rows say; results become tables, figures, claims and that page."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from outputs_examples import publish_example
from rows_examples import made_results, row
from shiftprism import claims, plots, report
from shiftprism.claims import SIGNS
from shiftprism.cli import app
from shiftprism.report._page import Section, list_findings, page, table
from shiftprism.rows import Results, ResultsFolder, write_rows

QUESTIONS = [
    *("What holds?", "Does it detect?", "Which shift is it?", "Can I trust the confidence?"),
    *("What did the paper say?", "How was this made?"),
]


class Reader(HTMLParser):
    """Collects tags, and fails on one that is closed out of order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def check_whole(text: str) -> Reader:
    """Tags that close, links inside the file only, ids that do not repeat, and a policy that fits the script."""
    reader = Reader(text)
    assert all(link.startswith(("#", "data:")) for link in reader.links)
    assert not re.search(r"@import|url\(http|url\(//", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert ids
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in reader.links if link.startswith("#")} <= set(ids)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text
    return reader


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results")
    publish_example(path)
    return path


def test_a_page_of_few_rows_is_whole_and_has_its_lead(tmp_path: Path) -> None:
    """Rows in memory are not read from the folder again, a question that nothing answers is left out."""
    results = made_results(2).where(model=("vanilla", "alpha-beta"), shift=("clean", "fog", "cifar100"))
    few = results.where(subject=("g", "h", "u"))
    findings = report.publish(tmp_path, few, lead="What <b>it</b> is.")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    reader = check_whole(text)
    assert findings == claims.judge(few) == claims.read_findings(tmp_path / "claims.json")
    assert not (tmp_path / "rows.jsonl").exists()
    assert '<p class="lead">What <b>it</b> is.</p>' in text
    assert "That is few" in text
    assert "2 seeds a model" in text
    assert "The command" not in text
    assert re.findall(r"<h2>(.*?)</h2>", text) == [one for one in QUESTIONS if "trust" not in one]
    assert reader.tags.count("svg") == len(list((tmp_path / "figures").iterdir())) == 2


def test_the_papers_claims_are_not_shown_for_other_data(tmp_path: Path) -> None:
    """Neither under another name, nor where a user held out classes of CIFAR-10 (the suite "own")."""
    few = made_results(2, "a <data> set").where(model=("vanilla", "alpha-beta"), shift=("clean", "fog", "svhn"))
    assert report.publish(tmp_path / "a", few) == claims.read_findings(tmp_path / "a" / "claims.json") == []
    text = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    check_whole(text)
    assert "ShiftPrism on a &lt;data&gt; set" in text
    assert "claims" not in text.partition("</header>")[0].rpartition("<header>")[2]
    assert re.findall(r"<h2>(.*?)</h2>", text) == [QUESTIONS[1], QUESTIONS[2], QUESTIONS[3], QUESTIONS[5]]
    few = made_results(2).where(model="vanilla", shift=("clean", "svhn"))
    ResultsFolder(tmp_path / "b").write_suite({"suite": "own"}, "shiftprism benchmark --data cifar10")
    assert report.publish(tmp_path / "b", few, page=False) == []


def test_a_published_page_answers_every_question(published: Path) -> None:
    text = (published / "report.html").read_text(encoding="utf-8")
    reader = check_whole(text)
    assert re.findall(r"<h2>(.*?)</h2>", text) == QUESTIONS
    assert re.findall(r'<li><a href="#[a-z-]+">(.*?)</a></li>', text) == QUESTIONS
    assert reader.tags.count("svg") == len(list((published / "figures").glob("*.svg"))) == 13
    assert "The command: <code>shiftprism benchmark --suite &lt;x&gt;</code>" in text
    assert len(text) < 3_000_000
    found = claims.read_findings(published / "claims.json")
    for judgement, sign in SIGNS.items():
        count = sum(one.judgement == judgement for one in found)
        assert text.count(f'class="verdict"><span aria-hidden="true">{sign}</span> {judgement}</span>') == count
    for one in found:
        assert one.claim.sentence in " ".join(reader.words)


def test_a_figure_names_only_what_is_drawn(published: Path) -> None:
    text = (published / "report.html").read_text(encoding="utf-8")
    assert "|f| against shift (" in text  # these rows have no medians of α and β
    assert "β and |f| against shift" not in text


def test_tables_are_written_three_times(published: Path) -> None:
    tables = report.make_tables(Results.read(published))
    assert tables
    files = {path.name for path in (published / "tables").iterdir()}
    assert files == {f"{stem}.{ending}" for stem in tables for ending in ("md", "tex", "csv")}
    stem, one = next(iter(tables.items()))
    assert (published / "tables" / f"{stem}.md").read_text(encoding="utf-8") == report.to_markdown(one)


def test_the_papers_numbers_stand_beside_ours(published: Path) -> None:
    text = (published / "report.html").read_text(encoding="utf-8")
    rows = Results.read(published).where(model="alpha-beta", shift="svhn", subject="u", metric="auroc").rows
    start = '<th scope="row">alpha-beta · u</th><th scope="row">svhn (both)</th>'
    numbers = re.findall(re.escape(start) + r'<td data-value="(.*?)">.*?</td><td data-value="(.*?)">(.*?)</td>', text)
    assert len(numbers) == 1
    assert float(numbers[0][0]) == pytest.approx(100 * fmean(row.value for row in rows), abs=0.06)
    assert numbers[0][1:] == ("99.54", "99.54 ± 0.08")  # Table 1 of the paper


def test_figures_already_there_stay_where_outputs_are_not_stored(published: Path, tmp_path: Path) -> None:
    made_results(1).where(shift=("fog", "svhn"), model="vanilla").write(tmp_path)
    (tmp_path / "figures").mkdir()
    before = (published / "figures" / "cifar10-roc.svg").read_text(encoding="utf-8")
    (tmp_path / "figures" / "cifar10-roc.svg").write_text(before, encoding="utf-8")
    report.publish(tmp_path)
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert "cifar10-overview" in names  # from rows alone
    assert "cifar10-plane" not in names  # needs outputs
    assert (tmp_path / "figures" / "cifar10-roc.svg").read_text(encoding="utf-8") == before
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert plots.inline(before) in text
    assert text == report.make_page(tmp_path)
    for content in (b"no picture", before.encode().replace(b"<path", b"\xff<path")):
        (tmp_path / "figures" / "cifar10-roc.svg").write_bytes(content)
        with pytest.raises(ValueError, match=r"SVG files that ShiftPrism wrote but got .*cifar10-roc\.svg"):
            report.make_page(tmp_path)


def test_names_from_a_file_of_rows_cannot_write_html(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    rows = [
        row(evil, evil, severity, score, "auroc", 0.6, data=evil, kind="covariate")
        for severity in (0, 1, 2)
        for score in ("g", "h", "u")
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    report.publish(tmp_path)
    assert {path.parent for path in (tmp_path / "figures").rglob("*.svg")} == {tmp_path / "figures"}
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    check_whole(text)
    assert "<script>alert" not in text


def test_a_cell_knows_its_number_and_the_papers() -> None:
    cells = [report.Cell("u"), report.Cell("95.1 ± 0.2", True, "99.5*", 0.951), report.Cell()]
    text = table(report.Table("T", "N.", ["score", "svhn", "far"], [cells], 1))
    assert '<td data-value="0.951" class=best>95.1 ± 0.2<small>paper 99.5*</small></td><td>–</td>' in text
    assert '<th scope="row">u</th>' in text


def test_judgements_are_words_and_symbols() -> None:
    found = claims.judge(made_results(1).where(model=("vanilla", "alpha-beta")))
    found[0], found[1] = found[0]._replace(judgement="contradicted"), found[1]._replace(judgement="not shown")
    text = list_findings(found)
    for judgement, symbol in (("holds", "✓"), ("contradicted", "✗"), ("not shown", "○"), ("not measured", "·")):
        assert f'<span aria-hidden="true">{symbol}</span> {judgement}' in text
    assert [text.count(f'<li class="{name}">') for name in ("holds", "fails", "open")] == [
        sum(one.judgement in names for one in found)
        for names in (("holds",), ("contradicted",), ("not shown", "not measured"))
    ]
    assert f'<p class="count">{claims.count_judgements(found)}.</p>' in text
    check_whole(page("t", "", [Section("What holds?", text)]))
    counts = {name: sum(one.judgement == name for one in found) for name in ("not shown", "not measured")}
    assert f"<summary>{counts['not measured']} not measured</summary>" in text  # folded away
    assert "not shown</summary>" not in text
    undecided = list_findings([one for one in found if one.judgement in counts])
    assert f"<summary>{counts['not shown']} not shown</summary>" in undecided


def run(*words: str | Path) -> "tuple[str, str]":
    """What the command prints, and the error it ends with."""
    done = CliRunner().invoke(app, ["report", *map(str, words)])
    return done.output, str(done.exception or "")


def test_the_command_writes_the_page_and_the_tables(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    made_results(1).where(shift=("fog", "svhn", "clean"), model=("vanilla", "alpha-beta")).write(folder)
    output, error = run(folder, "--to", tmp_path / "deep" / "page.html")
    assert not error
    assert f"Written: {tmp_path / 'deep' / 'page.html'}" in output
    assert "<h2>What holds?</h2>" in (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    tables = report.make_tables(Results.read(folder))
    output, error = run(folder, "--format", "latex", "--to", tmp_path / "tex")
    assert not error
    assert len(list((tmp_path / "tex").glob("*.tex"))) == len(tables)
    output, error = run(folder / "rows.jsonl", "--format", "md")
    assert not error
    assert all(f"### {one.title}\n" in output for one in tables.values())


def test_wrong_words_get_a_clear_answer(tmp_path: Path) -> None:
    assert "one of csv, html, latex, md but got 'pdf'" in run(tmp_path, "--format", "pdf")[1]
    assert "a folder with rows.jsonl but got" in run(tmp_path)[1]
    assert "a folder with rows.jsonl but got" in run(tmp_path / "absent")[1]
    (tmp_path / "rows.jsonl").write_text("")
    assert f"{tmp_path} without any; run `shiftprism benchmark` first" in run(tmp_path)[1]
    write_rows(tmp_path / "rows.jsonl", [row(), row()])
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"model": "van')
    assert f"line 3 of {tmp_path / 'rows.jsonl'}" in run(tmp_path)[1]
