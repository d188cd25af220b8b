"""`fed.sum` and `fed.mean` under a secure sum: the same as the plain ones, to the resolution."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.errors import InputError, MessageError, PolicyError, QuorumError
from fedspan.secure_sum import sum_layout as layouts
from fedspan.secure_sum.sum_coordinator import SecureSummation
from fedspan.secure_sum.sum_fixed_point import LARGEST_WHOLE
from fedspan.sums.columns import local_columns

from .players import sites_of

SECURE = fs.Policy(secure_sum=True)


def federation(n=5, **options):
    return fs.LocalFederation(sites_of(n), **{"policy": SECURE, **options})


@fs.step
def all_kinds(site, factor):
    X = site.X
    return {
        "rows": len(site),
        "mean": float(X.mean()),
        "wave": complex(X[0, 0], X[0, 1]),
        "yes": bool(X[0, 0] > 0),
        "gram": factor * X.T @ X,
        "single": X.sum(axis=0).astype(np.float32),
        "waves": X[:2] * 1j,
        "signs": X[0] > 0,
        "small": np.arange(3, dtype=np.uint8) + 250,
        "whole": np.array([[-(2**40)], [len(site)]]),
        "none": np.zeros((0, 2)),
        "point": np.array(2.5),
    }


@fs.step
def mixed_kinds(site):
    """Some sites count, others measure."""
    count = int(site.name[1:])
    return {"x": np.arange(2) if count % 2 else np.arange(2) / 4, "y": count if count % 2 else count / 2}


@fs.step
def drawn(site):
    site.state["calls"] = site.state.get("calls", 0) + 1
    return {"x": site.rng.normal(size=2), "calls": site.state["calls"]}


@fs.step
def given_values(site, values):
    return {"x": values[int(site.name[1:])]}


@fs.step
def huge(site, value):
    return {"x": np.array([1.0, value if site.name == "s01" else 0.0])}


@fs.step
def huge_whole(site, value):
    return {"n": value if site.name == "s01" else 0}


@fs.step
def odd_shape(site):
    return {"x": np.zeros(3 if site.name == "s01" else 2)}


@fs.step
def text(site):
    return {"x": "text"}


@fs.step
def nothing(site):
    return {}


@fs.step
def fails(site):
    if site.name == "s01":
        raise ValueError("this site cannot")
    return {"n": 1}


def assert_like(found, expected, rtol=1e-14):
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert type(found[key]) is type(value), key
        if isinstance(value, np.ndarray):
            assert found[key].dtype == value.dtype
            assert found[key].shape == value.shape
        np.testing.assert_allclose(found[key], value, rtol=rtol, atol=1e-26)


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("how", ["sum", "mean"])
def test_every_kind_of_reply_adds_up_as_in_the_open(how, wire):
    plain = getattr(fs.LocalFederation(sites_of(5)), how)(all_kinds, factor=3.0)
    found = getattr(federation(wire=wire), how)(all_kinds, factor=3.0)
    assert_like(found, plain)
    assert (found.sites, found.failed) == (plain.sites, {})
    for key in ("rows", "yes", "signs", "small", "whole"):
        np.testing.assert_array_equal(found[key], plain[key])


def test_kinds_that_differ_from_site_to_site():
    assert_like(federation().sum(mixed_kinds), fs.LocalFederation(sites_of(5)).sum(mixed_kinds))


@pytest.mark.parametrize("n", [2, 3, 12])
def test_any_number_of_sites(n):
    assert_like(federation(n).sum(all_kinds, factor=1.0), fs.LocalFederation(sites_of(n)).sum(all_kinds, factor=1.0))


def test_the_same_bits_whatever_the_threads_and_wire():
    values = np.random.default_rng(0).normal(size=(6, 50)) * 10.0 ** np.arange(-25, 25)
    expected = federation(6).sum(given_values, values=values)["x"].tobytes()
    turned = fs.LocalFederation(sites_of(6)[::-1], policy=SECURE, n_jobs=3, wire=True)
    assert turned.sum(given_values, values=values)["x"].tobytes() == expected
    shuffled = federation(6).sum(given_values, values=values[[3, 1, 5, 0, 2, 4]])["x"]
    np.testing.assert_allclose(shuffled, np.frombuffer(expected), rtol=1e-14)


@settings(max_examples=12)
@given(st.lists(st.floats(-1e20, 1e20), min_size=4, max_size=4))
def test_exact_to_the_resolution(values):
    found = federation(4).sum(given_values, values=np.array(values)[:, None])["x"][0]
    exact = sum(map(Fraction, values))
    filled = 4 * max(map(abs, values)) * 2.0**-55  # the bits below those that count
    assert abs(Fraction(float(found)) - exact) <= 4 * 2.0**-97 + filled + 2 * np.spacing(abs(float(exact)))


@pytest.mark.parametrize("apart", [55, 56, 60, 80])
def test_parts_that_are_far_apart_are_not_read_from_one_total(apart, monkeypatch):
    """A double has 53 bits: below the last one of the large part the total would hold the parts of the others."""
    seen, whole = [], layouts.unpacked

    def noted(*args):
        seen.append(args[1].copy())
        return whole(*args)

    monkeypatch.setattr("fedspan.secure_sum.sum_layout.unpacked", noted)
    rng = np.random.default_rng(apart)
    values = rng.uniform(1.0, 2.0, size=(5, 1000))
    values[1:] = np.ldexp(values[1:], -apart)
    found = federation(5).sum(given_values, values=values)["x"]
    np.testing.assert_allclose(found, values.sum(axis=0), rtol=1e-15)
    below = np.array([_below_the_double(total) for total in whole_numbers(seen[0])])
    small = values[1:].sum(axis=0)
    separated = int(np.sum(np.abs(below - small) < 1e-3 * small))
    print(f"parts 2^{apart} apart: {separated} of 1000 totals separated to three digits")
    assert separated < 50  # by chance; all of them without the filling


def whole_numbers(words):
    return [sum(int(word) << (64 * k) for k, word in enumerate(column)) for column in words.T]


def _below_the_double(total):
    """What is left of a total, in units of 2^-96, after the 53 bits of its large part."""
    last = total.bit_length() - 53
    return float(Fraction(total % (1 << last), 1 << 96))


def test_whole_numbers_sent_as_doubles_stay_exact():
    values = np.random.default_rng(0).integers(0, 10**6, size=(7, 500)).astype(float)
    np.testing.assert_array_equal(federation(7).sum(given_values, values=values)["x"], values.sum(axis=0))


def test_state_and_draws_are_those_of_the_open_sum():
    """What sites keep and draw goes by the call's number, however many messages it takes."""

    def protocol(fed):
        totals = [fed.sum(drawn) for _ in range(2)] + [fed.subset(["s00", "s01", "s02"]).sum(drawn), fed.sum(drawn)]
        return [(total["x"], total["calls"]) for total in totals]

    for (x, calls), (expected, count) in zip(
        federation().run(protocol), fs.LocalFederation(sites_of(5)).run(protocol), strict=True
    ):
        np.testing.assert_allclose(x, expected, rtol=1e-14)
        assert calls == count


