"""Tables: the means of the rows, the paper's numbers beside them, bold where significant, in three formats."""

import csv
import io
import itertools
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rows_examples import made_results, paper_results, row
from shiftprism.report import (
    Cell,
    Table,
    choose_rows,
    find_best,
    make_tables,
    short_tables,
    to_csv,
    to_latex,
    to_markdown,
)
from shiftprism.report._tables import compare_with
from shiftprism.rows import RESAMPLES, Effect, Measured, Results


def line_of(table: Table, *labels: str) -> dict[str, Cell]:
    (line,) = [line for line in table.body if [cell.text for cell in line[: len(labels)]] == list(labels)]
    return dict(zip(table.head[table.labels :], line[table.labels :], strict=True))


def effect(value: float, noise: float = 0.0, seed: int = 0, seeds: int = 3, model: str = "m") -> Effect:
    resamples = value + noise * np.random.default_rng(seed).standard_normal(RESAMPLES)
    return Effect.of(dict.fromkeys(range(seeds), value), dict.fromkeys(range(seeds), resamples), model, 100)


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return make_tables(made_results())


def test_every_table_of_the_paper_is_there(tables: dict[str, Table]) -> None:
    corruptions = ["shot_noise", "motion_blur", "zoom_blur", "fog"]  # those of the paper's appendix first
    expected = ["detection", "tnr", "ranking", "ranking-corruptions", "scores", "calibration", "ladder-concept-splits"]
    assert list(tables) == [f"cifar10-{name}" for name in [*expected, *(f"ladder-{name}" for name in corruptions)]]
    for table in tables.values():
        assert all(len(line) == len(table.head) for line in table.body)
        assert not any(np.isfinite(cell.mean) for line in table.body for cell in line[: table.labels])


def test_a_table_says_how_many_seeds_a_row_has_where_rows_differ(tables: dict[str, Table]) -> None:
    assert "seeds" not in tables["cifar10-detection"].head  # made_results has as many of every model
    few = made_results().where(shift=("clean", "svhn", "corrupted"))
    kept = [n for n, one in enumerate(few.rows) if one.model != "alpha" or one.seed == 0]
    table = make_tables(few.take(kept))["cifar10-detection"]
    assert table.head[:3] == ["model", "score", "seeds"]
    assert all(len(line) == len(table.head) for line in table.body)
    expected = {model: str(len({one.seed for one in few.rows if one.model == model})) for model in ("vanilla", "beta")}
    measured = [line for line in table.body if any(cell.seeds for cell in line)]
    found = {line[0].text: line[2].text for line in measured}
    assert found["alpha"] == "1" != expected["beta"]
    assert {model: found[model] for model in expected} == expected
    assert {line[2].text for line in table.body if line not in measured} <= {"–"}


def test_cells_hold_mean_and_deviation_over_seeds(tables: dict[str, Table]) -> None:
    values = [one.value for one in made_results().where(model="alpha", shift="svhn", subject="h", metric="auroc").rows]
    cell = line_of(tables["cifar10-detection"], "alpha", "h")["svhn (both)"]
    assert cell.text == f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"
    assert [cell.mean, cell.std] == pytest.approx([np.mean(values), np.std(values, ddof=1)])
    assert (cell.seeds, cell.n, cell.paper) == (3, 1000, "97.56 ± 0.90")


def test_the_mean_over_sets_is_taken_for_each_seed_first(tables: dict[str, Table]) -> None:
    rows = made_results().where(model="beta", subject="u", metric="auroc", severity=0).rows
    sets = ("cifar100", "corrupted", "svhn")
    by_seed = [np.mean([one.value for one in rows if one.seed == seed and one.shift in sets]) for seed in range(3)]
    cell = line_of(tables["cifar10-detection"], "beta", "u")["mean of 3"]
    assert [cell.mean, cell.std] == pytest.approx([np.mean(by_seed), np.std(by_seed, ddof=1)])


def test_other_scores_have_a_table_of_their_own(tables: dict[str, Table]) -> None:
    short, long = tables["cifar10-detection"], tables["cifar10-scores"]
    assert next(line for line in short.body if line[1].text == "energy")[0].text == "vanilla"
    assert len([line for line in short.body if line[1].text == "energy"]) == 1
    assert len([line for line in long.body if line[1].text == "energy"]) == 4
    assert not any(cell.paper for line in long.body for cell in line)
    assert "sngp" not in {line[0].text for line in long.body}


