"""Saved models: one file of JSON and arrays, without code.

A zip archive, not compressed: ``model.json`` describes the estimator, ``0.npy``, ``1.npy``, ... are its arrays. Only
classes on fedspan's own lists are made again, by name. The record of the run and long lists of counted batches repeat
themselves, and are packed (xz) into arrays. A hundred sites and hundreds of rounds need a few kB.
"""

from __future__ import annotations

import copy
import importlib
import io
import json
import lzma
import math
import os
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import MOST_BRACKETS, json_value
from fedspan.durable.whole_file import temporary_beside
from fedspan.errors import InputError
from fedspan.federation import RunRecord
from fedspan.wire import is_long_and_empty

FORMAT = 1
_OUTPUT = "_sklearn_output_config"  # where scikit-learn keeps the choice of ``set_output``
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a model's bytes depend on the model alone
_LARGEST_TEXT = 2**24  # bytes of JSON, and of a record once it is unpacked
_UNPACKING_MEMORY = 2**26
_LONG_TEXT = 4096  # a dict whose JSON has more bytes is packed


class Arrays(list[NDArray[Any]]):
    """The arrays of a file; `text` is the size of all texts that were packed into them, or unpacked."""

    text, brackets = 0, 0

    def takes(self, text: bytes) -> bool:
        """Count a text, unless the texts of the file are then more than can be held."""
        size, brackets = self.text + len(text), self.brackets + text.count(b"[") + text.count(b"{")
        fits = size <= _LARGEST_TEXT and brackets <= MOST_BRACKETS
        if fits:
            self.text, self.brackets = size, brackets
        return fits


#: Takes the place of a packed part once it is unpacked: each part is unpacked once.
_USED: NDArray[Any] = np.empty(0, dtype=np.uint8)


def save(model: Any, path: str | os.PathLike[str], *, record: bool = True) -> None:
    """Write a fitted estimator, a scikit-learn pipeline of such, or an atlas, to one file, without pickle.

    Parameters
    ----------
    model : estimator, Pipeline or Atlas
        An estimator of fedspan, a pipeline whose steps are such estimators, or what `fedspan.atlas` returns.
    path : path
        The file, which is written whole or not at all.
    record : bool, default=True
        Keep the records of the runs. Without them the file is smaller, and a loaded model has no ``run_``.

    Examples
    --------
    >>> import tempfile, fedspan as fs
    >>> from sklearn.pipeline import make_pipeline
    >>> pipeline = make_pipeline(fs.FedStandardScaler(), fs.FedPCA(1)).fit([[1.0, 2.0], [3.0, 5.0], [4.0, 6.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fs.save(pipeline, f"{folder}/model.fedspan")
    ...     fs.load(f"{folder}/model.fedspan").transform([[1.0, 2.0]]).shape
    (1, 1)
    """
    arrays = Arrays()
    content = _content(model, record)
    described = {"format": FORMAT, "estimator": _described(content, type(model).__name__, arrays)}
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist: make it first")
    if target.is_dir():
        raise InputError(f"{target} is a folder: name a file in it, such as {target / 'model.fedspan'}")
    descriptor, temporary = temporary_beside(target)
    try:
        with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr(
                zipfile.ZipInfo("model.json", _LONG_AGO), json.dumps(described, allow_nan=False, separators=(",", ":"))
            )
            for number, array in enumerate(arrays):
                npy = io.BytesIO()
                np.lib.format.write_array(npy, array, allow_pickle=False)
                archive.writestr(zipfile.ZipInfo(f"{number}.npy", _LONG_AGO), npy.getvalue())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _content(model: Any, record: bool) -> Any:
    """Return an estimator, or the steps of a pipeline by name; refuse what a file cannot keep."""
    if _is_pipeline(model):
        others = [step for _, step in model.steps if not _is_estimator(step)]
        if others:
            raise InputError(f"{others[0]!r} is not an estimator of fedspan, and a saved pipeline has no other steps")
        return _Steps((name, _content(step, record)) for name, step in model.steps)
    if _is_atlas(model):
        own = {field.name: getattr(model, field.name) for field in fields(model)}
        kept = {name: _content(part, record) if _is_estimator(part) else part for name, part in own.items()}
        return type(model)(**kept if record else {**kept, "run_": None})
    if not _is_estimator(model):
        raise InputError(
            f"{type(model).__name__} is neither an estimator of fedspan nor a pipeline of such, nor an atlas"
        )
    if not record and hasattr(model, "run_"):
        model = copy.copy(model)
        del model.run_
    return model