def test_a_transform_is_applied():
    @fs.transform
    def doubled(X):
        return 2 * X

    plain = fs.LocalFederation(sites_of(5)).apply(doubled).sum(all_kinds, factor=1.0)
    assert_like(federation().apply(doubled).sum(all_kinds, factor=1.0), plain)


@pytest.mark.parametrize(
    ("step", "value", "why"),
    [
        (huge, 1e26, "'x' holds a number beyond 1.93428e+25"),
        (huge, -1e26, "'x' holds a number beyond 1.93428e+25"),
        (huge, np.nan, "'x' holds NaN or infinity"),
        (huge, np.inf, "'x' holds NaN or infinity"),
        (huge_whole, LARGEST_WHOLE + 1, "'n' holds a number beyond"),
        (huge_whole, -(2**62), "'n' holds a number beyond"),
    ],
)
def test_values_beyond_the_range_are_told_to_all_and_of_nobody(step, value, why, caplog):
    """The sum is refused, rather than a smaller one: which site it is only its own log says."""
    fed = federation()
    with pytest.raises(
        InputError, match=r"is refused: at one or more of the 5 sites the reply holds a number"
    ) as reported:
        fed.sum(step, value=value)
    assert "s01" not in str(reported.value)
    assert fed.record.calls[-1].failed == {}
    assert "site 's01' has no part to give" in caplog.text
    assert why in caplog.text


