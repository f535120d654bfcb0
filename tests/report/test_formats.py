"""Every format shows the same numbers, and none lets text from a run become markup."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from PIL import Image
from rich.console import Console

from ercr.report.build import build
from ercr.report.document import Column, Estimate, Plot, Report, Row, Section, Series, Table, interval, number
from ercr.report.formats import data, html, latex, markdown, terminal
from ercr.report.plots import files, inline
from ercr.report.write import FORMATS, write
from tests.report.synthetic import CURVE, make_run

HOSTILE = "<script>alert(1)</script> & a_b|c `d` $e$ 50% {x} \\end{tabular} #~^"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    methods = ["cam", "tam", "ercr", "ercr:views=1", "ercr:context=none"]
    make_run(folder / "a", methods, images=20, budgets=CURVE, suppression=True)
    make_run(folder / "b", ["tam", "ercr"], model="scenes-llava", dataset="scenes:20", images=20)
    rows = [{"method": "tam", "seconds_per_sample": 1.5}, {"name": HOSTILE, "seconds_per_sample": 2.5}]
    (folder / "a" / "benchmark.json").write_text(json.dumps({"model": "Qwen2-VL-2B", "rows": rows}))
    return build([folder / "a", folder / "b"])


def hostile_report():
    estimate = Estimate(1.0, 0.5, 1.5, paper=2.0, p=0.01)
    columns = (Column("x", HOSTILE, HOSTILE), Column("y", "y", "other"))
    row = Row((HOSTILE, HOSTILE), {"x": estimate, "y": Estimate(1.0)}, HOSTILE)
    table = Table("key", HOSTILE, (HOSTILE, HOSTILE), columns, (row, row), (HOSTILE,), (HOSTILE,))
    line = Series(HOSTILE, [HOSTILE, "b"], [1.0, 2.0], [0.5, 1.5], [1.5, 2.5])
    plots = tuple(Plot(kind, HOSTILE, kind, (line, line), HOSTILE, HOSTILE) for kind in ("lines", "forest"))
    told = dict.fromkeys(("path", "title", "model", "dataset", "protocol", "tagger", "answers"), HOSTILE)
    told |= {"finished": False, "images": 1, "samples": 2, "failed": 1, "left_out": 0, "methods": [HOSTILE]}
    told |= {"versions": {HOSTILE: HOSTILE}, "reasons": {HOSTILE: 3}}
    return Report((told,), (Section("key", HOSTILE, HOSTILE, (table,), plots),), (), (HOSTILE,), "1.0")


def test_all_formats_show_every_number(report):
    console = Console(file=io.StringIO(), width=200)
    terminal.show(report, console)
    pages = {name: render(report) for name, render in FORMATS.items()} | {"terminal": console.file.getvalue()}
    for table in report.tables():
        for row in table.rows:
            for column in table.columns:
                if column.key in row.cells:
                    shown = number(row.cells[column.key].value, column.digits, column.signed)
                    assert shown in pages["html"]
                    assert shown in pages["markdown"]
                    assert shown in pages["terminal"]
                    assert latex.escape(shown) in pages["latex"]
    assert json.loads(pages["json"])["sections"][0]["tables"][0]["rows"][0]["figures"]


def counted():
    """Words and images: the same in a column, different in another, unknown in a third."""
    columns = (Column("same", "Same"), Column("other", "Other", signed=True), Column("none", "None"))
    rows = tuple(
        Row(
            (name,),
            {
                "same": Estimate(1.0, images=5, words=6),
                "other": Estimate(2.0, 1.0, 3.0, p=0.04, images=images, words=images + 1),
                "none": Estimate(3.0),
            },
        )
        for name, images in (("a", 1), ("b", 1234))
    )
    return Table("key", "Title", ("Method",), columns, rows)


def test_every_figure_tells_how_many_words_and_images_it_rests_on():
    table = counted()
    report = Report((), (Section("key", "S", "", (table,)),), (), (), "1.0")
    console = Console(file=io.StringIO(), width=200)
    terminal.show(report, console)
    pages = [console.file.getvalue(), *(FORMATS[name](report) for name in ("markdown", "html", "latex"))]
    for page in pages:
        assert page.count("6 words in 5 images") == 1  # once, at the column's head
        assert page.count("2 words in 1 image") == 1
        assert page.count("1,235 words in 1,234 images") == 1
        assert re.search(r"\+2\.00\D{1,30}p = 0\.040", page)  # a difference has its p-value beside it
    figures = json.loads(FORMATS["json"](report))["sections"][0]["tables"][0]["rows"][1]["figures"]
    assert figures["other"] == {"value": 2, "low": 1, "high": 3, "p": 0.04, "images": 1234, "words": 1235}
    assert figures["none"] == {"value": 3}
    line = next(csv.DictReader(io.StringIO(data.to_csv(table))))
    assert (line["same_words"], line["same_images"], line["other_words"]) == ("6", "5", "2")


def test_the_papers_numbers_stand_beside_ours(report):
    table = next(t for t in report.tables() if t.key.startswith("baselines-qwen"))
    ercr = next(row for row in table.rows if row.heads == ("ERCR",))
    estimate = ercr.cells["COCO Caption f1_iou"]
    assert estimate.paper == 44.45
    beside = f"44.45 ({number(estimate.value - 44.45, 2, signed=True)})"
    assert all(beside in render(report) for render in (markdown.render, html.render))
    assert f"\\below{{{latex.escape(beside)}}}" in latex.render(report)
    other = next(t for t in report.tables() if t.key == "generalization")
    assert all(f.paper is None for row in other.rows if row.heads[0] == "scenes-llava" for f in row.cells.values())


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.names, self.ids, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, text):
        self.text += text


def test_html_escapes_whatever_a_run_holds():
    hostile = hostile_report()
    page = html.render(hostile, {plot.key: inline(plot) for plot in hostile.plots()})
    parsed = Elements()
    parsed.feed(page)
    assert "script" not in parsed.names
    assert parsed.text.count("<script>alert(1)</script>") > 10


def test_plots_on_one_page_keep_their_names_apart(report):
    page = FORMATS["html"](report)
    parsed = Elements()
    parsed.feed(page)
    assert "svg" in parsed.names
    assert len(parsed.ids) == len(set(parsed.ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page)) <= set(parsed.ids)
    assert not re.search(r"(src|href)=.?https?:", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page))


def test_latex_escapes_what_it_must():
    assert latex.escape("a_b & 50% #1 {x} $y$ ~^") == (
        r"a\_b \& 50\% \#1 \{x\} \$y\$ \textasciitilde{}\textasciicircum{}"
    )
    assert latex.escape("1.5–2 −3 \\cmd 猫") == r"1.5--2 $-$3 \textbackslash{}cmd ?"


def test_latex_tables_are_balanced(report):
    for text in (latex.render(report), latex.render(hostile_report())):
        opened = re.findall(r"\\begin{(\w+)}", text)
        assert sorted(opened) == sorted(re.findall(r"\\end{(\w+)}", text))
        for layout, body in re.findall(r"\\begin{tabular}{(\w+)}(.*?)\\end{tabular}", text, re.DOTALL):
            for line in body.split("\n"):
                if re.search(r"\\\\(\[2pt\])?$", line) and "multicolumn" not in line:
                    assert len(re.findall(r"(?<!\\)&", line)) == len(layout) - 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
@pytest.mark.parametrize("hostile", [False, True])
def test_latex_compiles(report, tmp_path, hostile):
    (tmp_path / "report.tex").write_text(latex.render(hostile_report() if hostile else report))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]


def test_markdown_keeps_hostile_text_in_its_cell():
    text = markdown.render(hostile_report())
    assert "<script" not in re.sub("`[^`]*`", "", text)  # code shows what stands in it
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5, 4}


def test_terminal_takes_no_markup_from_a_run():
    hostile = Report((), (), warnings=("[bold]x[/bold] [/nonsense]",))
    console = Console(file=io.StringIO(), width=80)
    terminal.show(hostile, console)
    assert "[bold]x[/bold] [/nonsense]" in console.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 300])
def test_terminal_tables_fit_any_window(report, width):
    console = Console(file=io.StringIO(), width=width)
    terminal.show(Report((), report.sections), console)
    assert max(len(line) for line in console.file.getvalue().splitlines()) <= width


def test_csv_reads_back(report):
    table = next(t for t in report.tables() if t.key.startswith("baselines-qwen") and "difference" not in t.key)
    rows = list(csv.DictReader(io.StringIO(data.to_csv(table))))
    assert [row["Method"] for row in rows] == ["CAM", "TAM", "ERCR"]
    estimate = table.rows[2].cells["COCO Caption f1_iou"]
    assert float(rows[2]["COCO Caption f1_iou_low"]) == estimate.low
    assert float(rows[2]["COCO Caption f1_iou_paper"]) == 44.45


def test_a_folder_holds_every_format_and_plot(report, tmp_path):
    report = Report(report.runs, tuple(s for s in report.sections if s.key in ("ablation", "views")))
    write(report, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        *("report.html", "report.md", "report.tex", "report.json"),
        *("tables", "plots"),
    }
    assert {p.stem for p in (tmp_path / "tables").iterdir()} == {table.key for table in report.tables()}
    links = re.findall(r"!\[.*?\]\((.*?)\)", (tmp_path / "report.md").read_text())
    assert len(links) == len(report.plots())
    for link in links:
        Image.open(tmp_path / link).verify()
        assert (tmp_path / link).with_suffix(".svg").read_text().startswith("<?xml")
        assert (tmp_path / link).with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_the_same_figures_give_the_same_plot(report):
    plot = report.plots()[0]
    assert files(plot)["svg"] == files(plot)["svg"]


def test_numbers_are_written_for_people():
    assert [number(-0.001, 2), number(1234.5, 1), number(float("nan"), 2)] == ["0.00", "1,234.5", "–"]
    assert number(-1.5, 1, signed=True) == "−1.5"
    assert interval(Estimate(0.1, -0.2, 0.4), Column("x", "x")) == "−0.2 to 0.4"
    assert interval(Estimate(0.1), Column("x", "x")) == ""


def test_a_score_that_no_method_has_gets_no_panel_and_no_warning(recwarn):
    """A short run without an object word: Obj-IoU has no row, Func-IoU has one."""
    from ercr.report.sections.plausibility import forest

    columns = (Column("obj", "Obj-IoU", "any"), Column("func", "Func-IoU", "any"))
    rows = (Row(("cam",), {"func": Estimate(1.0, 0.5, 1.5)}),)
    plot = forest(Table("t", "t", ("Method",), columns, rows), "any", "t")
    assert [series.name for series in plot.series] == ["Func-IoU"]
    files(plot)
    assert not recwarn.list
    assert forest(Table("t", "t", ("Method",), columns[:1], rows), "any", "t") is None
