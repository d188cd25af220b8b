"""Run with ``python -m tools.mutation``: the score of the tests, and the list of changes that they did not notice."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutation.covering import Covering, covering
from tools.mutation.mutants import Mutant, mutants_of
from tools.mutation.rooms import IGNORED, ROOMS, UNCHANGED, room_tests
from tools.mutation.sampling import sample
from tools.mutation.trial import forked, noticed

#: Imported once, before anything forks. Never the project itself: each child imports it with its own change.
LIBRARIES = ("numpy", "scipy.linalg", "scipy.optimize", "scipy.special", "sklearn.base", "pandas", "hypothesis", "rich")
QUICK = 20  # the first tests that a mutant meets
SECONDS = 8.0  # of tests, as measured, for one that these let pass


def judged(mutant: Mutant, known: Covering) -> str:
    """Return "killed", "hangs", "survived", or "no test" where none runs the line."""
    tests = known.tests(mutant.path, mutant.start[0])
    if not tests:
        return "no test"
    source, spent, affordable = mutant.source(), 0.0, []
    for test in tests:
        spent += known.seconds.get(test, 0.0)
        if spent > SECONDS and affordable:
            break
        affordable.append(test)
    verdict = "survived"
    for few in (affordable[:QUICK], affordable[QUICK:]):
        if few and verdict == "survived":
            verdict = noticed(mutant.path, source, few, sum(known.seconds.get(test, 0.0) for test in few))
    return verdict


def main() -> None:
    """Parse the arguments, run, and write what survived."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("--sample", default="400", help="how many places are changed, or 'all' (default: 400)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--packages", nargs="+", default=list(ROOMS), choices=ROOMS, help="of the same sample")
    parser.add_argument("--out", type=Path, default=Path("build/mutation"), help="folder of the results")
    parser.add_argument("--again", action="store_true", help="go on with an earlier run of the same code and tests")
    parser.add_argument("--survivors", action="store_true", help="try only the survivors of an earlier run again")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy, as the tests want it
    for library in LIBRARIES:
        importlib.import_module(library)

    files = [
        path
        for package in ROOMS
        for path in sorted(Path("src/fedspan", package).rglob("*.py"))
        if not str(path).startswith(UNCHANGED)
    ]
    everything = [mutant for path in files for mutant in mutants_of(path)]
    drawn = sample(everything, None if given.sample == "all" else int(given.sample), given.seed)
    chosen = [mutant for mutant in drawn if mutant.package in given.packages]
    places = len({mutant.place for mutant in everything})
    print(f"{len(everything)} mutants at {places} places; {len(chosen)} are tried, seed {given.seed}", flush=True)

    map_file = given.out / "covering.json"
    if not (given.again and map_file.exists()):
        tests = list(dict.fromkeys(test for package in given.packages for test in room_tests(package)))
        tests += ["-m", "not slow", *(f"--ignore={path}" for path in IGNORED)]
        map_file.write_text(json.dumps(forked(lambda: covering(tests, files), seconds=3600.0)))
    known = Covering(**json.loads(map_file.read_text()))
    if known.failed or not known.seconds:
        raise SystemExit(f"tests fail without any change, repair them first: {', '.join(known.failed) or 'none ran'}")
    print(f"{len(known.seconds)} tests, {sum(known.seconds.values()):.0f} s under the tracer", flush=True)

    verdict_file = given.out / "verdicts.json"
    kept = (given.again or given.survivors) and verdict_file.exists()
    verdicts: dict[str, str] = json.loads(verdict_file.read_text()) if kept else {}
    if given.survivors:  # what a test has noticed stays noticed when tests are added
        verdicts = {mutant: verdict for mutant, verdict in verdicts.items() if verdict in ("killed", "hangs")}
    began, left = time.monotonic(), [mutant for mutant in chosen if str(mutant) not in verdicts]
    with ThreadPoolExecutor(given.jobs) as pool:
        for done, (mutant, verdict) in enumerate(zip(left, pool.map(lambda m: judged(m, known), left), strict=True), 1):
            verdicts[str(mutant)] = verdict
            verdict_file.write_text(json.dumps(verdicts, indent=1))
            if done % 10 == 0:
                print(f"{done} of {len(left)}, {time.monotonic() - began:.0f} s", flush=True)
    write(given.out, {mutant: verdicts[str(mutant)] for mutant in chosen})
    print((given.out / "score.txt").read_text(), end="")
    print(f"the survivors are in {given.out / 'survivors.txt'}")


def write(folder: Path, verdicts: dict[Mutant, str]) -> None:
    """Write the score by package, and every survivor with its change."""
    lines = []
    for package in (*ROOMS, "all"):
        counts = Counter(v for mutant, v in verdicts.items() if package in ("all", mutant.package))
        if total := counts.total():
            killed = counts["killed"] + counts["hangs"]
            rest = f"{counts['survived']} survived, {counts['no test']} are run by no test"
            share = (
                f"{killed} of {total} noticed ({100 * killed / total:.1f} %), {counts['hangs']} by the time they take"
            )
            lines.append(f"{package:16} {share}; {rest}")
    (folder / "score.txt").write_text("\n".join(lines) + "\n")
    left = [m for m, verdict in verdicts.items() if verdict in ("survived", "no test")]
    left.sort(key=lambda mutant: mutant.place)
    (folder / "survivors.txt").write_text("\n".join(f"{m}: {verdicts[m]}\n{m.diff()}\n" for m in left))


if __name__ == "__main__":
    main()
