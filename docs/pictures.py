"""Draws the pictures of the README and the guides: ``python docs/pictures.py``, in half a minute.

They are those of ``fedspan demo``, each as a file of its own, and all six in one. ``--out FILE`` writes only that one.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes

import fedspan as fs
from fedspan.cli.demo.demo_command import CARDS
from fedspan.datasets import make_few_shot_tasks
from fedspan.report.cards_page import Card
from fedspan.report.charts.axes import Scale
from fedspan.report.charts.line_charts import Line, bar_chart, line_chart
from fedspan.report.charts.svg import line, path, svg, text
from fedspan.report.page import asset

HERE = Path(__file__).parent
GAP, WIDTH = 24, 360


def style() -> str:
    """Return the rules for charts, in light colours."""
    report, cards = asset("report.css"), asset("cards.css")
    colours = re.search(r":root \{.*?\n\}", report, flags=re.DOTALL)
    rules = [line for line in (report + cards).splitlines() if line.startswith((".chart", ".s0 {", ".s5 {"))]
    assert colours is not None
    font = 'text { font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }'
    more = (
        ".head { font-size: 15px; font-weight: 700; fill: var(--ink); } .value { font-size: 14px; fill: var(--soft); }"
    )
    return "\n".join([colours.group().replace("light dark", "light"), *rules, font, more])


def placed(chart: str, x: float, y: float) -> tuple[str, float]:
    """Return a chart at a place of another drawing, and its height."""
    height = float(re.search(r'viewBox="0 0 \d+ ([\d.]+)"', chart).group(1))  # type: ignore[union-attr]
    plain = re.sub(r"<title>[^<]*</title>", "", chart)
    return plain.replace("<svg ", f'<svg x="{x:g}" y="{y:g}" width="{WIDTH}" height="{height:g}" ', 1), height


def drawing(title: str, body: str, width: float, height: float) -> str:
    """Return a file with its own white ground, to be seen in light and dark."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img">\n<title>{title}</title>\n<style>{style()}</style>\n'
        f'<rect width="100%" height="100%" rx="10" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def alone(title: str, chart: str) -> str:
    """Return one chart as a file."""
    body, height = placed(chart, GAP, GAP)
    return drawing(title, body, WIDTH + 2 * GAP, height + 2 * GAP)


