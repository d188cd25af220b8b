"""The loop of a gateway: read rows, score them, write alarms, keep sums. A kill at any moment loses and doubles no row.

Alarms are appended to a file. The place in it, the place in the input and the sums are kept in one file that is
replaced as a whole. What was written after that place is cut off at the next start, and its rows are read again. A file
of rows that is rotated is read to its end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedspan.errors import InputError
from fedspan.gateway.cell_encoder import PREFIX, CellEncoder
from fedspan.gateway.kept_sums import KeptSums
from fedspan.gateway.row_reader import RowError, RowReader
from fedspan.gateway.row_source import Line, RowFile, lines_of
from fedspan.gateway.scorer import Scorer

#: Rows that are scored at once.
_BATCH = 1000
#: Seconds between two times that all is kept; rows since are read again after a kill.
_SECONDS = 0.25


def gateway(
    model: Path,
    rows: Path | None = None,
    form: str | None = None,
    alarms: Path | None = None,
    state: Path | None = None,
    follow: bool = False,
    top: int = 3,
    periods: Path | None = None,
    every: float = 3600.0,
) -> int:
    """Score rows from standard input or a file, and write an alarm for each that is above the threshold.

    The sums of each period of this number of seconds are closed into a file in the folder `periods`.
    """
    scorer = _scorer(model)
    encoder = CellEncoder(scorer.arrays) if f"{PREFIX}text" in scorer.arrays else None
    columns = scorer.columns if encoder is None else encoder.columns
    if follow and rows is None:
        raise InputError("--follow needs --rows FILE: standard input is read until it ends")
    if periods is not None and state is None:
        raise InputError("--periods needs --state FILE, so that a kill loses and doubles no row")
    if periods is not None:
        periods.mkdir(parents=True, exist_ok=True)
    kept = KeptSums.empty(scorer)
    if state is not None and state.exists():
        kept = _kept(state, kept, periods, scorer)
    if periods is not None and state is not None and kept.closing:  # a kill came in the middle
        kept.close(state, periods, scorer)
    form = form or ("csv" if rows is not None and rows.suffix.lower() == ".csv" else "jsonl")
    file = None if rows is None else _opened(rows, kept)
    out = _output(alarms, kept if state is not None else None)
    reader = RowReader(columns, form, kept.header or None, raw=encoder is not None)
    # Standard input that is sent again begins with the lines that are dealt with; a file is opened behind them.
    skipped, saved = kept.lines if rows is None else 0, time.monotonic()
    begun = saved
    if state is not None:
        _save(kept, reader, state, file, out)  # from now on a file that is rotated is known again
    try:
        for some in lines_of(sys.stdin.fileno()) if file is None else file.lines(follow=follow):
            if some is None:  # a next file begins
                kept.offset = 0
                reader.begin_file()
                continue
            new = some[skipped:]
            skipped -= min(skipped, len(some))
            for start in range(0, len(new), _BATCH):
                _deal_with(new[start : start + _BATCH], reader, scorer, encoder, kept, out, top)
            if state is not None and (not some or time.monotonic() - saved > _SECONDS):
                _save(kept, reader, state, file, out)
                saved = time.monotonic()
            if periods is not None and state is not None and time.monotonic() - begun >= every and kept.sums["n"]:
                _save(kept, reader, state, file, out)
                kept.close(state, periods, scorer)
                begun = saved = time.monotonic()
        if state is not None:
            _save(kept, reader, state, file, out)
            if periods is not None and kept.sums["n"]:
                kept.close(state, periods, scorer)
    except RowError as error:
        raise InputError(f"{rows or 'standard input'}: {error}") from None
    finally:
        if alarms is not None:
            out.close()
        if file is not None:
            file.close()
    print(f"{kept.rows} rows, {kept.alarms} alarms, {kept.bad} lines that were not rows", file=sys.stderr)
    return 0


def _deal_with(
    new: list[Line],
    reader: RowReader,
    scorer: Scorer,
    encoder: CellEncoder | None,
    kept: KeptSums,
    out: BinaryIO,
    top: int,
) -> None:
    """Score lines, write alarms, and add to the sums."""
    found, numbers, texts = [], [], []
    for at, (line, _) in enumerate(new):
        try:
            row = reader.row(line)
        except RowError as error:
            if kept.lines + at == 0:
                raise  # the first line of CSV
            kept.bad += 1
            texts.append(json.dumps({"line": kept.lines + at + 1, "error": str(error)}))
            continue
        if row is not None and (encoder is not None or np.isfinite(row).all()):
            found.append(row)
            numbers.append(kept.lines + at + 1)
        elif row is not None:
            kept.bad += 1
            texts.append(json.dumps({"line": kept.lines + at + 1, "error": "it holds NaN or infinity"}))
    kept.offset += sum(size for _, size in new)
    kept.lines += len(new)
    if found:
        X = np.stack(found) if encoder is None else encoder.encode(found)
        scores = kept.add(X, scorer)
        above = np.flatnonzero(scores > scorer.threshold)
        if len(above):
            for i, features in zip(above, scorer.top_features(X[above], top), strict=True):
                score = min(float(scores[i]), sys.float_info.max)  # JSON has no infinity
                alarm = {"line": numbers[i], "score": score, "threshold": scorer.threshold}
                texts.append(json.dumps({**alarm, "top_features": features}))
        kept.alarms += len(above)
    if texts:
        data = "".join(f"{text}\n" for text in texts).encode()
        out.write(data)
        out.flush()
        kept.written += len(data)


def _save(kept: KeptSums, reader: RowReader, state: Path, file: RowFile | None, out: BinaryIO) -> None:
    """Keep all, unless a next file has no lines yet: until then its place is at the end of the previous one."""
    if file is not None and not kept.offset and kept.lines:
        return
    if out is not sys.stdout.buffer:
        os.fsync(out.fileno())  # the place in it is kept, so what is before that must be
    kept.header = reader.header or []
    if file is not None:
        kept.before, kept.inode = file.known_by(kept.offset), file.inode
    kept.save(state)


def _scorer(model: Path) -> Scorer:
    try:
        return Scorer.load(model)
    except FileNotFoundError:
        raise InputError(f"there is no model {model}: write one by detector.export('detector.npz')") from None
    except (ValueError, KeyError, OSError, EOFError) as error:
        raise InputError(
            f"{model} is not an exported detector, or is damaged ({type(error).__name__}): write one by "
            "detector.export or fs.export(fs.load('study'), 'detector.npz')"
        ) from None


def _kept(state: Path, like: KeptSums, periods: Path | None, scorer: Scorer) -> KeptSums:
    try:
        kept = KeptSums.load(state)
    except (ValueError, KeyError, OSError, EOFError) as error:
        raise InputError(f"{state} holds no sums of a gateway: {error}") from None
    shapes = [{name: own.shape for name, own in one.sums.items()} for one in (kept, like)]
    if shapes[0] != shapes[1]:
        raise InputError(f"{state} holds the sums of a model with other columns: choose another --state for this one")
    if float(kept.sums["edges_sum"]) != float(like.sums["edges_sum"]):  # scores are counted between other edges
        if kept.sums["n"] and periods is None:
            raise InputError(
                f"{state} holds the sums of another model: choose another --state, or --periods FOLDER to close them"
            )
        if kept.sums["n"] and periods is not None:
            kept.close(state, periods, scorer)
        kept.sums = like.sums
    return kept


def _opened(rows: Path, kept: KeptSums) -> RowFile:
    try:
        return RowFile(rows, kept.offset, kept.before, kept.inode)
    except FileNotFoundError as error:
        if kept.offset and rows.exists():
            raise InputError(
                f"{rows} was replaced, and what was read of it before is in no file beside it: uncompress the rotated "
                "file, or choose another --state"
            ) from None
        raise InputError(f"{rows} can't be read: {error.strerror or 'there is no such file'}") from None
    except OSError as error:
        raise InputError(f"{rows} can't be read: {error.strerror}") from None


def _output(alarms: Path | None, kept: KeptSums | None) -> BinaryIO:
    """Return where alarms are written: standard output, or a file without what was not kept."""
    if alarms is None:
        return sys.stdout.buffer
    out = os.fdopen(os.open(alarms, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    size = out.seek(0, os.SEEK_END)
    if kept is not None and size < kept.written:  # it was taken away
        kept.written = size
    elif kept is not None:
        out.truncate(kept.written)
        out.seek(0, os.SEEK_END)
    return out