def test_the_illustration_is_no_rival() -> None:
    results = made_results(1)
    flat = Results.without_resamples([replace(one, model="features-3d") for one in results.where(model="vanilla").rows])
    made = make_tables(Results.concat([results, flat]))
    assert not any(cell.text == "features-3d" for table in made.values() for line in table.body for cell in line)


def test_what_only_the_paper_has_stands_there_as_the_papers(tables: dict[str, Table]) -> None:
    cell = line_of(tables["cifar10-detection"], "sngp", "entropy")["svhn (both)"]
    assert (cell.text, cell.paper, cell.bold) == ("–", "94.0 ± 1.30*", False)
    assert "* it took from Mukhoti et al. 2021" in tables["cifar10-detection"].note
    assert "†" not in tables["cifar10-detection"].note
    assert "† it took from Liu et al. 2020" in tables["cifar10-calibration"].note
    cell = line_of(tables["cifar10-calibration"], "duq", "uncalibrated")["mean ECE, corrupted"]
    assert (cell.text, cell.paper) == ("–", "0.183 ± 0.011†")


def test_other_data_have_no_numbers_of_the_paper() -> None:
    for table in make_tables(made_results(2, "my photos", "new", "factory")).values():
        assert not any(cell.paper for line in table.body for cell in line)
        assert "paper" not in table.note
    assert "my-photos-detection" in make_tables(made_results(1, "my photos", "new", "factory"))


def test_a_single_seed_has_no_deviation() -> None:
    cell = line_of(make_tables(made_results(1))["cifar10-detection"], "alpha", "h")["svhn (both)"]
    assert re.fullmatch(r"\d\d\.\d", cell.text)
    assert np.isnan(cell.std)


def test_the_papers_rows_give_back_the_papers_tables() -> None:
    made = make_tables(paper_results())
    compared = 0
    for table in made.values():
        for line in table.body:
            for cell in line[table.labels :]:
                if cell.paper and cell.text != "–":
                    printed = re.match(r"[\d.]+", cell.paper)
                    assert printed is not None
                    assert cell.mean == pytest.approx(cell.paper_mean)
                    assert cell.scale * cell.paper_mean == pytest.approx(float(printed[0]))
                    compared += 1
    assert compared == 624


def test_a_cell_is_printed_from_its_numbers(tables: dict[str, Table]) -> None:
    """`short` is the mean alone, in the units and digits of the text; a cell without a number is its text."""
    for table in tables.values():
        for cell in (cell for line in table.body for cell in line if cell.seeds and "[" not in cell.text):
            assert cell.text.split(" ± ")[0] == cell.short
    cell = line_of(tables["cifar10-calibration"], "alpha", "matrix")["ECE, clean"]
    assert (cell.scale, cell.digits, cell.short) == (1.0, 4, f"{cell.mean:.4f}")
    assert Cell("7 of 9").short == "7 of 9"
    assert Cell().short == "–"


def test_tables_know_their_section(tables: dict[str, Table]) -> None:
    sections = {name.removeprefix("cifar10-"): table.section for name, table in tables.items()}
    ladders = {name: sections.pop(name) for name in list(sections) if name.startswith("ladder-")}
    assert set(ladders.values()) == {"shift"}
    assert sections == {
        "detection": "detect",
        "tnr": "detect",
        "ranking": "all scores",
        "ranking-corruptions": "all scores",
        "scores": "all scores",
        "calibration": "trust",
    }


def test_bold_is_the_best_alone_where_it_is_clear() -> None:
    assert find_best([effect(0.9), effect(0.8), effect(0.7), None]) == [True, False, False, False]


def test_bold_is_shared_with_what_noise_cannot_tell_from_it() -> None:
    far = [effect(0.5, 0.01, seed) for seed in range(3)]
    assert find_best([effect(0.9, 0.05, 5), effect(0.89, 0.05, 6), *far]) == [True, True, False, False, False]


def test_a_noisy_number_below_a_clearly_worse_one_is_not_bold() -> None:
    noisy = effect(0.5, 0.4, 7)
    assert (effect(0.9) - noisy).low < 0  # noise cannot tell them apart, and yet it is not among the best
    assert find_best([effect(0.9), effect(0.8), noisy, effect(0.4)]) == [True, False, False, False]


def test_nothing_is_bold_where_most_are_alike() -> None:
    alike = [effect(0.9 - 0.001 * i, 0.05, i) for i in range(4)]
    assert find_best(alike) == [False] * 4
    assert find_best([effect(0.9)]) == [False]
    assert find_best([None, None]) == [False, False]