def all_six(cards: list[Card]) -> str:
    """Return the pictures of all cards, three in a line, with what each shows and its number."""
    heads = {
        "map": "Ten hospitals, one map",
        "alarm": "Gateways find attacks",
        "attack": "A third of the sites is malicious",
        "groups": "Hidden groups of clinics",
        "resume": "Killed, resumed, the same bytes",
        "rebuild": "What the coordinator can rebuild",
    }
    line, parts = 268.0, []
    for i, card in enumerate(cards):
        x, y = GAP + (i % 3) * (WIDTH + 2 * GAP), GAP + (i // 3) * line
        parts.append(f'<text class="head" x="{x:g}" y="{y + 10:g}">{heads[card.key]}</text>')
        parts.append(placed(str(card.picture), x, y + 24)[0])
    return drawing("Six runs of the demo", "\n".join(parts), 3 * WIDTH + 6 * GAP, 2 * line + 16)


def few_shot() -> str:
    """Draw the error of a new task by its number of rows, with and without the shared representation."""
    data = make_few_shot_tasks(60, 60, 3, 90, 6, noise=0.1, seed=0)
    model = fs.FedFewShotRegressor("auto").fit(fs.federate(data.X, data.y, sites=data.sites, task=data.task))
    rows = [6, 8, 12, 16, 24, 32, 48]
    errors = np.zeros((2, len(rows)))
    for i, m in enumerate(rows):
        new = make_few_shot_tasks(60, 20, 3, m, 1, noise=0.1, basis=data.basis, seed=1)
        for task in range(20):
            X, y, truth = new.X[new.task == task], new.y[new.task == task], new.coef[task]
            found = model.adapt(X, y).coef, np.linalg.lstsq(X, y, rcond=None)[0]
            errors[:, i] += [np.sum((coef - truth) ** 2) / np.sum(truth**2) / 20 for coef in found]
    names = (("error with the shared representation", 0), ("error of the new rows alone", 6))
    lines = [Line(name, rows, list(error), colour) for (name, colour), error in zip(names, errors, strict=True)]
    chart = str(line_chart(lines, label="error of a new task", x_label="rows of the new task", log=True))
    legend = text(110, 46, names[1][0], "name") + text(110, 112, names[0][0], "name")
    return chart.replace("</svg>", f"{legend}</svg>")


def histogram() -> str:
    """Draw the histogram of a column that four sites hold."""
    table = load_diabetes(as_frame=True, scaled=False).frame
    bars = fs.statistics.histogram(fs.federate(table[["bmi"]], sites=np.arange(len(table)) % 4), "bmi", bins=12)
    names = [f"{low:g}" for low in bars.edges[:-1]]
    counts = np.asarray(bars.counts, dtype=float).ravel().tolist()
    return str(
        bar_chart(
            counts,
            names,
            label="rows by bmi, of four sites",
            x_label="bmi, rows of four sites; cells of few rows are not shown",
        )
    )


def intervals() -> str:
    """Draw coefficients with their intervals, in units of their standard errors."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    names = ["age", "sex", "bmi", "bp", "s5"]
    model = fs.FedLinearRegression().fit(X[names], y, sites=np.arange(len(X)) % 3)
    z = np.ravel(model.coef_) / np.asarray(model.bse_)[1:]
    across = Scale(min(-4.0, z.min() - 2.5), z.max() + 2.5, 60, WIDTH - 10)
    zero, body = across(0.0), []
    for i, (name, value) in enumerate(zip(names, z, strict=True)):
        y0, colour = 30 + 32 * i, "s0" if abs(value) > 1.96 else "s3"
        body.append(text(0, y0 + 4, name, "name"))
        body.append(line([(across(value - 1.96), y0), (across(value + 1.96), y0)], colour))
        body.append(line([(across(value), y0)], colour, [f"{name}: {value:.1f}"], 5))
    body.append(path(f"M{zero:.1f} 10V190", "mark"))
    body.append(text(zero + 6, 188, "0: no relation", "mark"))
    return str(svg(body, "coefficients with 95 % intervals", x_label="coefficient / standard error, 95 % intervals"))


def survival() -> str:
    """Draw the survival curves of two arms, by counts at public times."""
    rng = np.random.default_rng(0)
    n, weeks = 600, range(7, 904, 7)
    X = np.column_stack([rng.integers(0, 2, n), rng.normal(65, 9, n)])
    days = np.ceil(500 * rng.exponential(size=n) * np.exp(0.6 * X[:, 0] - 0.03 * (X[:, 1] - 65)))
    seen = rng.integers(200, 900, n)
    y = np.column_stack([np.minimum(days, seen), days <= seen])
    curve = fs.FedKaplanMeier(times=weeks, by=0).fit(fs.federate(X, y, sites=np.arange(n) % 4))
    shares = np.asarray(curve.predict(list(weeks)), dtype=float).reshape(2, -1)
    lines = [
        Line(name, list(weeks), list(share), colour) for name, share, colour in zip("01", shares, (6, 0), strict=True)
    ]
    chart = str(
        line_chart(lines, label="survival of two arms", x_label="days: 600 patients of four hospitals", zero=True)
    )
    return chart.replace("</svg>", text(200, 42, "arm 1", "name") + text(200, 148, "arm 0", "name") + "</svg>")


def main(out: str | None) -> None:
    """Write the pictures, or the one of all six."""
    with tempfile.TemporaryDirectory() as temporary:
        cards = []
        for key, (make, _, _) in CARDS.items():
            (folder := Path(temporary, key)).mkdir()
            cards.append(make(folder, 0))
    pictures = {
        "six-runs.svg": all_six(cards),
        "card-few-shot.svg": alone("Error of a new task", few_shot()),
        "card-describe.svg": alone("Histogram of a column that four sites hold", histogram()),
        "card-regression.svg": alone("Coefficients with intervals", intervals()),
        "card-survival.svg": alone("Survival of two arms", survival()),
    }
    pictures |= {f"card-{card.key}.svg": alone(card.sentence, str(card.picture)) for card in cards}
    if out:
        Path(out).write_text(pictures["six-runs.svg"], encoding="utf-8")
        return
    for name, picture in pictures.items():
        (HERE / "_static" / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the pictures of the README and the guides.")
    parser.add_argument("--out", help="write only the picture of all six runs, to this file")
    main(parser.parse_args().out)
