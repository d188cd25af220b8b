"""Card: gateways find attacks, and one alarm is explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedspan.anomaly.pca_detector import FedPCADetector
from fedspan.arrays import Array
from fedspan.cli.demo.demo_data import COUNTERS, named, simulated_traffic, with_attacks
from fedspan.report import Judged, write_report
from fedspan.report.cards_page import Card
from fedspan.report.charts.svg import WIDTH, path, pixels, rect, svg, text
from fedspan.report.markup import Html, percent

GATEWAYS, ROWS, QUANTILE = 12, 3000, 0.95
LINES = """
import numpy as np, fedspan as fs
from fedspan.cli.demo import demo_data

normal = demo_data.simulated_traffic(3000, seed=0)  # ten counters
attacks = demo_data.with_attacks(normal[:600], seed=3)
detector = fs.FedPCADetector(4, distance="combined", quantile=0.95)
detector.fit(normal, sites=np.arange(3000) % 12)  # twelve gateways
alarms = detector.predict(attacks) == -1
print(f"alarms: {np.mean(alarms):.0%} of the attacks")
print(detector.explain(attacks[0]).round(2))  # the counters' shares
"""
_TOP, _FLOOR, _BINS = 26, 104, 44
_BARS = 4


def alarm_card(folder: Path, seed: int) -> Card:
    """Fit the detector, evaluate it on unseen rows, and write its report."""
    normal, new = (simulated_traffic(n, 10 * seed + k) for k, n in enumerate((ROWS, 1000)))
    attacks = with_attacks(simulated_traffic(600, 10 * seed + 2), 10 * seed + 3)
    columns = list(COUNTERS)
    detector = FedPCADetector(4, distance="combined", quantile=QUANTILE, random_state=seed)
    detector.fit(named(normal, columns), sites=np.array([f"gateway-{i % GATEWAYS:02d}" for i in range(ROWS)]))
    judged = Judged(named(np.vstack([new, attacks]), columns), np.arange(len(new) + len(attacks)) >= len(new))
    settings = {"data": "simulated traffic: the logarithms of ten counters", "seed": str(seed)}
    title = "Twelve gateways, one detector"
    write_report(
        folder / "report.html", title=title, records=detector.run_, models=[detector], judged=judged, settings=settings
    )
    scores = [-detector.score_samples(named(rows, columns)) for rows in (new, attacks)]
    false, found = (float(np.mean(score > -detector.offset_)) for score in scores)
    alarm = int(np.argsort(scores[1])[len(attacks) * 2 // 3])  # a typical one
    shares = np.asarray(detector.explain(named(attacks[alarm : alarm + 1], columns))).reshape(-1)
    return Card(
        "alarm",
        "Anomalies",
        "Twelve gateways learn normal traffic, and recognise attacks that none of them has seen.",
        _picture(scores, -float(detector.offset_), columns, shares),
        f"{found:.0%}",
        f"of the attacks raise an alarm, and {false:.1%} of normal traffic",
        "alarm/report.html",
        LINES,
        "The traffic is simulated. Figures on real traffic are in the README.",
    )


def _picture(scores: list[Array], threshold: float, columns: list[str], shares: Array) -> Html:
    """Draw the scores of normal rows and attacks with the threshold, and the shares of one alarm."""
    logs = [np.log10(np.maximum(score, 1e-3)) for score in scores]
    low, high = (float(np.quantile(np.concatenate(logs), q)) for q in (0.002, 0.999))
    edges = np.linspace(low, high, _BINS + 1)
    heights = [np.histogram(np.clip(log, low, high), edges, density=True)[0] for log in logs]
    tallest, wide = max(float(height.max()) for height in heights), WIDTH / _BINS
    body = []
    for height, kind, name in zip(heights, ("s0", "s6"), ("normal", "attacks"), strict=True):
        for i, part in enumerate(height):
            if part:
                tall = part / tallest * (_FLOOR - _TOP)
                body.append(rect(i * wide, _FLOOR - tall, wide - 0.6, tall, kind, name, 0.75))
    x = (np.log10(threshold) - low) / (high - low) * WIDTH
    body += [path(f"M{pixels(x)} {_TOP - 8}V{_FLOOR}", "mark"), path(f"M0 {_FLOOR}H{WIDTH}", "grid")]
    body += [text(x - 5, 13, "normal", "end strong"), text(x + 5, 13, "alarm: higher score", "alarm")]
    body.append(text(0, _FLOOR + 22, "Why one of them raised an alarm", "strong"))
    most = float(shares.max())
    for i, j in enumerate(np.argsort(-shares)[:_BARS]):
        y, share = _FLOOR + 30 + 15 * i, float(shares[j])
        body.append(text(112, y + 10, columns[j], "end"))
        body.append(rect(120, y + 1, 190 * share / most, 10, "s6", f"{columns[j]}: {percent(share)}"))
        body.append(text(126 + 190 * share / most, y + 10, f"{share:.0%}"))
    return svg(body, "scores of normal traffic and attacks, and the shares of one alarm", height=194)