def test_values_up_to_the_range_are_summed():
    fed = federation()
    assert fed.sum(huge_whole, value=LARGEST_WHOLE)["n"] == LARGEST_WHOLE
    assert fed.sum(huge, value=1.9e25)["x"][1] == 1.9e25


def test_a_declared_range_and_resolution():
    fed = federation(policy=fs.Policy(secure_sum=fs.SecureSum(largest=10.0, resolution=0.25)))
    values = np.array([[0.3], [0.3], [-0.1], [9.9], [0.0]])
    assert fed.sum(given_values, values=values)["x"][0] == 0.25 + 0.25 - 0.0 + 10.0
    with pytest.raises(InputError, match=r"beyond the range of secure sums \(10;"):
        fed.sum(huge, value=11.0)


def test_another_shape_is_a_failed_site():
    total = federation().sum(odd_shape)
    assert total.failed == {"s01": "misshapen: 'x' has the shape (3), most sites sent (2)"}
    assert total["x"].shape == (2,)


def test_a_step_that_fails_costs_its_site_alone():
    total = federation().sum(fails)
    assert total["n"] == 4
    assert "this site cannot" in total.failed["s01"]


def test_text_cannot_be_added_up():
    for fed in (federation(), fs.LocalFederation(sites_of(5))):
        with pytest.raises(InputError, match="cannot be added up: 'x' is not a number or an array of numbers"):
            fed.sum(text)


def test_an_empty_reply():
    assert federation().sum(nothing) == {}


def test_one_site_is_refused_before_it_is_contacted():
    fed = federation()
    with pytest.raises(PolicyError, match="over 1 site cannot be a secure one"):
        fed.subset(["s00"]).sum(fails)
    assert fed.record.calls == []
    with pytest.raises(PolicyError, match="a sum over 1 site cannot be a secure one"):
        federation(1)


def test_samples_are_large_enough():
    assert len(federation().sample(0.1).sites) == 2
    assert len(federation(policy=fs.Policy(secure_sum=fs.SecureSum(least=4))).sample(0.1).sites) == 4
    assert len(fs.LocalFederation(sites_of(5)).sample(0.1).sites) == 1


def test_fewer_sites_than_declared_are_refused_before_they_are_contacted():
    fed = federation(policy=fs.Policy(secure_sum=fs.SecureSum(least=5)))
    assert fed.sum(nothing) == {}
    with pytest.raises(PolicyError, match="over 4 sites cannot be a secure one: that takes from 5 to 1024 sites"):
        fed.subset(fed.sites[:4]).sum(nothing)
    assert [host.vault.least for host in fed._root.engine._hosts.values()] == [5] * 5
    with pytest.raises(QuorumError, match="and the secure sum needs 5"):
        fed.sum(fails)


def test_single_replies_are_refused_before_any_site_is_contacted():
    fed = federation()
    with pytest.raises(PolicyError, match=r"step '.*fails' needs the replies of single sites"):
        fed.ask(fails)
    with pytest.raises(PolicyError, match="an attack needs the replies of single sites"):
        fed.corrupt(fs.attacks.SignFlip(), ["s00"])
    assert fed.record.calls == []


def test_public_steps_may_be_asked():
    fed = federation()
    replies = fed.ask(local_columns, text=False)
    assert [reply["columns"] for reply in replies.values()] == [3] * 5