def test_no_score_is_the_best_of_those_that_detect_nothing() -> None:
    """Below an AUROC of 55 % nothing is bold, however clear the difference is; a TNR or an ECE has no such bound."""

    def bold(top: float, metric: str = "auroc") -> list[bool]:
        values = zip(("g", "h", "u"), (top, 0.40, 0.30), strict=True)
        rows = [row("vanilla", "svhn", 0, score, metric, value, kind="both") for score, value in values]
        (table,) = [
            one
            for name, one in make_tables(Results.without_resamples(rows)).items()
            if name.endswith("detection" if metric == "auroc" else "tnr")
        ]
        return [line_of(table, "vanilla", score)["svhn (both)"].bold for score in ("g", "h", "u")]

    assert bold(0.56) == [True, False, False]
    assert bold(0.54) == [False, False, False]
    assert bold(0.54, "tnr_at_tpr95") == [True, False, False]


def test_a_model_of_one_seed_is_not_bold_beside_other_models() -> None:
    lucky = effect(0.95, seeds=1, model="lucky")
    assert find_best([lucky, effect(0.90), effect(0.80)]) == [False, True, False]
    assert find_best([lucky, effect(0.90, seeds=1, model="other")]) == [False, False]
    scores = [effect(value, seeds=1) for value in (0.9, 0.8, 0.7)]
    assert find_best(scores) == [True, False, False]  # of one network, the images decide


def test_one_of_many_needs_holms_correction() -> None:
    """2.5 standard errors apart is 1.2 %: enough for one rival, not for twenty."""
    best, near = effect(0.9), effect(0.875, 0.01, 1)
    assert compare_with(best, [near]) == ["worse"]
    many = [effect(0.9, 0.01, 2 + i) for i in range(19)]
    assert compare_with(best, [near, *many]) == ["no"] * 20
    assert compare_with(effect(0.5), [effect(0.6), effect(0.5, seeds=1, model="other")]) == ["better", "one seed"]


def test_pairs_that_say_nothing_are_not_ranked() -> None:
    results = made_results()
    extra = [
        replace(one, model=model, subject=subject, weights=model)
        for one in results.where(model="vanilla", subject="u", metric="auroc").rows
        for model, subject in (("ensemble", "energy"), ("ensemble", "msp"), ("duq", "u"), ("duq", "kernel"))
    ]
    tables = make_tables(Results.concat([results, Results.without_resamples(extra)]))
    for name in ("ranking", "scores", "ranking-corruptions"):
        text = [[cell.text for cell in line] for line in tables[f"cifar10-{name}"].body]
        pairs = {pair for line in text for pair in itertools.pairwise(line)}
        assert {("ensemble", "msp"), ("duq", "kernel")} <= pairs
        assert not {("ensemble", "energy"), ("duq", "u")} & pairs


def test_a_subset_is_called_one() -> None:
    results = made_results()
    many = [replace(one, n=26_032 if one.shift == "svhn" else 10_000) for one in results.rows]
    few = [replace(one, n=10_000) for one in results.rows]
    notes = [make_tables(Results(rows, results.resamples))["cifar10-detection"].note for rows in (many, few)]
    assert "subset" not in notes[0]
    assert notes[1].endswith(" svhn is a subset here, 10,000 of the 26,032 published test images.")


def test_paired_noise_does_not_hide_a_difference() -> None:
    """The same images are easy for all: the spread of each is large, that of their difference is nothing."""
    assert find_best([effect(0.90, 0.1), effect(0.89, 0.1), effect(0.88, 0.1)]) == [True, False, False]


def test_lower_is_better_for_ece_and_higher_for_accuracy(tables: dict[str, Table]) -> None:
    line = line_of(tables["cifar10-calibration"], "alpha-beta", "alpha-beta")
    assert line["ECE, clean"].bold
    assert line["NLL, corrupted"].bold
    worst = line_of(tables["cifar10-calibration"], "vanilla", "uncalibrated")
    assert not worst["ECE, clean"].bold


def test_ladders_compare_models_within_a_score(tables: dict[str, Table]) -> None:
    table = tables["cifar10-ladder-motion_blur"]
    assert table.head[2:] == [f"AUROC {step}" for step in range(1, 6)]
    assert line_of(table, "h", "alpha")["AUROC 5"].bold
    assert line_of(table, "g", "alpha-beta")["AUROC 5"].bold
    assert line_of(table, "g", "alpha-beta")["AUROC 5"].paper == "91.25 ± 0.56"
    assert [cell.text for cell in table.body[0][:2]] == ["g", "vanilla"]


