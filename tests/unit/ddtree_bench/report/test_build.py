import re
from pathlib import Path

import pytest
from pypdf import PdfReader
from synthetic_tables import Tables, synthetic_config, tables_of, write_tables

from ddtree_bench.charts import draw_figures
from ddtree_bench.errors import BenchError
from ddtree_bench.hashing import file_sha256
from ddtree_bench.report import build_report

CONFIG = synthetic_config()


def build(folder: Path, tables: Tables) -> Path:
    """The PDF of these tables, all made below the folder."""
    written = write_tables(tables, folder / "tables")
    draw_figures(written, folder / "figures", CONFIG)
    pdf = folder / "out" / "report.pdf"
    build_report(written, folder / "figures", CONFIG, folder / "build" / "report.tex", pdf)
    return pdf


def words(pdf: Path) -> str:
    return re.sub(r"\s+", " ", " ".join(page.extract_text() for page in PdfReader(pdf).pages))


@pytest.mark.parametrize("kind", ["full", "empty", "failed"])
def test_report_compiles_and_fits(tmp_path: Path, kind: str) -> None:
    """A full, an empty and an all-failed run each give a PDF in which nothing overflows."""
    pdf = build(tmp_path, tables_of(kind, CONFIG))
    about = PdfReader(pdf).metadata
    assert about is not None
    assert about.title == "Synthetic & 100 % invented"
    log = (tmp_path / "build" / "report.log").read_text(errors="replace")
    assert "Overfull" not in log
    assert "Missing character" not in log
    assert "undefined" not in log


def test_no_page_is_left_empty(tmp_path: Path) -> None:
    """Each but the last is mostly filled: neither figures nor tables wait for a new one."""
    pages = PdfReader(build(tmp_path, tables_of("full", CONFIG))).pages
    words_of = [len(page.extract_text().split()) for page in pages]
    assert min(words_of[:-1]) > 100, words_of


def test_numbers_of_a_fast_machine_fit(tmp_path: Path) -> None:
    """Thousands of tokens a second with their intervals, as a GPU gives them."""
    tables = {
        name: table.assign(**{
            column: 40 * table[column] for column in table.columns if "tok_per_s" in column
        })
        for name, table in tables_of("full", CONFIG).items()
    }  # fmt: skip
    assert tables["overall"]["tok_per_s"].max() > 1000
    build(tmp_path, tables)
    assert "Overfull" not in (tmp_path / "build" / "report.log").read_text(errors="replace")


def test_same_tables_give_the_same_bytes(tmp_path: Path) -> None:
    """Neither folder nor clock reaches the PDF."""
    sums = {file_sha256(build(tmp_path / name, tables_of("full", CONFIG))) for name in ("a", "b/c")}
    assert len(sums) == 1


def test_hostile_logs_are_printed(tmp_path: Path) -> None:
    """What a dying server printed stands on the page and runs nothing."""
    said = words(build(tmp_path, tables_of("failed", CONFIG)))
    assert r"\input{/etc/passwd}" in said
    assert "root:" not in said
    assert "RuntimeError: no kernel image" in said


def test_missing_figure_is_an_error(tmp_path: Path) -> None:
    """A figure that is not there is named, with what makes it."""
    written = write_tables(tables_of("empty", CONFIG), tmp_path / "tables")
    with pytest.raises(BenchError, match=r"figure throughput is missing(?s:.)*charts"):
        build_report(written, tmp_path, CONFIG, tmp_path / "b" / "r.tex", tmp_path / "r.pdf")