def test_too_many_failures_stop_the_call_with_a_sentence():
    @fs.step
    def most_fail(site):
        if site.name > "s02":
            raise ValueError("no")
        return {"n": 1}

    fed = federation()
    with pytest.raises(QuorumError, match=r"3 of 5 sites answered step .*, and the secure sum needs 4"):
        fed.sum(most_fail)
    assert fed.sum(fails)["n"] == 4  # the next call goes on


def test_the_record_counts_all_messages_as_one_call():
    fed = federation()
    fed.sum(all_kinds, factor=1.0)
    (call,) = fed.record.calls
    assert call.step.endswith("all_kinds")
    assert set(call.bytes_up) == set(call.bytes_down) == set(call.asked) == set(call.answered)
    assert min(call.bytes_up.values()) > 5 * 82  # sealed shares, at least
    assert min(call.bytes_down.values()) > 5 * (82 + 32)  # these and the keys


def test_bytes_of_a_large_sum():
    values = np.zeros((10, 100_000))

    @fs.step
    def large(site):
        return {"x": values[int(site.name[1:])]}

    plain, secure = fs.LocalFederation(sites_of(10)), federation(10)
    for fed in (plain, secure):
        fed.sum(large)
    both = [fed.record.bytes_up + fed.record.bytes_down for fed in (plain, secure)]
    assert both[1] <= 4 * both[0]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"threshold": 0.5}, "threshold=0.5 of a secure sum must be above 0.5"),
        ({"threshold": 1.1}, "threshold=1.1"),
        ({"least": 1}, "least=1 of a secure sum must be a whole number from 2 to 1024"),
        ({"largest": -1.0}, "largest=-1.0 of a secure sum must be a finite number above 0"),
        ({"resolution": 0}, "resolution=0"),
        ({"largest": 1e300, "resolution": 1e-300}, "too far apart"),
    ],
)
def test_impossible_settings_are_refused(wrong, why):
    with pytest.raises(PolicyError, match=why):
        fs.SecureSum(**wrong)


def test_needed_sites():
    assert [fs.SecureSum().needed(n) for n in (2, 3, 4, 5, 9, 10, 99, 100)] == [2, 2, 3, 4, 6, 7, 66, 67]
    assert [fs.SecureSum(threshold=0.51).needed(n) for n in (4, 10, 11)] == [3, 6, 6]
    assert fs.Policy(secure_sum=True, quorum="all").needed(9, adding=True) == 9
    assert fs.Policy(secure_sum=True).needed(9, adding=True) == 6
    assert fs.Policy().needed(9, adding=True) == 5


ONE_AWAY = r"over 5 and over 4 sites reveal the sum over 's04' by their difference"


def test_sums_that_differ_by_one_site_are_refused(recwarn):
    """Their difference is its part."""
    fed = federation()
    fed.sum(all_kinds, factor=1.0)
    fed.subset(fed.sites[:4]).sum(all_kinds, factor=2.0)  # another query
    fed.subset(fed.sites[:3]).sum(all_kinds, factor=1.0)  # two sites are a sum
    fed.sum(all_kinds, factor=1.0)
    assert not recwarn.list
    calls = len(fed.record.calls)
    with pytest.raises(PolicyError, match=r"over 3 and over 5 and over 4 sites reveal the sum over 's04' by"):
        fed.subset(fed.sites[:4]).sum(all_kinds, factor=1.0)
    assert len(fed.record.calls) == calls  # no site was contacted
    fed.sum(all_kinds, factor=1.0)
    fed = federation(policy=fs.Policy(secure_sum=fs.SecureSum(least=3)))
    fed.subset(fed.sites[:3]).sum(nothing)
    with pytest.raises(PolicyError, match=r"the sum over 's03', 's04' by their difference, fewer than the 3 sites"):
        fed.sum(nothing)


