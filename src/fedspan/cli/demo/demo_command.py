"""``fedspan demo``: eight short runs on this machine, and one page that shows them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedspan.checks import whole_number
from fedspan.cli.console import print_line
from fedspan.cli.demo.alarm_card import alarm_card
from fedspan.cli.demo.attack_card import attack_card
from fedspan.cli.demo.group_card import group_card
from fedspan.cli.demo.map_card import map_card
from fedspan.cli.demo.pooled_tables import cancer_table, digits_table
from fedspan.cli.demo.rebuild_card import rebuild_card
from fedspan.cli.demo.resume_card import resume_card
from fedspan.cli.demo.time_left import TimeLeft
from fedspan.cli.study.run_folder import make_folder
from fedspan.durable.whole_file import write_whole
from fedspan.report.cards_page import Card, write_cards

Make = Callable[[Path, int], Card]

#: The cards by folder: what makes each, its name in the progress, and its seconds on a slow machine.
CARDS: dict[str, tuple[Make, str, float]] = {
    "map": (map_card, "ten hospitals draw one map", 9.0),
    "alarm": (alarm_card, "gateways find attacks", 1.0),
    "attack": (attack_card, "a third of the sites is malicious", 1.0),
    "groups": (group_card, "hidden groups of clinics", 2.0),
    "resume": (resume_card, "a run is killed and resumed", 5.0),
    "rebuild": (rebuild_card, "what the coordinator can rebuild", 1.0),
}
#: Tables whose result is that of the pooled rows.
TABLES = {"digits": (digits_table, "PCA of digits", 1.0), "breast-cancer": (cancer_table, "PCA of breast cancer", 1.0)}


def demo(out: Path, seed: int) -> int:
    """Run all cards and both tables, and write the page that links to their reports."""
    whole_number("seed", seed, 0)
    make_folder(out)
    began = time.perf_counter()
    parts = [*CARDS.values(), *TABLES.values()]
    progress = TimeLeft({name: cost for _, name, cost in parts})
    cards = []
    for key, (make, name, _) in CARDS.items():
        with progress.part(name):
            folder = _folder(out, key)
            card = make(folder, seed)
            write_whole(folder / "ten_lines.py", card.lines.lstrip().encode())
        print_line(f"{name}: {card.number} {card.meaning}")
        cards.append(card)
    more = []
    for key, (run, name, _) in TABLES.items():
        with progress.part(name):
            more.append(run(_folder(out, key), seed))
    seconds = time.perf_counter() - began
    lead = (
        "Hospitals, gateways and phones learn from each other, and their rows stay where they are. "
        f"fedspan did these runs on this machine, in {seconds:.0f} seconds."
    )
    page = write_cards(out / "report.html", title="Learn together, keep the rows", lead=lead, cards=cards, more=more)
    print_line(f"page: {page}")
    return 0


def _folder(out: Path, key: str) -> Path:
    make_folder(out / key)
    return out / key
