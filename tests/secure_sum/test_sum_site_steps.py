"""What a site refuses, whatever the coordinator says: each rule against a coordinator that breaks it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import FedspanError, InputError, MessageError, PolicyError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.parameters import Share
from fedspan.federation.site.site_host import SiteHost
from fedspan.federation.site.state import Changes
from fedspan.federation.site.steps import find_step
from fedspan.federation.site.transforms import Transform
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.secure_sum.sum_masks import KeyPair
from fedspan.secure_sum.sum_site_steps import _tag, confirm, offer, unmask
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import as_array

from .players import NUMBERS, Players, numbers_of, sites_of


@fs.transform
def halved(X):
    return X / 2


@pytest.fixture
def players():
    return Players(5)  # threshold 4


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def test_never_both_kinds_of_share_for_one_site(players):
    players.up_to_masked()
    first = players.unmask("s00", ["s00", "s01", "s02", "s03"])
    with pytest.raises(FedspanError, match="never gives both kinds of share for one site"):
        players.unmask("s00", players.names)
    again = players.at("s00", unmask, session="run/0/a", tags=np.zeros((5, 32), dtype=np.uint8))
    assert same(again, first)  # whatever comes with the question


def test_a_lie_about_who_left_uncovers_nothing(players):
    """Some sites learn that s04 is there and some that it left: neither have the threshold's confirmation."""
    players.up_to_masked()
    sent = {"s00": players.names, "s01": players.names, "s02": players.names[:4], "s03": players.names[:4]}
    tags = {name: players.confirm(name, alive) for name, alive in sent.items()}
    for name in sent:
        mine = np.stack(
            [tags[other][players.names.index(name)] if other in tags else 0 * tags["s00"][0] for other in players.names]
        )
        with pytest.raises(FedspanError, match="2 sites have confirmed this set, fewer than the threshold of 4"):
            players.at(name, unmask, session="run/0/a", tags=mine)


def test_a_lie_about_who_has_shared_uncovers_nothing():
    """One site receives a smaller set than the others, so that fewer keys would uncover its masks."""
    players = Players(6)  # threshold 4
    _, shares = players.up_to_shares()
    players.masked("s00", {name: shares[name] for name in players.names[:4]})
    for name in players.names[1:]:
        players.masked(name, shares)
    with pytest.raises(FedspanError, match="1 sites have confirmed this set"):
        players.unmask("s00", players.names[:4])


def test_shares_are_given_where_the_threshold_has_confirmed(players):
    players.up_to_masked()
    with pytest.raises(FedspanError, match="3 sites have confirmed this set"):
        players.unmask("s00", players.names, confirmed=players.names[:3])
    assert players.unmask("s00", players.names, confirmed=players.names[:4])["shares"].any(axis=1).all()


def test_tags_are_each_for_one_site_and_one_set(players):
    players.up_to_masked()
    tags = np.stack([players.confirm(name, players.names)[0] for name in players.names])
    with pytest.raises(FedspanError, match="1 sites have confirmed this set"):
        players.at("s01", unmask, session="run/0/a", tags=tags)  # those for s00
    with pytest.raises(FedspanError, match="1 sites have confirmed this set"):
        players.at("s00", unmask, session="run/0/a", tags=players.confirm("s00", players.names))  # its own, sent back
    for wrong in (tags[:4], tags[:, :31]):
        with pytest.raises(MessageError, match="not one for each site"):
            players.at("s00", unmask, session="run/0/a", tags=wrong)
    for wrong in (tags.astype(float), tags.astype(np.int8)):
        with pytest.raises(MessageError, match="tags must hold bytes"):
            players.at("s00", unmask, session="run/0/a", tags=wrong)


def test_a_site_that_is_not_in_the_set_confirms_nothing(players):
    """It could, with the secret that it shares with s00: but its masks are to be uncovered, and its word is no vote."""
    players.up_to_masked()
    alive = players.names[:4]
    tags = np.stack([players.confirm(name, alive)[0] for name in alive[:3]] + [np.zeros(32, dtype=np.uint8)] * 2)
    known = players.hosts["s00"].vault.session("run/0/a")
    tags[4] = as_array(_tag(players.hosts["s04"].vault, known, known.group, "s04", "s00", "s00"))
    with pytest.raises(FedspanError, match="3 sites have confirmed this set, fewer than the threshold of 4"):
        players.at("s00", unmask, session="run/0/a", tags=tags)
    tags[3] = as_array(_tag(players.hosts["s03"].vault, known, known.group, "s03", "s00", "s00"))
    assert players.at("s00", unmask, session="run/0/a", tags=tags)["shares"].any(axis=1).all()


