"""One run on a site's disk: its state and its last replies, in an append-only file.

An entry is on the disk before the reply that it holds leaves the site. So a process that is killed at any moment, or a
machine that loses power, loses nothing that it has sent. When the file has grown to several times its content it is
rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedspan.durable.append_file import AppendFile, AppendFileError, Entry, Parts, UnwritableError
from fedspan.errors import DiskError, FedspanError, MessageError
from fedspan.federation.calls.call import Delivery
from fedspan.federation.site.site_host import Identified, RunState
from fedspan.federation.site.state import Changes
from fedspan.wire import decode, encode

#: A file is rewritten when it is this many times as large as its content, and no smaller than this.
_GROWTH, _LEAST_GROWN = 3, 2**26

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class RecordedCall:
    """A call of which a file holds the reply."""

    digest: bytes
    session: str

    def query(self, site: str) -> bytes:
        """Return what identifies it."""
        return self.digest


class RunFile:
    """What a site has on its disk of one run.

    Attributes
    ----------
    who : str
        The user whose run it is.
    data : str
        The fingerprint of the data that it began with.
    serial : int
        The highest serial number of the run's requests so far.
    least : int
        The fewest sites of a secure sum, in a run that this site answers by secure sums only; else 0.
    ended : bool
        The run is over, and nothing else is kept of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.who = self.data = ""
        self.serial, self.least, self.ended = 0, 0, False
        self.state = RunState()
        self._sent: tuple[Delivery | None, bytes] = (None, b"")
        self._file: AppendFile | None = None
        self._content = 0
        if path.exists():
            self._open()

    @property
    def is_new(self) -> bool:
        """Whether nothing is written yet."""
        return self._file is None or self._file.count == 0

    @property
    def held_calls(self) -> tuple[int, int]:
        """The call whose state this is, and the later one that may yet be accepted, or -1."""
        pending = self.state.pending_number
        return self.state.number, pending if pending is not None and self.state.pending else -1

    def begin(self, who: str, data: str) -> None:
        """Write whose run it is, and on which data."""
        self.who, self.data = who, data
        self._append({"kind": "run", "who": who, "data": data})

    def see(self, serial: int) -> None:
        """Write that a request was seen: it is not accepted again."""
        self.serial = serial
        self._append({"kind": "seen", "serial": serial})

    def answered(self, after: int, call: Identified, delivery: Delivery) -> None:
        """Write a reply, which `state` has already."""
        self._sent = (delivery, encode(delivery.reply, checksum=False))  # entry and answer have digests
        continues = len(self.state.pending) > 1  # another part of the same call
        self._append(*_call_entry(after, call, continues, delivery, self._sent[1]))
        with self._errors():
            self._open().sync()
        assert self._file is not None
        if self._file.end > max(_LEAST_GROWN, _GROWTH * max(self._content, len(self._sent[1]))):
            self._rewrite()

    def reply_bytes(self, delivery: Delivery) -> bytes:
        """Return the bytes of a reply."""
        return self._sent[1] if self._sent[0] is delivery else encode(delivery.reply)

    def failed(self, after: int, number: int) -> None:
        """Write that a call has failed."""
        self._append({"kind": "failed", "after": after, "number": number})

    def secure(self, least: int) -> None:
        """Write that the run is one of secure sums only."""
        if least != self.least:
            self.least = least
            self._append({"kind": "secure", "least": least})

    def end(self) -> None:
        """Keep nothing of the run but that it is over, and whose it was."""
        self.ended, self.state = True, RunState()
        self._rewrite()
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> AppendFile:
        if self._file is None:
            entries: list[Entry] = []
            with self._errors():
                self._file = AppendFile(self.path, accept=entries.append)
                for entry in entries:
                    self._take(entry.fields, self._file.body(entry))
            self._content = self._file.end
        return self._file

    def _append(self, fields: Fields, parts: Parts = ()) -> None:
        """Write an entry, which is in memory already: a file that another program has cut is written from there."""
        with self._errors():
            if not self._open().altered:
                self._open().append(fields, parts)
                return
        self._rewrite()

    def _rewrite(self) -> None:
        with self._errors():
            file = self._open()
            file.rewrite(list(self._entries()))
        self._content = file.end

    def _entries(self) -> Iterator[tuple[Fields, Parts]]:
        state = self.state
        yield {"kind": "run", "who": self.who, "data": self.data}, ()
        yield {"kind": "seen", "serial": self.serial}, ()
        if self.least:
            yield {"kind": "secure", "least": self.least}, ()
        yield {"kind": "state", "number": state.number}, (encode(state.state),)
        if state.pending_number is not None:
            yield {"kind": "failed", "after": state.number, "number": state.pending_number}, ()
        # Behind that entry these continue the same call: they do not settle what was before them.
        for call, delivery in state.pending:
            yield _call_entry(state.number, call, True, delivery, encode(delivery.reply))
        if self.ended:
            yield {"kind": "end"}, ()

    def _take(self, fields: Fields, body: memoryview) -> None:
        kind, state = fields["kind"], self.state
        if kind == "seen":
            self.serial = fields["serial"]
        elif kind == "run":
            self.who, self.data = fields["who"], fields["data"]
        elif kind == "state":
            state.number, state.state = fields["number"], decode(body, len(body))
        elif kind == "secure":
            self.least = fields["least"]
        elif kind == "end":
            self.ended = True
        elif kind in ("call", "failed"):
            if not fields.get("continues"):
                state.settle(fields["after"])
                state.pending_number = fields["number"]
            if kind == "call":
                call = RecordedCall(bytes.fromhex(fields["query"]), fields["session"])
                state.pending.append((call, _delivery(fields, body)))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except UnwritableError as error:
            self.close()
            raise DiskError(f"this site's record of the run, {self.path.name}, {error}; the site needs room") from None
        except AppendFileError as error:
            self.close()
            raise FedspanError(
                f"this site's record of the run, {self.path.name}, {error}: the site takes no part in this run"
            ) from None
        except (MessageError, KeyError, TypeError, ValueError):
            self.close()
            raise FedspanError(
                f"this site's record of the run, {self.path.name}, is damaged: the site takes no part in this run"
            ) from None


def _call_entry(
    after: int, call: Identified, continues: bool, delivery: Delivery, reply: bytes
) -> tuple[Fields, Parts]:
    put = encode(delivery.changes.put)
    fields = {
        "kind": "call",
        "after": after,
        "number": delivery.number,
        "continues": continues,
        "query": call.query("").hex(),
        "session": call.session,
        "rows": delivery.rows,
        "reply": len(reply),
        "deleted": list(delivery.changes.deleted),
    }
    return fields, (reply, put)


def _delivery(fields: Fields, body: memoryview) -> Delivery:
    size = fields["reply"]
    reply, put = (decode(part, len(part)) for part in (body[:size], body[size:]))
    return Delivery(fields["number"], reply, fields["rows"], Changes(put, tuple(fields["deleted"])))
