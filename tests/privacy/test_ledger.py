"""A site's ledger: a budget that holds, the same noise for the same query, and a file that survives."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading

import pytest

from fedspan.errors import BudgetError, InputError, LedgerError
from fedspan.federation.site.noise_query import NoiseQuery
from fedspan.privacy import Ledger, SimulatedLedger, epsilon_of


def query(number=0):
    return NoiseQuery("run", "some.step", b"%032d" % number)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "site.ledger"


def test_charges_add_up_to_the_budget_and_not_beyond(path):
    ledger = Ledger(path, epsilon=epsilon_of(2.0, 1e-5), delta=1e-5)
    for number in range(4):
        ledger.key(query(number), mu2=1.0)
    assert ledger.spent == pytest.approx(ledger.epsilon)
    with pytest.raises(BudgetError, match=r"refuses: its privacy budget is epsilon=.*spent.*would make it"):
        ledger.key(query(4), mu2=1e-3)
    assert len(ledger.charges) == 4  # a refusal costs nothing
    assert [charge.epsilon for charge in ledger.charges] == sorted(charge.epsilon for charge in ledger.charges)


def test_a_repeated_query_has_the_same_key_and_is_free(path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-5)
    key = ledger.key(query(), mu2=0.01)
    assert ledger.key(query(), mu2=0.01) == key
    assert Ledger(path).key(query(), mu2=0.01) == key
    assert len(Ledger(path).charges) == 1


def test_another_version_of_fedspan_gets_other_noise_and_is_charged(path, monkeypatch):
    """It may compute another answer, and the difference of two answers with one noise has none."""
    ledger = Ledger(path, epsilon=1.0, delta=1e-5)
    key = ledger.key(query(), mu2=0.01)
    monkeypatch.setattr("fedspan.privacy.ledger.version_of", lambda package: "99.0")
    assert ledger.key(query(), mu2=0.01) != key
    assert len(ledger.charges) == 2


def test_a_key_can_be_computed_before_it_is_charged(path):
    ledger = Ledger(path, epsilon=epsilon_of(1.0, 1e-5), delta=1e-5)
    key = ledger.noise_key(query(), mu2=1.0)
    assert not ledger.charges
    assert ledger.key(query(), mu2=1.0) == key
    assert ledger.noise_key(query(), mu2=1.0) == key  # charged before, so that it needs no budget
    with pytest.raises(BudgetError):
        ledger.noise_key(query(1), mu2=0.1)
    assert [(charge.run, charge.what) for charge in ledger.charges] == [("run", "some.step")]


def test_a_ledger_that_is_opened_for_reading_is_not_written_to(path, tmp_path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-5)
    ledger.key(query(), mu2=0.01)
    with path.open("ab") as file:
        file.write(b'{"kind": "cha')  # cut short by a crash
    path.chmod(0o400)
    before = path.read_bytes()
    seen = Ledger(path, read_only=True)
    assert (seen.epsilon, seen.spent) == (1.0, pytest.approx(epsilon_of(0.1, 1e-5)))
    with pytest.raises(LedgerError, match="was opened for reading only"):
        seen.key(query(1), mu2=0.01)
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="leave epsilon out"):
        Ledger(path, 1.0, 1e-5, read_only=True)
    with pytest.raises(LedgerError, match="can't be opened"):
        Ledger(tmp_path / "gone", read_only=True)
    (tmp_path / "empty").touch(0o600)
    with pytest.raises(LedgerError, match="has no budget"):
        Ledger(tmp_path / "empty", read_only=True)
    assert (tmp_path / "empty").read_bytes() == b""


def test_another_query_or_less_noise_has_another_key(path):
    ledger = Ledger(path, epsilon=5.0, delta=1e-5)
    keys = {ledger.key(query(), mu2=0.01), ledger.key(query(1), mu2=0.01), ledger.key(query(), mu2=0.02)}
    keys.add(ledger.key(query(), rho=0.01))
    assert len(keys) == 4
    assert len(ledger.charges) == 4


def test_two_sites_have_two_secrets(tmp_path):
    a, b = (Ledger(tmp_path / name, epsilon=1.0, delta=1e-5) for name in "ab")
    assert a.key(query(), mu2=0.01) != b.key(query(), mu2=0.01)


def test_the_file_is_the_owners_alone(path):
    Ledger(path, epsilon=1.0, delta=1e-5)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(LedgerError, match="chmod 600"):
        Ledger(path)


@pytest.mark.slow
def test_a_new_process_continues(path):
    first = Ledger(path, epsilon=1.0, delta=1e-5)
    code = (
        "import sys; from fedspan.privacy import Ledger; from fedspan.federation.site.noise_query import NoiseQuery\n"
        "l = Ledger(sys.argv[1]); q = [NoiseQuery('run', 'some.step', b'%032d' % i) for i in (0, 1)]\n"
        "print(l.key(q[0], mu2=0.01).hex()); l.key(q[1], mu2=0.02)"
    )
    key = first.key(query(), mu2=0.01)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == key.hex()
    # This process sees the charges of the other one before it charges.
    with pytest.raises(BudgetError):
        first.key(query(2), mu2=first.cost.mu2 + 10.0)
    assert first.cost.mu2 == pytest.approx(0.03)


def test_ledgers_that_charge_at_once_stay_within_the_budget(path):
    budget = epsilon_of(math.sqrt(20.0), 1e-5)
    ledgers = [Ledger(path, epsilon=budget, delta=1e-5) for _ in range(3)]
    refused = []

    def spend(ledger, first):
        for number in range(first, first + 10):
            try:
                ledger.key(query(number), mu2=1.0)
            except BudgetError:
                refused.append(number)

    threads = [threading.Thread(target=spend, args=(ledger, 10 * k)) for k, ledger in enumerate(ledgers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 10
    assert len(Ledger(path).charges) == 20


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_that_a_crash_cut_short_is_dropped(path, cut):
    ledger = Ledger(path, epsilon=1.0, delta=1e-5)
    key = ledger.key(query(), mu2=0.01)
    ledger.key(query(1), mu2=0.02)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - cut)
    again = Ledger(path)
    assert [charge.cost.mu2 for charge in again.charges] == [0.01]
    assert again.key(query(), mu2=0.01) == key
    again.key(query(2), mu2=0.03)
    assert [charge.cost.mu2 for charge in Ledger(path).charges] == [0.01, 0.03]


def _changed(lines):
    lines[2] = lines[2].replace(b"0.25", b"0.05")


def _removed(lines):
    del lines[2]


def _swapped(lines):
    lines[2], lines[3] = lines[3], lines[2]


def _more_budget(lines):
    lines[1] = lines[1].replace(b'"epsilon": 9.0', b'"epsilon": 99.0')


def _garbage(lines):
    lines[2] = b"\x00\xff not a line"


@pytest.mark.parametrize("tamper", [_changed, _removed, _swapped, _more_budget, _garbage])
def test_an_altered_ledger_is_refused(path, tamper):
    ledger = Ledger(path, epsilon=9.0, delta=1e-5)
    for number in range(3):
        ledger.key(query(number), mu2=0.25)
    lines = path.read_bytes().splitlines()
    tamper(lines)
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(LedgerError, match="damaged or was altered at entry"):
        Ledger(path)


def test_lines_removed_from_the_end_while_a_process_runs_are_noticed(path):
    ledger = Ledger(path, epsilon=9.0, delta=1e-5)
    ledger.key(query(), mu2=0.25)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(LedgerError, match="shorter"):
        ledger.key(query(1), mu2=0.25)


def test_no_key_is_given_unless_the_charge_is_on_disk(path, monkeypatch):
    ledger = Ledger(path, epsilon=1.0, delta=1e-5)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LedgerError, match="can't be written: No space left"):
        ledger.key(query(), mu2=0.01)
    monkeypatch.undo()
    assert not Ledger(path).charges


def test_the_owner_may_change_the_budget_and_the_file_keeps_both(path):
    Ledger(path, epsilon=1.0, delta=1e-5)
    assert Ledger(path, epsilon=2.0, delta=1e-6).epsilon == 2.0
    assert Ledger(path).delta == 1e-6
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["epsilon"] for entry in entries if entry["kind"] == "budget"] == [1.0, 2.0]


def test_what_another_process_wrote_is_known_at_once(path):
    here, there = Ledger(path, epsilon=5.0, delta=1e-5), Ledger(path)
    there.key(query(), mu2=0.5)
    assert here.cost.mu2 == 0.5
    assert here.spent == there.spent > 0
    assert len(here.charges) == 1
    assert here.lasts(mu2=0.1)
    Ledger(path, epsilon=1.0, delta=1e-6)
    assert not here.lasts(mu2=0.1)
    assert (here.epsilon, here.delta) == (1.0, 1e-6)
    assert repr(here) == repr(there) == repr(Ledger(path))
    path.unlink()
    assert "epsilon=1 " in repr(here)
    with pytest.raises(LedgerError, match="can't be opened"):
        here.lasts(mu2=0.1)
    assert not path.exists()  # a lost ledger is not replaced by an empty one


def test_noise_without_a_guarantee_is_refused(path):
    with pytest.raises(BudgetError, match="no guarantee"):
        Ledger(path, epsilon=1e6, delta=0.1).key(query(), mu2=math.inf)
    SimulatedLedger("a", 0).key(query(), mu2=math.inf)


def test_bad_input_gets_a_sentence(path, tmp_path):
    with pytest.raises(LedgerError, match="needs epsilon and delta"):
        Ledger(path)
    with pytest.raises(InputError, match="go together"):
        Ledger(path, epsilon=1.0)
    with pytest.raises(InputError, match="epsilon=0"):
        Ledger(path, epsilon=0, delta=1e-5)
    with pytest.raises(LedgerError, match="can't be opened"):
        Ledger(tmp_path / "nowhere" / "x", epsilon=1.0, delta=1e-5)
    with pytest.raises(InputError, match="above 0"):
        Ledger(path, epsilon=1.0, delta=1e-5).key(query(), mu2=0.0)


def test_simulated_ledgers_follow_from_the_seed():
    keys = {(n, s): SimulatedLedger(n, s).key(query(), mu2=1.0) for n in "ab" for s in (0, 1)}
    assert len(set(keys.values())) == 4
    assert SimulatedLedger("a", 0).key(query(), mu2=1.0) == keys["a", 0]


def test_a_running_process_notices_that_its_ledger_was_replaced_by_another_branch(tmp_path):
    path = tmp_path / "l"
    first = Ledger(path, epsilon=5.0, delta=1e-5)
    base = path.read_bytes()
    first.key(NoiseQuery("run", "a", b"1" * 16), mu2=0.1)
    other = tmp_path / "other"
    other.write_bytes(base)
    other.chmod(0o600)
    Ledger(other).key(NoiseQuery("run", "b", b"2" * 16), mu2=0.1)
    assert len(other.read_bytes()) == len(path.read_bytes())
    path.write_bytes(other.read_bytes())
    with pytest.raises(LedgerError, match="it was replaced or altered"):
        first.key(NoiseQuery("run", "a", b"3" * 16), mu2=0.1)