def test_a_seen_call_with_another_set_is_refused(players):
    offers = players.offers()
    players.shared(players.group(offers))
    fewer = {name: offers[name] for name in players.names[:4]}
    for other in (players.group(fewer, threshold=4), players.group(offers, threshold=5)):
        with pytest.raises(FedspanError, match="seen this call with another set of sites"):
            players.shared(other, ["s00"])


def test_a_seen_call_with_another_step_or_payload_is_refused(players):
    players.offers()
    with pytest.raises(FedspanError, match="seen this call with another step, payload or transform"):
        players.offer("s00", factor=2.0)
    with pytest.raises(FedspanError, match="seen this call with another step, payload or transform"):
        players.offer("s00", transforms=[Transform.of(halved, {})])
    with pytest.raises(FedspanError, match="names another call than the one that it came with"):
        players.at("s00", confirm, session="run/0/a", number=1, alive=players.flags(players.names))


@pytest.mark.parametrize(
    ("kept", "threshold", "why"),
    [
        (3, 4, "the set has 3 sites, fewer than the threshold of 4"),
        (5, 3, "a threshold of 3 of 5 sites is below the 4 that this site demands"),
        (4, 2, "a threshold of 2 of 4 sites is below the 3 that this site demands"),
        (1, 1, "threshold must be a whole number from 2 to 1024"),
        (5, 0, "threshold must be a whole number from 2 to 1024"),
    ],
)
def test_too_few_participants_are_refused(players, kept, threshold, why):
    offers = players.offers(players.names[:kept])
    with pytest.raises(FedspanError, match=why):
        players.shared(players.group(offers, threshold=threshold), ["s00"])


def test_the_threshold_is_the_federations():
    """Of nine sites six must stay by the rule: with five, one colluding site would suffice for two sets."""
    players = Players(9)
    offers = players.offers()
    with pytest.raises(FedspanError, match="a threshold of 5 of 9 sites is below the 6 that this site demands"):
        players.shared(players.group(offers, threshold=5), ["s00"])
    players.hosts["s00"].vault.take(fs.SecureSum(threshold=0.8))
    with pytest.raises(FedspanError, match="a threshold of 6 of 9 sites is below the 8 that this site demands"):
        players.shared(players.group(offers), ["s00"])
    assert players.shared(players.group(offers, threshold=8), ["s00"])["s00"]["sealed"].any()


def test_a_site_may_demand_more_sites(players):
    players.hosts["s00"].vault.least = 5
    offers = players.offers()
    with pytest.raises(FedspanError, match="a threshold of 4 of 5 sites is below the 5 that this site demands"):
        players.shared(players.group(offers), ["s00"])
    players.shared(players.group(offers, threshold=5), ["s00"])


def test_a_set_that_shrinks_below_the_threshold_is_refused(players):
    _, shares = players.up_to_shares()
    some = {name: shares[name] for name in players.names[:3]}
    with pytest.raises(FedspanError, match="3 sites are left, fewer than the threshold of 4"):
        players.masked("s00", some)
    for name in players.names:
        players.masked(name, shares)
    with pytest.raises(FedspanError, match="3 sites are left, fewer than the threshold of 4"):
        players.unmask("s00", players.names[:3])


def test_a_key_that_its_site_did_not_give_is_refused(players):
    """The coordinator puts a key of its own in the place of s04's, to know the masks of pairs with it."""
    offers = players.offers()
    offers["s04"] = {**offers["s04"], "key": as_array(KeyPair().public)}
    group = players.group(offers)
    with pytest.raises(FedspanError, match="not in the set with the key that it gave"):
        players.shared(group, ["s04"])
    shares = players.shared(group, players.names[:4])
    # s04 answers for the true set: what it sealed is not for the set that the others received.
    shares |= players.shared(players.group(players.offers()), ["s04"])
    with pytest.raises(FedspanError, match="not what its sender sealed for this set of sites"):
        players.masked("s00", shares)


def test_a_stranger_is_refused(players):
    """The coordinator invents sites, to have a majority of its own."""
    offers = players.offers()
    offers |= {f"t{k}": {**offers["s00"], "key": as_array(KeyPair().public)} for k in range(5)}
    with pytest.raises(FedspanError, match="does not know the key of a site 't0'"):
        players.shared(players.group(offers, threshold=7), ["s00"])


def test_an_impostor_cannot_seal_for_a_known_name(players):
    """Another machine answers under the name s04: no site that knows the key of s04 can open its shares."""
    impostor = SiteHost(sites_of(5)[4], Vault())
    impostor.vault.introduce({name: host.vault.public for name, host in players.hosts.items() if name != "s04"})
    players.hosts["s04"] = impostor
    _, shares = players.up_to_shares()
    with pytest.raises(FedspanError, match="not what its sender sealed"):
        players.masked("s00", shares)