def test_the_ranking_says_who_differs_significantly_from_u() -> None:
    results = made_results()
    twin = [replace(one, subject="prism") for one in results.where(model="alpha-beta", subject="u").rows]
    doubled = Results.concat([results, Results(twin, results.where(model="alpha-beta", subject="u").resamples)])
    table = make_tables(doubled)["cifar10-ranking"]
    order = [cell.mean for cell in (line[3] for line in table.body)]
    assert order == sorted(order, reverse=True)
    assert [line[0].text for line in table.body] == [str(place) for place in range(1, len(order) + 1)]
    assert line_of(table, *next([c.text for c in line[:3]] for line in table.body if line[2].text == "prism"))[
        "significantly"
    ] == Cell("no")
    assert table.body[-1][-1] == Cell("worse")
    assert {line[2].text for line in table.body[:2]} == {"u", "prism"}
    assert table.body[0][3].bold
    assert table.body[1][3].bold
    assert not table.body[2][3].bold


def test_pairs_that_lack_a_set_are_not_ranked() -> None:
    extra = Results.without_resamples([row("ddu", "svhn", 0, "gmm", "auroc", 0.99, kind="both")])
    table = make_tables(Results.concat([made_results(), extra]))["cifar10-ranking"]
    assert "ddu" not in {line[1].text for line in table.body}


def test_markdown_is_one_table(tables: dict[str, Table]) -> None:
    for table in tables.values():
        lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
        assert len(lines) == len(table.body) + 2
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(table.head) + 1}


def test_latex_is_balanced_and_escaped(tables: dict[str, Table]) -> None:
    for table in tables.values():
        text = to_latex(table)
        assert text.count("{") == text.count("}")
        assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
        text = text.replace(f"\\label{{tab:{table.stem}}}\n", "")  # a label may have _
        assert re.findall(r"(?<!\\)[_#]|±|†|–|−", text) == []
        assert re.findall(r"(?<!\\)%(?!\n)", text) == []
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {len(table.head) - 1}
    assert r"\textbf{" in to_latex(tables["cifar10-detection"])
    wild = Table("a_b & 100 %", "x^2 ~ {y} \\ #1 $", ["h_1", "n"], [[Cell("a&b"), Cell("1")]], 1)
    assert r"\textbf{a\_b \& 100 \%} x\textasciicircum{}2 \textasciitilde{} \{y\} \textbackslash{} \#1 \$" in to_latex(
        wild
    )


def test_latex_has_a_label_and_a_short_caption(tables: dict[str, Table]) -> None:
    text = to_latex(tables["cifar10-detection"])
    assert r"\label{tab:cifar10-detection}" in text
    assert r"\caption[{cifar10: AUROC, near and far}]{\textbf{cifar10: AUROC, near and far} AUROC in \%" in text
    assert r"\toprule" in text
    assert r"\label" not in to_latex(tables["cifar10-detection"]._replace(stem=""))


@pytest.mark.slow
def test_latex_compiles(tables: dict[str, Table], tmp_path: Path) -> None:
    """Every table in one document, with a list of tables and a reference to each."""
    program = shutil.which("pdflatex")
    if program is None and "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.skip("no pdflatex here: apt-get install texlive-latex-base texlive-latex-recommended")
    assert program, "pdflatex is not installed, and SHIFTPRISM_NO_SKIP forbids to skip"
    packages = "".join(rf"\usepackage{{{name}}}" for name in ("booktabs", "graphicx", "xcolor"))
    refs = "".join(rf"\ref{{tab:{stem}}}" for stem in tables)
    body = "\n\\clearpage\n".join(map(to_latex, tables.values()))  # LaTeX holds back few tables at a time
    text = (
        rf"\documentclass{{article}}{packages}\begin{{document}}\listoftables {refs}" + f"\n{body}\n\\end{{document}}\n"
    )
    (tmp_path / "all.tex").write_text(text, encoding="utf-8")
    for _ in range(2):  # references are known the second time
        words = [program, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "all.pdf").stat().st_size > 10_000
    log = (tmp_path / "all.log").read_text(encoding="utf-8", errors="replace")
    assert "undefined references" not in log
    assert "multiply defined" not in log


