"""Every record of a simulated kernel ring is printed once, in order, or named in a gap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.kmsg.machine import NOT_RECORDS, WRITERS, Machine, audited_flood
from tests.kmsg.ring import Message, Ring

TEXTS = [b"", b"two\nlines", b"a\\x0ab", b"end;6,1,2,-;"]

messages = st.builds(
    Message,
    text=st.one_of(st.binary(max_size=40), st.sampled_from(TEXTS)),
    fragment=st.booleans(),
    writer=st.sampled_from(WRITERS),
    priority=st.integers(0, 7),
    dictionary=st.lists(st.binary(max_size=10).map(b"KEY=".__add__), max_size=2),
    broken=st.one_of(st.just(b""), st.just(b""), st.just(b""), st.sampled_from(NOT_RECORDS)),
)

burst: st.SearchStrategy[list[Message]] = st.one_of(
    st.just([]), st.lists(messages, max_size=2), st.lists(messages, max_size=12)
)


@given(
    capacity=st.integers(1, 8),
    first=st.sampled_from([0, 1, 2**32 - 2, 2**63 - 100]),
    bursts=st.lists(burst, max_size=30),
)
def test_every_record_is_printed_once_or_named_in_a_gap(
    capacity: int, first: int, bursts: list[list[Message]]
) -> None:
    # A broken record at either end would be in no gap, because its sequence is unknown.
    machine = Machine(Ring(capacity, first), [[Message(b"start")], *bursts, [Message(b"end")]])

    account = machine.run()

    assert account.lines + account.joined + account.lost == first + 2 + sum(len(burst) for burst in bursts)


def test_each_of_50000_records_is_printed_or_named_in_a_gap() -> None:
    audited_flood(50_000, seed=1)