def test_sites_refuse_them_too():
    """Whatever a coordinator remembers: it gets the masked numbers, and no shares."""
    fed = federation()
    fed.sum(all_kinds, factor=1.0)
    fed._root.summation = SecureSummation(fs.SecureSum())
    with pytest.raises(QuorumError, match="would reveal the sum over 1 site, fewer than 2: request the same sites"):
        fed.subset(fed.sites[:4]).sum(all_kinds, factor=1.0)
    fed._root.summation = SecureSummation(fs.SecureSum())
    assert fed.subset(fed.sites[:4]).sum(all_kinds, factor=2.0).sites == fed.sites[:4]


def test_three_sums_that_reveal_one_site_are_refused():
    """No two of them do: the differences from all sites are a + b, b + c and a + c, which give a."""
    fed = federation(6)
    for left_out in (("s00", "s01"), ("s01", "s02")):
        fed.subset(set(fed.sites) - set(left_out)).sum(nothing)
    fed.sum(nothing)
    with pytest.raises(PolicyError, match="reveal the sum over 's00' by their difference"):
        fed.subset(set(fed.sites) - {"s00", "s02"}).sum(nothing)


def test_sums_of_two_runs_that_differ_by_one_site_are_warned_of():
    fed = federation()
    fed.run(lambda fed: fed.sum(all_kinds, factor=1.0))
    with pytest.warns(UserWarning, match=ONE_AWAY) as seen:
        fed.subset(fed.sites[:4]).run(lambda fed: fed.sum(all_kinds, factor=1.0))
    assert [warning.filename for warning in seen] == [__file__]  # where the second sum is requested


def test_a_resumed_run_knows_its_sets(tmp_path):
    def protocol(fed, fewer):
        fed.sum(all_kinds, factor=1.0)
        return fed.subset(fed.sites[:4]).sum(all_kinds, factor=1.0) if fewer else None

    for _ in range(2):
        with pytest.raises(PolicyError, match=ONE_AWAY):
            federation(run_dir=tmp_path).run(protocol, fewer=True)


def test_a_secure_sum_takes_from_two_to_1024_sites():
    check_possible = SecureSummation(fs.SecureSum()).check_possible
    for sites in (2, 3, 1024):
        check_possible("a sum", sites)
    with pytest.raises(PolicyError, match=r"a sum over 1 site cannot be a secure one: that takes from 2 to 1024 sites"):
        check_possible("a sum", 1)
    with pytest.raises(PolicyError, match=r"a sum over 1025 sites cannot be"):
        check_possible("a sum", 1025)


@pytest.mark.parametrize(
    "form",
    [
        '[[1, "f", true, [2]]]',
        '[["x", 1, true, [2]]]',
        '[["x", "f", 1, [2]]]',
        '[["x", "z", true, [2]]]',
        '[["x", "uf", true, [2]]]',
        '[["x", "f", true, [-1]]]',
        '[["x", "f", true, [2.0]]]',
        '[["x", "f", true, [true]]]',
        '[["x", "f", false, [2]]]',
        '[["x", "f", true, [1099511627776]]]',
        '[["x", "f", true, [0, 1099511627776]]]',
        '[["x", "f", true, []], ["x", "i", true, []]]',
        '[["x", "f", true]]',
        "7",
        "no json",
    ],
)
def test_a_form_that_is_none_is_refused(form):
    with pytest.raises(MessageError, match="not a list of keys, kinds and shapes"):
        layouts.from_text(form)


def test_a_form_is_read_as_it_was_written():
    form = (
        layouts.Summand("x", "f", True, (0, 3)),
        layouts.Summand("n", "i", False, ()),
        layouts.Summand("z", "c", True, (1,) * 32),
    )
    assert layouts.from_text(layouts.as_text(form)) == form
    assert [part.size for part in form] == [0, 1, 2]
    with pytest.raises(MessageError):
        layouts.from_text(layouts.as_text((layouts.Summand("x", "f", True, (1,) * 33),)))
    largest = layouts.Summand("x", "f", True, (2**40 - 1,))
    assert layouts.from_text(layouts.as_text((largest,))) == (largest,)