def test_rows_are_chosen_by_their_names(tables: dict[str, Table]) -> None:
    chosen = choose_rows(tables, ["alpha-beta/u", "vanilla"])
    names = [[cell.text for cell in line[:2]] for line in chosen["cifar10-detection"].body]
    assert ["alpha-beta", "u"] in names
    assert {model for model, _ in names} == {"alpha-beta", "vanilla"}
    assert ["alpha-beta", "g"] not in names
    assert chosen["cifar10-detection"].note.endswith("Some rows of more, with the bold of all.")
    assert list(choose_rows(tables, ["dirichlet"])) == ["cifar10-calibration"]
    with pytest.raises(ValueError, match=r"Expected `rows` to be models, .* but got oracle; there are vanilla, "):
        choose_rows(tables, ["vanilla", "oracle"])


def test_an_own_score_is_in_every_table_of_scores() -> None:
    results = made_results(2)
    renamed = [replace(one, subject="mine:Ratio") for one in results.where(subject="energy").rows]
    own = Results(renamed, results.where(subject="energy").resamples)
    made = make_tables(Results.concat([results, own])) | short_tables(Results.concat([results, own]))
    for name, table in made.items():
        there = any(cell.text == "mine:Ratio" for line in table.body for cell in line)
        assert there == ("calibration" not in name), name


def test_csv_has_numbers_in_columns_of_their_own(tables: dict[str, Table]) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(tables["cifar10-detection"]))))
    (one,) = [
        line for line in lines if (line["model"], line["score"], line["column"]) == ("alpha-beta", "u", "svhn (both)")
    ]
    cell = line_of(tables["cifar10-detection"], "alpha-beta", "u")["svhn (both)"]
    assert float(one["mean"]) == cell.mean
    assert float(one["std"]) == cell.std
    assert (one["seeds"], one["n"], one["bold"], one["paper"]) == ("3", "1000", "1", "99.54 ± 0.08")
    (other,) = [line for line in lines if (line["model"], line["column"]) == ("sngp", "svhn (both)")]
    assert (other["mean"], other["seeds"], other["paper"]) == ("", "", "94.0 ± 1.30*")


def test_groups_are_told_apart() -> None:
    table = Table("t", "n", ["m", "v"], [[Cell("a"), Cell("1")], [Cell("a"), Cell("2")], [Cell("b"), Cell("3")]], 1)
    assert [table.new_group(i) for i in range(3)] == [False, False, True]
    assert not table._replace(group=0).new_group(2)


def test_results_of_two_protocols_make_two_sets_of_tables() -> None:
    results = made_results(1)
    paper = Results([replace(one, protocol="paper") for one in results.rows], results.resamples)
    made = make_tables(Results.concat([results, paper]))
    assert {"cifar10-detection", "cifar10-paper-detection"} <= set(made)
    assert made["cifar10-paper-detection"].title.startswith("cifar10 (paper protocol)")
    assert len(Measured.split(Results.concat([results, paper]))) == 2


def test_which_shift_has_the_shares_of_each_set_and_the_means_of_severities() -> None:
    rows = []
    for seed, extra in enumerate((0.0, 0.1)):
        sets = [("clean", "none", 0, 0.03), ("cifar100", "concept", 0, 0.3), ("corrupted", "covariate", 0, 0.5)]
        sets += [
            (name, "covariate", s, 0.1 * s + more) for name, more in (("fog", 0.0), ("snow", 0.2)) for s in (1, 3, 5)
        ]
        for shift, kind, severity, flagged in sets:
            for metric, part in (("flagged", 1.0), ("covariate", 0.75), ("concept", 0.25)):
                value = (flagged + extra) * part
                rows.append(row("vanilla", shift, severity, "attribution", metric, value, seed, kind))
            if kind == "covariate":
                rows.append(row("vanilla", shift, severity, "style, gen", "which_way", 0.9 + extra / 2, seed, kind))
    table = make_tables(Results.without_resamples(rows))["cifar10-which-shift"]
    called = line_of(table, "vanilla", "called covariate")
    assert called["cifar100 (concept)"].mean == pytest.approx(0.35 * 0.75)
    assert called["cifar100 (concept)"].std == pytest.approx(0.1 * 0.75 / np.sqrt(2))
    # at severity 3 fog has 0.3 and snow 0.5, plus 0 and 0.1 by seed
    assert called["corrupted, severity 3"].mean == pytest.approx((0.4 + 0.05) * 0.75)
    assert "corrupted, severity 1" not in called
    way = line_of(table, "vanilla", "which way (style, gen)")
    assert way["corrupted (covariate)"].text == "92.5 ± 3.5"
    assert way["clean"].text == "–"