class _Steps(dict[str, Any]):
    """The steps of a pipeline by name, in their order."""


def _is_pipeline(model: Any) -> bool:
    return type(model).__name__ == "Pipeline" and hasattr(model, "steps")


def load(path: str | os.PathLike[str]) -> Any:
    """Read what ``save`` wrote, or the whole fitted pipeline of a study.

    Parameters
    ----------
    path : path
        A model's file, or the output folder of ``fedspan run``: then its preprocessing steps and its model are returned
        as one scikit-learn pipeline.

    Examples
    --------
    >>> import tempfile, fedspan as fs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fs.FedStandardScaler().fit([[1.0], [3.0]]).save(f"{folder}/scaler.fedspan")
    ...     fs.load(f"{folder}/scaler.fedspan").mean_
    array([2.])
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"load takes the path of a model's file or of a study's folder, and not {path!r}")
    if Path(path).is_dir():
        return _of_study(Path(path))
    return _of_file(path)


def _of_study(folder: Path) -> Any:
    """Return the models of a run's folder as a pipeline."""
    from sklearn.pipeline import make_pipeline

    model = folder / "model.fedspan"
    if not model.is_file():
        raise InputError(
            f"{folder} has no model.fedspan: it is not an output folder of 'fedspan run', or the run has not ended "
            "('fedspan run STUDY.toml --resume' continues it)"
        )
    return make_pipeline(*(_of_file(file) for file in (*sorted(folder.glob("preprocess-*.fedspan")), model)))


def _of_file(path: str | os.PathLike[str]) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise InputError(f"{path} is not a fedspan model: its members are compressed")
            if sum(member.file_size for member in archive.infolist()) > os.path.getsize(path):
                raise InputError(f"{path} is not a fedspan model: its members lie in one another")
            described = json_value(archive.read("model.json"), _LARGEST_TEXT)
            if described.get("format") != FORMAT:
                raise InputError(f"{path} has model format {described.get('format')!r}, this fedspan reads {FORMAT}")
            files = [io.BytesIO(archive.read(f"{number}.npy")) for number in range(len(archive.namelist()) - 1)]
        arrays = Arrays(np.lib.format.read_array(file, allow_pickle=False) for file in files)
        if any(map(is_long_and_empty, arrays)):
            raise InputError(f"{path} is not a fedspan model: it holds arrays that are longer than its bytes")
        model = _made(described["estimator"], arrays)
    except FileNotFoundError:
        raise InputError(
            f"there is no model file or study folder {path}: name the output folder of 'fedspan run', or a saved model"
        ) from None
    except InputError:
        raise
    except Exception as error:  # of bytes from outside, which need not be a zip archive, JSON or npy
        raise InputError(
            f"{path} is not a fedspan model, or is damaged ({type(error).__name__}): name the output folder of "
            "'fedspan run', or a file that fedspan.save wrote"
        ) from None
    steps = [step for _, step in model.steps] if _is_pipeline(model) else [model]
    if not all(map(_is_estimator, steps)) and not _is_atlas(model):
        raise InputError(f"{path} is not a fedspan model: it holds a {type(model).__name__}")
    return model


def _unpacked(arrays: Arrays, place: int) -> str:
    """Return the text of a packed part. Each part is used once: parts that name others would unfold without limit."""
    array, arrays[place] = arrays[place], _USED
    unpacker = lzma.LZMADecompressor(memlimit=_UNPACKING_MEMORY)
    text = unpacker.decompress(array.tobytes(), max_length=_LARGEST_TEXT)
    if not unpacker.eof:
        raise InputError(f"a packed part of the model file is cut off, or has more than {_LARGEST_TEXT} bytes")
    if not arrays.takes(text):
        raise InputError(f"the packed parts of the model file have more than {_LARGEST_TEXT} bytes, or too many lists")
    return text.decode()


