"""A detector as an ONNX graph: the arrays of `fedspan.gateway.scorer`, with the operators of ONNX 18 and its trees.

All arithmetic is in double precision, also where input and output are single. A difference from a large mean, or of two
squares, keeps its digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedspan.anomaly.export.onnx_encoder import encoder_nodes
from fedspan.arrays import Array
from fedspan.errors import MissingPackageError
from fedspan.gateway.cell_encoder import PREFIX

_OPSET, _TREES = 18, 3
#: The features that an alarm names.
_TOP = 3
_NEAREST = 2
#: Parts of a cut: with 1,000 trees of depth 14 the sum of as many of them has fewer than 24 bits.
_BITS = 2**8


def onnx_model(arrays: Mapping[str, Array], precision: str) -> bytes:
    """Return a serialized graph with the outputs ``score``, ``alarm``, ``shares`` and ``top_features``."""
    try:
        import onnx
    except ImportError:
        raise MissingPackageError(
            "a detector is written as ONNX by onnx: pip install '.[onnx]' in a checkout"
        ) from None
    graph = _Graph(onnx, np.dtype(np.float64 if precision == "double" else np.float32), f"{PREFIX}text" in arrays)
    graph.build(arrays)
    return graph.model(arrays)


class _Graph:
    """Nodes and constants of a graph; each method adds some, and returns the name of its result."""

    def __init__(self, onnx: Any, dtype: np.dtype[Any], encodes: bool) -> None:
        self.onnx, self.dtype, self.encodes = onnx, dtype, encodes
        self.double = onnx.TensorProto.DOUBLE
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def build(self, arrays: Mapping[str, Array]) -> None:
        """Add all nodes."""
        members, shares = [], []
        scaled = "shift" in arrays
        if self.encodes:
            rows = encoder_nodes(self, arrays)
        else:
            rows = self.add("Cast", "rows", to="rows_as_double" if scaled else "X", to_type=self.double)
        if scaled:
            rows = self.add("Sub", rows, self.const(arrays["shift"]))
            self.add("Div", rows, self.const(arrays["unit"]), to="X")
        Z = None
        if "mean" in arrays:
            Z = self.add("Sub", "X", self.const(arrays["mean"]))
            Z = Z if "scale" not in arrays else self.add("Div", Z, self.const(arrays["scale"]))
        for found in (self.by_centers(arrays, Z), self.by_trees(arrays), self.by_covariance(arrays, Z)):
            if found is not None:
                members.append(found[0])
                shares.append(found[1])
        score, parts = members[0], shares[0]
        if "ranks" in arrays:
            ranks = [self.rank(own, j, arrays) for j, own in enumerate(members)]
            score = self.add("Sum", *ranks)
            columns = [self.add("Unsqueeze", rank, self.ints([1])) for rank in ranks]
            pairs = zip(columns, shares, strict=True)
            parts = self.normed(self.add("Sum", *(self.add("Mul", column, own) for column, own in pairs)))
        outside = self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype)
        self.add("Cast", score, to="score", to_type=outside)
        self.add("Greater", score, self.const(arrays["threshold"]), to="alarm")
        self.add("Cast", parts, to="shares", to_type=outside)
        top = min(_TOP, len(arrays["columns"]))
        self.nodes.append(
            self.onnx.helper.make_node("TopK", [parts, self.ints([top])], ["top_shares", "top_features"], axis=1)
        )

    def by_covariance(self, arrays: Mapping[str, Array], Z: str | None) -> tuple[str, str] | None:
        """Add a Mahalanobis distance, or a residual, and its shares."""
        if "root" in arrays:
            W = self.add("MatMul", Z, self.const(arrays["root"]))
            squares = self.add("Mul", W, W)
            return self.total(squares), self.normed(squares)
        if "components" not in arrays:
            return None
        components = arrays["components"]
        T = self.add("MatMul", Z, self.const(components.T))
        R = self.add("Sub", Z, self.add("MatMul", T, self.const(components)))
        W = self.add("Mul", R, self.const(np.sqrt(arrays["outside"])))
        if "inside" in arrays:
            inside = self.add("Mul", T, self.const(np.sqrt(arrays["inside"])))
            W = self.add("Add", W, self.add("MatMul", inside, self.const(components)))
        squares = self.add("Mul", W, W)
        return self.total(squares), self.normed(squares)

    def by_centers(self, arrays: Mapping[str, Array], Z: str | None) -> tuple[str, str] | None:
        """Add the mean distance to the two nearest centres, and its shares."""
        if "centers" not in arrays:
            return None
        centers = arrays["centers"]
        most = self.ints([min(_NEAREST, len(centers))])
        wide = self.add("Unsqueeze", Z, self.ints([1]))
        D = self.add("Sub", wide, self.const(centers[None]))
        squares = self.add("Mul", D, D)
        distances = self.add("Sqrt", self.add("ReduceSum", squares, self.ints([2]), keepdims=0))
        nearest, places = f"nearest_{len(self.nodes)}", f"places_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node("TopK", [distances, most], [nearest, places], axis=1, largest=0))
        score = self.add("ReduceMean", nearest, self.ints([1]), keepdims=0)
        own = self.add("GatherND", squares, self.add("Unsqueeze", places, self.ints([2])), batch_dims=1)
        divisor = self.add("Unsqueeze", self.add("Max", nearest, self.tiny()), self.ints([2]))
        parts = self.add("ReduceSum", self.add("Div", own, divisor), self.ints([1]), keepdims=0)
        return score, self.normed(parts)

    def by_trees(self, arrays: Mapping[str, Array]) -> tuple[str, str] | None:
        """Add the score by random trees: an ensemble that returns a depth, and one for each column's share."""
        if "features" not in arrays:
            return None
        depths, d = arrays["depths"], len(arrays["columns"])
        # The operator has a column and a cut for each node; all nodes of a level have the same.
        times = 2 ** np.arange(arrays["cuts"].shape[1])
        features, cuts = (np.repeat(arrays[name], times, axis=1) for name in ("features", "cuts"))
        trees = len(cuts)
        parts = _leaf_parts(arrays, d) / trees
        # The operator returns single precision: sums of the leading bits are exact, and those of the rest are small.
        leading = np.rint(depths * _BITS) / _BITS
        values = np.concatenate([leading[:, :, None], (depths - leading)[:, :, None], parts], axis=2)
        found = self.trees(features, cuts, values)
        depth = self.total(self.add("Gather", found, self.const(np.arange(2)), axis=1))
        columns = self.add("Gather", found, self.const(np.arange(2, d + 2)), axis=1)
        minus = self.add("Div", depth, self.const(-trees * arrays["usual"]))
        two = self.const(np.float64(2.0))
        return self.add("Pow", two, minus), self.normed(columns)

    def trees(self, features: Array, cuts: Array, values: Array) -> str:
        """Add full trees whose leaves have `values` (n_trees, leaves, m); return their sums (n, m)."""
        n, inner = cuts.shape
        leaves, m = values.shape[1:]
        nodes = inner + leaves
        ids = np.tile(np.arange(nodes), n)
        tree = np.repeat(np.arange(n), nodes)
        is_leaf = ids >= inner
        wide_cuts, wide_features = np.zeros((n, nodes)), np.zeros((n, nodes), dtype=np.int64)
        wide_cuts[:, :inner], wide_features[:, :inner] = cuts, features
        helper, made = self.onnx.helper, f"trees_{len(self.nodes)}"
        leaf_of, target = np.repeat(inner + np.arange(leaves), m), np.tile(np.arange(m), leaves)

        def numbers(name: str, array: Array) -> dict[str, Any]:
            flat = array.ravel().astype(np.float64)
            return {f"{name}_as_tensor": helper.make_tensor(name, self.double, flat.shape, flat.tolist())}

        self.nodes.append(
            helper.make_node(
                "TreeEnsembleRegressor",
                ["X"],
                [made],
                domain="ai.onnx.ml",
                n_targets=m,
                aggregate_function="SUM",
                post_transform="NONE",
                nodes_treeids=tree.tolist(),
                nodes_nodeids=ids.tolist(),
                nodes_featureids=wide_features.ravel().tolist(),
                nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_GTE").tolist(),
                nodes_truenodeids=np.where(is_leaf, 0, 2 * ids + 2).tolist(),
                nodes_falsenodeids=np.where(is_leaf, 0, 2 * ids + 1).tolist(),
                target_treeids=np.repeat(np.arange(n), leaves * m).tolist(),
                target_nodeids=np.tile(leaf_of, n).tolist(),
                target_ids=np.tile(target, n).tolist(),
                **numbers("nodes_values", wide_cuts),
                **numbers("target_weights", values),
            )
        )
        return self.add("Cast", made, to_type=self.double)

    def rank(self, score: str, j: int, arrays: Mapping[str, Array]) -> str:
        """Add the rank of a member's score: between two edges, and beyond the last one by its distance."""
        edges, ranks = arrays["edges"][j], arrays["ranks"][j]
        inside = self.add("Clip", score, self.const(edges[0]), self.const(edges[-1]))
        column = self.add("Unsqueeze", inside, self.ints([1]))
        at_least = self.add("GreaterOrEqual", column, self.const(edges[:-1]))
        reached = self.add("Cast", at_least, to_type=self.onnx.TensorProto.INT64)
        place = self.add("Sub", self.add("ReduceSum", reached, self.ints([1]), keepdims=0), self.const(np.int64(1)))
        steps = np.diff(ranks) / np.diff(edges)
        low, base, slope = (
            self.add("Gather", self.const(values), place, axis=0) for values in (edges[:-1], ranks[:-1], steps)
        )
        between = self.add("Add", base, self.add("Mul", self.add("Sub", inside, low), slope))
        beyond = self.add("Max", self.add("Sub", score, self.const(arrays["high"][j])), self.const(np.float64(0.0)))
        one = self.const(np.float64(1.0))
        tail = self.add("Log", self.add("Add", self.add("Div", beyond, self.const(arrays["width"][j])), one))
        return self.add("Add", between, tail)

    def total(self, squares: str) -> str:
        """Add the sum over the columns."""
        return self.add("ReduceSum", squares, self.ints([1]), keepdims=0)

    def normed(self, parts: str) -> str:
        """Add shares that sum to 1."""
        total = self.add("ReduceSum", parts, self.ints([1]), keepdims=1)
        return self.add("Div", parts, self.add("Max", total, self.tiny()))

    def tiny(self) -> str:
        """Add the smallest divisor."""
        return self.const(np.float64(1e-30))

    def const(self, value: Any) -> str:
        """Add a constant."""
        array = np.asarray(value)
        array = np.array(array, dtype=np.float64 if array.dtype.kind == "f" else np.int64, order="C")
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def ints(self, values: list[int]) -> str:
        """Add a list of whole numbers."""
        return self.const(np.array(values, dtype=np.int64))

    def add(
        self, operator: str, *inputs: str | None, to: str | None = None, to_type: int | None = None, **more: Any
    ) -> str:
        """Add a node, and return the name of its output."""
        name = to or f"value_{len(self.nodes)}"
        if to_type is not None:
            more["to"] = to_type
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **more))
        return name

    def label_encoder(self, cells: str, keys: list[str], values: list[int], default: int) -> str:
        """Add the whole number that each text has, or `default`."""
        more = {"keys_strings": keys, "values_int64s": values, "default_int64": default}
        name = f"labels_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node("LabelEncoder", [cells], [name], domain="ai.onnx.ml", **more))
        return name

    def inputs(self, arrays: Mapping[str, Array], kind: int) -> dict[str, tuple[Any, list[str]]]:
        """Return the inputs of the graph by name, each with its type and the columns that it has."""
        if not self.encodes:
            return {"rows": (kind, [str(name) for name in arrays["columns"]])}
        columns, text = arrays[f"{PREFIX}columns"], arrays[f"{PREFIX}text"].astype(bool)
        both = {"numbers": (kind, columns[~text]), "texts": (self.onnx.TensorProto.STRING, columns[text])}
        return {name: (of, [str(column) for column in own]) for name, (of, own) in both.items() if len(own)}

    def model(self, arrays: Mapping[str, Array]) -> bytes:
        """Return the serialized model; its properties have the names of the columns."""
        d = len(arrays["columns"])
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        outputs = [
            helper.make_tensor_value_info("score", kind, ["n"]),
            helper.make_tensor_value_info("alarm", kinds.BOOL, ["n"]),
            helper.make_tensor_value_info("shares", kind, ["n", d]),
            helper.make_tensor_value_info("top_features", kinds.INT64, ["n", min(_TOP, d)]),
        ]
        given = self.inputs(arrays, kind)
        inputs = [helper.make_tensor_value_info(name, of, ["n", len(own)]) for name, (of, own) in given.items()]
        graph = helper.make_graph(self.nodes, "detector", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _TREES)]
        made = helper.make_model(graph, opset_imports=opsets, producer_name="fedspan", ir_version=8)
        named = {name: own for name, (_, own) in given.items()}
        named["columns"] = [str(name) for name in arrays["columns"]]
        helper.set_model_props(made, {name: json.dumps(own) for name, own in named.items()})
        self.onnx.checker.check_model(made)
        found: bytes = made.SerializeToString()
        return found


def _leaf_parts(arrays: Mapping[str, Array], d: int) -> Array:
    """Return what a row in each leaf gives each column (n_trees, leaves, d): gains on its path, over its depth."""
    features, gains, depths = arrays["features"], arrays["gains"], arrays["depths"]
    trees, leaves = depths.shape
    parts, weight = np.zeros((trees, leaves, d)), 1.0 / np.maximum(depths, 1.0)
    tree, leaf = np.arange(trees)[:, None], np.arange(leaves)[None]
    node = np.broadcast_to(np.arange(leaves) + leaves - 1, (trees, leaves))
    for feature in features.T[::-1]:
        parts[tree, leaf, feature[:, None]] += weight * gains[tree, node]
        node = (node - 1) // 2
    return parts