def test_shares_that_are_sent_back_are_not_those_of_another_site(players):
    _, shares = players.up_to_shares()
    sealed = players.sealed_for("s00", shares)
    sealed[1] = shares["s00"]["sealed"][1]
    with pytest.raises(FedspanError, match="not what its sender sealed"):
        players.masked("s00", shares, sealed=sealed)


def test_two_sites_with_one_key_are_refused(players):
    offers = players.offers()
    offers["s03"] = offers["s04"]
    with pytest.raises(FedspanError, match="two sites of the set have the same key"):
        players.shared(players.group(offers), ["s00"])


def test_a_known_key_does_not_change():
    vault = Vault()
    vault.introduce({"a": KeyPair().public})
    with pytest.raises(FedspanError, match="'a' is known by another key"):
        vault.introduce({"a": KeyPair().public})


def test_replays_get_the_recorded_reply(players):
    offers = players.offers()
    group = players.group(offers)
    shares = players.shared(group)
    replies = {name: players.masked(name, shares) for name in players.names}
    assert same(players.offer("s00"), offers["s00"])
    assert same(players.shared(group, ["s00"])["s00"], shares["s00"])
    assert same(players.masked("s00", shares), replies["s00"])
    tags = [players.confirm(name, players.names) for name in ("s00", "s00")]
    np.testing.assert_array_equal(*tags)
    last = players.unmask("s00", players.names)
    assert same(players.at("s00", unmask, session="run/0/a", tags=tags[0]), last)


def test_what_is_over_is_not_answered_again(players):
    group, shares, _ = players.up_to_masked()
    players.unmask("s00", players.names)
    for again in (lambda: players.masked("s00", shares), lambda: players.shared(group, ["s00"])):
        with pytest.raises(FedspanError, match="this sum is over"):
            again()
    session = players.hosts["s00"].vault.session("run/0/a")
    assert (session.reply, session.key, session.seed, session.shares) == (None, None, b"", {})


def test_no_second_masked_reply_for_another_set(players):
    _, shares = players.up_to_shares()
    players.masked("s00", shares)
    with pytest.raises(FedspanError, match="given its masked reply for another set"):
        players.masked("s00", {name: shares[name] for name in players.names[:4]})


def test_questions_out_of_order_are_refused(players):
    with pytest.raises(FedspanError, match="knows nothing of this sum"):
        players.unmask("s00", players.names)
    group = players.group(players.offers())
    with pytest.raises(FedspanError, match="has shared no secrets"):
        players.unmask("s00", players.names)
    shares = players.shared(group)
    with pytest.raises(FedspanError, match="given no masked reply"):
        players.unmask("s00", players.names)
    with pytest.raises(FedspanError, match="confirmed no set of sites"):
        players.at("s00", unmask, session="run/0/a", tags=np.zeros((5, 32), dtype=np.uint8))
    some = {name: shares[name] for name in players.names[:4]}
    players.masked("s00", some)
    with pytest.raises(FedspanError, match="names a site that has shared no secrets"):
        players.unmask("s00", players.names)
    with pytest.raises(FedspanError, match="not among those that are left"):
        players.masked("s04", some)
    with pytest.raises(FedspanError, match="not among those that are left"):
        players.at("s00", confirm, session="run/0/a", alive=players.flags(["s01", "s02", "s03", "s04"]))


def test_no_share_of_a_site_that_is_not_in_the_sum(players):
    """Not even where it was opened for a larger set, which was then refused."""
    _, shares = players.up_to_shares()
    sealed = players.sealed_for("s00", shares)
    sealed[4] ^= 1
    with pytest.raises(FedspanError, match="not what its sender sealed"):
        players.masked("s00", shares, sealed=sealed)
    there = ["s00", "s01", "s02", "s04"]
    for name in there:
        players.masked(name, {other: shares[other] for other in there})
    given = players.unmask("s00", there)["shares"].any(axis=1)
    assert given.tolist() == [True, True, True, False, True]


def test_shapes_and_kinds_of_questions_are_checked(players):
    offers = players.offers()
    for wrong in (
        {"names": json.dumps(list(players.names[::-1]))},
        {"names": "no json"},
        {"names": json.dumps([1, 2, 3, 4, 5])},
        *({"keys": np.zeros(shape, dtype=np.uint8)} for shape in ((5, 31), (5, 33), (4, 32), (6, 32))),
    ):
        with pytest.raises(MessageError, match="not a sorted list of names with a key for each"):
            players.shared(players.group(offers, **wrong), ["s00"])
    for keys in (np.zeros(160, dtype=np.uint8), np.zeros((5, 32)), 3):
        with pytest.raises(MessageError, match="keys must"):
            players.shared(players.group(offers, keys=keys), ["s00"])
    shares = players.shared(players.group(offers))
    with pytest.raises(MessageError, match="must be 5 flags"):
        players.masked("s00", shares, alive=np.ones(4, dtype=bool))
    with pytest.raises(MessageError, match="alive must hold truth values"):
        players.masked("s00", shares, alive=np.ones(5))
    with pytest.raises(MessageError, match="not one for each site"):
        players.masked("s00", shares, sealed=np.zeros((4, 82), dtype=np.uint8))