def _described(value: Any, where: str, arrays: Arrays) -> Any:
    """Return `value` as JSON; arrays go to `arrays`. A refusal names `where` the value is."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, np.ndarray) and value.dtype == object and all(isinstance(item, str) for item in value.flat):
        return {"names": value.tolist()}
    if isinstance(value, RunRecord):
        text = "\n".join(value.lines()).encode()
        if not arrays.takes(text):
            raise InputError(f"the record of the run has {len(text):,} bytes, too many for a model: save(record=False)")
        arrays.append(np.frombuffer(lzma.compress(text), dtype=np.uint8))
        return {"packed record": len(arrays) - 1}
    if isinstance(value, np.ndarray) and value.dtype != object:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_described(item, f"{where}[{i}]", arrays) for i, item in enumerate(value)]}
    if isinstance(value, _Steps):
        return {"pipeline": [[name, _described(step, f"{where}.{name}", arrays)] for name, step in value.items()]}
    if isinstance(value, dict) and all(type(key) in (int, str) for key in value):
        own = copy.copy(arrays)
        items = {key: _described(item, f"{where}[{key!r}]", own) for key, item in value.items()}
        found: Any = {"dict": items} if all(type(key) is str for key in items) else {"pairs": list(items.items())}
        text = b"" if len(own) > len(arrays) else json.dumps(found, allow_nan=False, separators=(",", ":")).encode()
        if len(text) > _LONG_TEXT and own.takes(text):
            own.append(np.frombuffer(lzma.compress(text), dtype=np.uint8))
            found = {"packed": len(own) - 1}
        arrays[:], arrays.text, arrays.brackets = own, own.text, own.brackets
        return found
    if _is_estimator(value):
        params = dict(sorted(value.get_params(deep=False).items()))
        fitted = {name: item for name, item in sorted(vars(value).items()) if name not in params}
        fitted = {name: item for name, item in fitted.items() if name.endswith("_") or name == _OUTPUT}
        return {
            "estimator": type(value).__name__,
            "params": _fields(params, where, arrays),
            "fitted": _fields(fitted, where, arrays),
        }
    if is_dataclass(value) and type(value).__name__ in _known_values():
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"value": type(value).__name__, "fields": _fields(parts, where, arrays)}
    raise InputError(
        f"{where} is a {type(value).__name__}, which a model file cannot keep: set it to a number, a string or an array"
    )


def _fields(values: dict[str, Any], where: str, arrays: Arrays) -> dict[str, Any]:
    return {name: _described(item, f"{where}.{name}", arrays) for name, item in values.items()}


def _made(described: Any, arrays: Arrays) -> Any:
    if not isinstance(described, dict):
        return described
    kind = next(iter(described))
    content = described[kind]
    if kind == "float":
        return float(content)
    if kind == "array":
        return arrays[content]
    if kind == "names":
        return np.array(content, dtype=object)
    if kind in ("tuple", "list"):
        items = [_made(item, arrays) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind in ("dict", "pairs"):
        pairs = content.items() if kind == "dict" else content
        return {key: _made(item, arrays) for key, item in pairs}
    if kind == "pipeline":
        from sklearn.pipeline import Pipeline

        return Pipeline([(str(name), _made(step, arrays)) for name, step in content])
    if kind == "packed record":
        return RunRecord.from_lines(_unpacked(arrays, content).split("\n"))
    if kind == "packed":
        return _made(json_value(_unpacked(arrays, content).encode(), _LARGEST_TEXT), arrays)
    if kind == "estimator":
        estimator = _known_estimators()[content](**_made({"dict": described["params"]}, arrays))
        vars(estimator).update(_made({"dict": described["fitted"]}, arrays))
        return estimator
    if kind == "value":
        return _known_values()[content](**_made({"dict": described["fields"]}, arrays))
    raise InputError(f"the model file holds something of the unknown kind {kind!r}")


def _is_estimator(value: Any) -> bool:
    return type(value).__name__ in _known_estimators() and isinstance(value, _known_estimators()[type(value).__name__])


def _known_estimators() -> dict[str, Any]:
    fedspan = importlib.import_module("fedspan")  # by name: a lower layer does not import the package
    return {name: getattr(fedspan, name) for name in fedspan.ESTIMATORS}


def _is_atlas(value: Any) -> bool:
    return type(value).__name__ == "Atlas" and type(value) in _atlas_parts()


def _atlas_parts() -> tuple[Any, ...]:
    """Return the classes of a saved atlas, the atlas among them."""
    parts: tuple[Any, ...] = importlib.import_module("fedspan.atlases.atlas_model").SAVED
    return parts


def _known_values() -> dict[str, Any]:
    """Return the objects that a file may hold: aggregators, privacy mechanisms and the parts of an atlas."""
    from fedspan import aggregation, privacy

    found = {name: getattr(module, name) for module in (aggregation, privacy) for name in module.__all__}
    values = {name: kind for name, kind in found.items() if isinstance(kind, type) and is_dataclass(kind)}
    return values | {kind.__name__: kind for kind in _atlas_parts()}
