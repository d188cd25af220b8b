"""Run the battery of comparisons with peers, or benchmarks by name; see ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks.battery import check, page, pictures, running, scaling
from benchmarks.battery.results import Results


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    known = running.declared()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if options.page:
        show(Results.load())
    elif options.update:
        update(options.names)
    elif options.check:
        return check_again([name for name in options.names or running.battery() if "compare" in known[name][0]])
    elif options.names:
        by_name(options.names)
    else:
        found = running.run(running.battery())
        found.scaling = scaling.measured()
        found.save()
        show(found)
    return 0


def show(found: Results) -> None:
    """Write the page and its pictures."""
    page.PAGE.write_text(page.written(found), encoding="utf-8")
    pictures.draw(found.scaling, page.PAGE.parent / "_static")
    print(f"\nwritten: {page.PAGE.name}, and the pictures of it")


def update(names: list[str]) -> None:
    """Measure some comparisons, put them in place of the stored ones, and write the page."""
    stored, now = Results.load(), running.run(names)
    stored.machine, stored.versions = now.machine, now.versions
    stored.ratios |= now.ratios
    stored.left_out = [one for one in stored.left_out if one.module not in names] + now.left_out
    stored.save()
    show(stored)


def check_again(names: list[str]) -> int:
    """Compare with what is stored. What is doubtful is measured once more, with twice the turns, and those count."""
    stored = Results.load()
    now = running.run(names)
    suspects = {name: rows for name in names if (rows := check.doubtful(stored, now, name))}
    if suspects:
        print(f"\n== once more, with more turns, since it seems worse or differs by turns: {', '.join(suspects)}")
        again = running.run(list(suspects), times=2)
        for name, rows in suspects.items():
            kept = [ratio for ratio in now.ratios[name] if ratio.name not in rows]
            now.ratios[name] = kept + [ratio for ratio in again.ratios[name] if ratio.name in rows]
    return check.report(stored, now)


def by_name(names: list[str]) -> None:
    """Print what the named benchmarks find, and write nothing."""
    known = running.declared()
    for name in names:
        if "compare" in known[name][0]:
            running.run([name])
        if "main" in known[name][0]:
            print(f"\n== {name}")
            importlib.import_module(f"benchmarks.{name}").main()


def parser() -> argparse.ArgumentParser:
    """Return the command line, whose help lists the benchmarks as they declare themselves."""
    lines = {"battery": "in the battery:", "long": "longer, by name only:"}
    for name, (functions, words) in running.declared().items():
        more = " (by name it prints more)" * (functions == {"compare", "main"})
        lines["battery" if "compare" in functions else "long"] += f"\n  {name:20} {words}{more}"
    found = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Without a name: the battery of comparisons with peers, and how times and bytes grow; leaves "
        "benchmarks/results.json, docs/benchmarks.md and its pictures. With names: prints what they find.",
        epilog="\n\n".join(lines.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("names", nargs="*", metavar="NAME")
    how = found.add_mutually_exclusive_group()
    how.add_argument(
        "--check",
        action="store_true",
        help="compare with the stored ratios; 1 if one became worse or could not be made",
    )
    how.add_argument(
        "--update", action="store_true", help="measure the named ones, store them and write the page again"
    )
    how.add_argument(
        "--page", action="store_true", help="write the page and its pictures again, from the stored results"
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