def test_the_range_is_the_federations(players):
    """It is fixed at the site: otherwise each sum could reveal on which side of a number its reply is."""
    for other in [{"largest": 1e300}, {"largest": 1.0}, {"fraction_bits": 95}]:
        with pytest.raises(PolicyError, match=r"the sums of this site's federation have numbers of up to 1\.93428e"):
            players.offer("s00", **other)
    for wrong in [{"fraction_bits": 10**6}, {"largest": float("nan")}, {"fraction_bits": 0.5}]:
        with pytest.raises(MessageError, match="must be"):
            players.offer("s00", **wrong)
    narrow = fs.SecureSum(largest=10.0, resolution=0.25)
    fed = fs.LocalFederation(sites_of(3), policy=fs.Policy(secure_sum=narrow))
    for host in fed._root.engine._hosts.values():
        assert host.vault.numbers == FixedPoint.of(narrow)


def test_taking_back_a_call_takes_back_no_secret():
    """A coordinator may take back a site's state: what the vault remembers stays."""
    players = Players(5)
    players.up_to_masked()
    host = players.hosts["s00"]
    players.unmask("s00", players.names)
    host.restore("run", 0, Changes())
    with pytest.raises(FedspanError, match="never gives both kinds"):
        players.unmask("s00", players.names[:4])


def test_a_site_for_secure_sums_gives_no_single_reply():
    fed = fs.LocalFederation(sites_of(3), policy=fs.Policy(secure_sum=True))
    host = fed._root.engine._hosts["s00"]
    call = Call("run", 0, 0, find_step(numbers_of), {"factor": 1.0}, ("s00",))
    with pytest.raises(PolicyError, match="gives no reply of its own"):
        host.perform(call, {"factor": 1.0}, -1)


def test_a_part_that_does_not_fit_its_agreed_shape_stays_at_home(players):
    offers = players.offers()
    form = offers["s00"]["form"].replace("[3]", "[4]")
    with pytest.raises(InputError, match=r"has the shape \(3,\) at this site, and \(4,\) was agreed"):
        players.shared(players.group(offers, form=form))
    for form in ("[]", offers["s00"]["form"].replace("values", "other")):
        with pytest.raises(InputError, match=r"this site's reply has the keys .* were agreed"):
            players.shared(players.group(offers, form=form))
    # Real numbers as whole ones would be cut off, or not, by what they are.
    form = offers["s00"]["form"].replace('"f"', '"i"')
    with pytest.raises(InputError, match="'values' has numbers of kind 'f' at this site, 'i' was agreed"):
        players.shared(players.group(offers, form=form))


def test_forgotten_sums_begin_anew_with_other_keys(players):
    first = players.offer("s00")
    for k in range(40):
        players.offer("s00", session=f"run/1/{k}")
    assert not same(players.offer("s00"), first)
    players.hosts["s00"].vault.forget("run")
    with pytest.raises(FedspanError, match="knows nothing of this sum"):
        players.unmask("s00", players.names, session="run/1/39")


@fs.step
def declared(site, scale: Share):
    return {"x": scale * site.X.sum()}


def test_the_payload_of_the_summed_step_is_checked_at_the_site(players):
    def offered(**payload):
        settings = {"largest": NUMBERS.largest, "fraction_bits": NUMBERS.fraction_bits}
        return players.at("s00", offer, session="run/0/a", what=f"{__name__}.declared", **settings, **payload)

    for wrong in ({"with scale": 1.5}, {"with scale": np.array(0.5)}, {}, {"with scale": 0.5, "with more": 1}):
        with pytest.raises(MessageError, match=r"declared'"):
            offered(**wrong)
    with pytest.raises(MessageError, match="begin with 'with '"):
        offered(**{"with scale": 0.5, "more": 1})
    assert "key" in offered(**{"with scale": 0.5})


@fs.step
def many_keys(site):
    return {f"a long name of a number, {k}": float(k) for k in range(100)}


def test_many_sites_with_long_names_and_many_keys_can_be_added_up():
    sites = [fs.Site(f"a hospital with quite a long name, number {k:03d}", np.ones((3, 2))) for k in range(40)]
    total = fs.LocalFederation(sites, policy=fs.Policy(secure_sum=True)).sum(many_keys)
    assert list(total.values()) == [40.0 * k for k in range(100)]
