"""Running error analysis: float64 values with a bound on what any allowed execution may differ by.

For every element `error` bounds |r - data| over all results r that the numerics table of the language allows: operations rounded
or contracted, narrow floats rounded after each operation or kept wider, sums in any order, functions with their errors in ulps,
denormals flushed under `math = fast`. One ulp of r is at most 2^-23 |r| in f32. The analysis is that of Higham, *Accuracy and
Stability of Numerical Algorithms*, section 3.3, first order replaced by intervals where a function is monotone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilec.ir.dtypes import F32, DType
from tilec.ir.tile_ir import ElementwiseName
from tilec.reference import elementwise
from tilec.reference.arithmetic import Arithmetic, to_tf32
from tilec.reference.numbers import Array, greatest, least_normal, round_to
from tilec.reference.tiles import Tile, along, intersect, replace_absent, widen

COARSE = 2.0**-10.5
"""Absolute error of tanh, sigmoid, erf, sin, cos whose result flows only into 16 bits or fewer (`math = fast`)."""

PLAIN = 2.0**-60
"""A bound beside which the least normal float32 is nothing: `PLAIN + 2**-126 == PLAIN`."""

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_COARSE = frozenset({"tanh", "sigmoid", "erf", "sin", "cos"})
_STEPS = frozenset({"floor", "ceil", "round"})


class BoundedArithmetic(Arithmetic):
    """The interpreter's arithmetic with bounds. `strict` chooses the columns of the numerics table."""

    bounded = True

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict

    def number(self, value: bool | int | float, dtype: DType) -> Tile:
        """A scalar; what a float type cannot hold is rounded."""
        if not dtype.is_float:
            return super().number(value, dtype)
        return self.settle(np.asarray(float(value), np.float64), None, dtype)

    # ---- rounding

    def settle(self, value: Array, error: Array | None, dtype: DType) -> Tile:
        """Round to `dtype`: the bound covers the rounded and the unrounded result."""
        value = np.asarray(value, np.float64)
        if error is not None:
            error = np.asarray(error, np.float64)
            if 8 < dtype.bits < 64 and value.ndim and error.shape == value.shape:
                usual = self.usual(value, error, dtype)
                if usual is not None:
                    return usual
            if not error.any():
                error = None
        if dtype.bits == 64:
            total = np.abs(value) * 2.0**-51 + (0.0 if error is None else error * (1 + 2.0**-50))
            return Tile(value, (), _clean(value, total, error))
        if dtype.bits == 8 and not np.isnan(value).all():
            value = np.clip(value, -greatest(dtype), greatest(dtype))
        if error is None:
            rounded = _rounded(value, dtype)
            total = np.abs(rounded - value)
            overflow = np.isinf(rounded) & np.isfinite(value)
        else:
            error = error * (1 + 2.0**-40)
            low, high = _rounded(value - error, dtype), _rounded(value + error, dtype)
            total = np.maximum(error, np.maximum(np.abs(high - value), np.abs(value - low)))
            overflow = np.isinf(low) & np.isinf(high) & (low == high) & np.isfinite(value)
        if overflow.any():
            value = np.where(overflow, np.copysign(np.inf, value), value)
            # with excess precision a 16-bit intermediate need not overflow
            total = np.where(overflow, 0.0 if self.strict or dtype.exponent == 8 else np.inf, total)
        if not self.strict:
            size = np.abs(value)
            flushed = (size > 0) & (size - total < least_normal(F32))
            if flushed.any():
                total = np.where(flushed, np.maximum(total, size), total)
        return Tile(value, (), _clean(value, total, error))

    def usual(self, value: Array, error: Array, dtype: DType) -> Tile | None:
        """What `settle` gives where all is finite and each bound so far from 0 that neither overflow nor a flushed denormal
        changes it; None elsewhere. With a third of the passes over the elements."""
        error = error * (1 + 2.0**-40)
        end = value - error
        total = np.maximum(error, np.subtract(value, round_to(end, dtype), out=end))
        np.add(value, error, out=end)
        np.maximum(total, np.subtract(round_to(end, dtype), value, out=end), out=total)
        # what is no number, or overflows, is in the greatest bound
        plain = total.size and np.isfinite(total.max()) and total.min() >= PLAIN
        return Tile(value, (), total) if plain else None

    # ---- element by element

    def tidy(self, op: ElementwiseName, args: Sequence[Tile], dtype: DType, narrow: bool) -> Tile:
        """Value and bound of an element-wise op."""
        exact = all(a.error is None for a in args)
        if op in _COMPARISONS:
            return self.compare(op, args)
        if op == "where":
            return _select(*args)
        if op == "sub_if":
            moved = self.tidy("sub", args[:2], dtype, narrow)
            return _select(args[2], moved, args[0])
        if not dtype.is_float:
            result = super().tidy(op, args, dtype, narrow)
            return result if exact else Tile(result.data, (), _integer_error(op, args, result.data))
        with np.errstate(all="ignore"):
            return self.real(op, args, dtype, narrow)

    def compare(self, op: ElementwiseName, args: Sequence[Tile]) -> Tile:
        """A comparison is uncertain where the operands' intervals touch."""
        a, b = args
        data = elementwise.evaluate(op, [a.data, b.data])
        if a.error is None and b.error is None:
            return Tile(data)
        reach = _error(a) + _error(b)
        distance = np.abs(a.data.astype(np.float64) - b.data)
        unordered = np.isnan(a.data) | np.isnan(b.data)
        doubtful = (reach > 0) & ~(distance > reach) & ~(unordered & np.isfinite(reach))
        return Tile(data, (), doubtful.astype(np.float64) if doubtful.any() else None)

    def real(self, op: ElementwiseName, args: Sequence[Tile], dtype: DType, narrow: bool) -> Tile:
        """An op whose result is a float."""
        data = [np.asarray(a.data, np.float64) for a in args]
        value = np.asarray(elementwise.evaluate(op, data), np.float64)
        errors = [a.error for a in args]
        exact = all(e is None for e in errors)
        match op:
            case "neg" | "abs":
                return Tile(value, (), errors[0])
            case "min" | "max":
                if exact:
                    return Tile(value)
                return Tile(value, (), _clean(value, np.maximum(*map(_error, args)), _any(args)))
            case "floor" | "ceil" | "round":
                return self.step(op, data[0], value, errors[0])
            case "add" | "sub":
                error = None if exact else _error(args[0]) + _error(args[1])
                result = self.settle(value, error, dtype)
                return Tile(result.data, (), result.error, _sizes(args[0]) + _sizes(args[1]))
            case "mul":
                error = None if exact else _product_error(*args)
                result = self.settle(value, error, dtype)
                for one, other in (args, args[::-1]):
                    if one.spread is not None and other.data.ndim == 0:
                        spread = one.spread * np.abs(other.data)
                        return Tile(result.data, (), result.error, spread)
                return result
            case "fma":
                error = None if exact else _product_error(args[0], args[1]) + _error(args[2])
                if dtype.bits == 64:
                    # here the product is rounded before the sum, in a fused operation it is not
                    own = 2.0**-53 * np.abs(data[0] * data[1])
                    error = own if error is None else error + own
                return self.settle(value, error, dtype)
            case "div":
                return self.settle(value, self.quotient_error(args, value, dtype), dtype)
            case "floordiv" | "mod":
                return self.floored(op, args, value, dtype)
            case "pow":
                return self.power(args, value, dtype)
            case _:
                return self.function(op, args[0], value, dtype, narrow)

    def step(self, op: str, x: Array, value: Array, error: Array | None) -> Tile:
        """floor, ceil, round: exact, unless the argument's interval crosses a step."""
        if error is None:
            return Tile(value)
        function = {"floor": np.floor, "ceil": np.ceil, "round": np.rint}[op]
        total = np.maximum(function(x + error) - value, value - function(x - error))
        return Tile(value, (), _clean(value, total, error))

    def ulp(self, dtype: DType) -> float:
        """Greatest ulp of a result of magnitude 1 in the type that functions are evaluated in; twice that of f64, because the value
        beside the bound is no better than f64 itself."""
        return 2.0**-51 if dtype.bits == 64 else 2.0**-23

    def quotient_error(self, args: Sequence[Tile], quotient: Array, dtype: DType) -> Array | None:
        """(ea + |q| eb) / (|b| - eb) and 4 ulp under `fast`."""
        own = 0.0 if self.strict else 4 * self.ulp(dtype)
        total = np.abs(quotient) * own
        if args[0].error is not None or args[1].error is not None:
            ea, eb = _error(args[0]), _error(args[1])
            room = np.abs(args[1].data) - eb
            spread = (ea + np.abs(quotient) * eb) / room
            spread = np.where((room <= 0) & (eb > 0), np.inf, np.where(ea + eb == 0, 0.0, spread))
            total = total * 1.001 + spread
        total = np.where(np.isfinite(quotient), total, 0.0)
        doubtful = (_error(args[1]) >= np.abs(args[1].data)) & (_error(args[1]) > 0)
        doubtful = doubtful | ~np.isfinite(_error(args[0])) | ~np.isfinite(_error(args[1]))
        return np.where(doubtful, np.inf, total)

    def floored(self, op: str, args: Sequence[Tile], value: Array, dtype: DType) -> Tile:
        """x // y and x % y of floats: uncertain where the quotient may cross an integer."""
        quotient = np.asarray(args[0].data / args[1].data)
        reach = self.quotient_error(args, quotient, dtype)
        reach = np.zeros_like(quotient) if reach is None else reach
        whole = np.floor(quotient)
        jump = np.maximum(np.floor(quotient + reach) - whole, whole - np.floor(quotient - reach))
        if op == "floordiv":
            return self.settle(value, jump, dtype)
        divisor = np.abs(args[1].data) + _error(args[1])
        total = _error(args[0]) + np.abs(whole) * _error(args[1]) + jump * divisor
        return self.settle(value, total + np.abs(whole * args[1].data) * self.ulp(dtype), dtype)

    def power(self, args: Sequence[Tile], value: Array, dtype: DType) -> Tile:
        """x ** y as exp2(y log2 x): 8 ulp and 2 ulp of the exponent, and the corners of the arguments' intervals."""
        base, exponent = (np.asarray(a.data, np.float64) for a in args)
        size = np.abs(exponent * np.log2(np.abs(base)))
        size = np.where(np.isfinite(size), size, 0.0)
        total = np.abs(value) * self.ulp(dtype) * (8 + 2 * size)
        if any(a.error is not None for a in args):
            corner = np.zeros_like(value)
            for sign in (-1, 1):
                for other in (-1, 1):
                    moved = np.power(
                        base + sign * _error(args[0]), exponent + other * _error(args[1])
                    )
                    corner = np.maximum(corner, np.abs(moved - value))
            total = total + corner
        return self.settle(value, np.where(np.isfinite(value), total, 0.0), dtype)

    def function(self, op: str, arg: Tile, value: Array, dtype: DType, narrow: bool) -> Tile:
        """A function of one argument: its own error from the table, and how far the argument's error moves it."""
        x = np.asarray(arg.data, np.float64)
        own = np.abs(value) * self.function_ulps(op, x, arg.spread) * self.ulp(dtype)
        if not self.strict:
            if op in ("log", "log2"):
                own = np.maximum(own, 2.0**-21 if dtype.bits < 64 else 2.0**-50)
            if narrow and op in _COARSE:
                own = np.maximum(own, COARSE)
        own = np.where(np.isfinite(value) & (value != 0), own, 0.0)
        if op in ("log", "log2", "sin", "cos", "tanh", "erf", "sigmoid"):
            exact_zero = (value == 0) & ((x == 0) | ((x == 1) & (op in ("log", "log2"))))
            own = np.where(exact_zero, 0.0, own)
        if arg.error is not None:
            own = own + self.moved(op, x, arg.error, value)
        return self.settle(value, own, dtype)

    def function_ulps(self, op: str, x: Array, spread: Array | None) -> Array | float:
        """The table's figure. A sum as the argument of exp may be folded into FMAs, so its terms count."""
        if self.strict:
            return 0.5 if op == "sqrt" else 1.0
        match op:
            case "exp":
                size = np.abs(x) if spread is None else np.maximum(np.abs(x), spread)
                return 2.0 + 1.2 * np.where(np.isfinite(size), size, 0.0)
            case "exp2" if spread is not None:
                return 4.0 + np.where(np.isfinite(spread), spread, 0.0)
            case "sqrt" | "rsqrt" | "exp2" | "log" | "log2":
                return 4.0
            case _:
                return 8.0

    def moved(self, op: str, x: Array, error: Array, value: Array) -> Array:
        """Greatest change of a function when its argument moves by `error`."""
        if op in ("exp", "exp2"):
            # the value of what lies far below 0 is 0, and stays so
            end = np.abs(elementwise.FUNCTIONS[op](x + error) - value)
            near = np.abs(value) * np.expm1(error if op == "exp" else error * np.log(2.0))
            change = np.where(error > 1, end, near)
        elif op in ("sin", "cos"):
            change = np.minimum(error, 2.0)
        else:
            function = elementwise.FUNCTIONS[op]
            ends = [np.abs(function(x + error) - value), np.abs(function(x - error) - value)]
            change = np.maximum(*ends)
        change = np.where(np.isfinite(value) | np.isinf(error), change, 0.0)
        if op in ("log", "log2", "sqrt", "rsqrt"):
            # the argument may be on either side of the end of the domain
            change = np.where((error > 0) & (np.abs(x) <= error), np.inf, change)
            if op == "sqrt":
                change = np.where((error > 0) & (x == 0), np.inf, change)
        return np.where(np.isnan(change), np.inf, change)

    # ---- conversions

    def cast(self, tile: Tile, source: DType, target: DType) -> Tile:
        """A conversion keeps the unrounded value and counts the rounding as error; to an integer it may jump."""
        if target.is_float:
            value = np.asarray(tile.data, np.float64)
            # a distance of indices is one of a tile's first elements, and one inside of the tile
            spread = None if source.is_float else np.abs(value) + sum(value.shape)
            if source.is_float and tile.error is None and not _narrows(source, target):
                return Tile(value, tile.present)
            result = self.settle(value, tile.error, target)
            return Tile(result.data, tile.present, result.error, spread)
        data = elementwise.convert(tile.data, source, target)
        if tile.error is None:
            return Tile(data, tile.present)
        middle = data.astype(np.float64)
        known = np.where(np.isfinite(tile.error), tile.error, 0.0)
        ends = [
            elementwise.convert(np.asarray(tile.data + sign * known), source, target)
            for sign in (-1, 1)
        ]
        error = np.maximum(*(np.abs(e.astype(np.float64) - middle) for e in ends))
        error = np.where(np.isfinite(tile.error), error, np.inf)
        if target.kind == "bool":
            error = ((tile.error > 0) & (np.abs(tile.data) <= tile.error)).astype(np.float64)
        return Tile(data, tile.present, error if error.any() else None)

    def bitcast(self, tile: Tile, source: DType, target: DType) -> Tile:
        """Bits of an uncertain value are unknown."""
        data = tile.data
        if source.is_float:
            data = round_to(data, source)
        result = super().bitcast(Tile(data, tile.present), source, target)
        value = result.data.astype(np.float64) if target.is_float else result.data
        error = None if tile.error is None else np.where(tile.error > 0, np.inf, 0.0)
        return Tile(value, tile.present, error)

    # ---- along an axis

    def reduce(self, op: str, tile: Tile, axes: Sequence[int], dtype: DType) -> Tile:
        """A reduction; a sum of n elements in any order errs by (n-1) u sum|x| (Higham, section 4.2)."""
        arg = op in ("argmax", "argmin")
        if not dtype.is_float and tile.error is None and not arg:
            return super().reduce(op, tile, axes, dtype)
        over = tuple(axes)
        kept = tuple(m for n, m in enumerate(tile.present) if n not in axes)
        if arg:
            return self.arg_reduce(op, tile, axes[0], kept)
        neutral = elementwise.identity(op, dtype)
        data = replace_absent(tile.data, tile.present, axes, neutral)
        error = None
        if tile.error is not None:
            error = replace_absent(tile.error, tile.present, axes, 0.0)
        if not dtype.is_float:
            exact = super().reduce(op, Tile(tile.data, tile.present), axes, dtype)
            if error is None:
                return exact
            total = np.sum(error, over) if op == "sum" else np.max(error, over, initial=0.0)
            return Tile(exact.data, kept, total)
        count = 1
        for axis in over:
            count *= data.shape[axis]
        unit = self.ulp(dtype) / 2
        moved = 0.0 if error is None else error
        match op:
            case "max" | "min":
                function = np.max if op == "max" else np.min
                value = np.asarray(function(data, over, initial=neutral))
                if error is None:
                    return Tile(value, kept)
                bound = np.max(error, over, initial=0.0)
                return Tile(value, kept, _clean(value, bound, bound))
            case "sum":
                value = np.asarray(np.sum(data, over))
                size = np.sum(np.abs(data) + moved, over)
                total = max(count - 1, 0) * unit * size
                total = total + (0.0 if error is None else np.sum(error, over))
                total = _in_any_order(value, size, total, dtype)
            case "prod":
                value = np.asarray(np.prod(data, over))
                size = np.prod(np.abs(data) + moved, over)
                total = size * np.exp(count * unit) - np.abs(value)
            case _:
                raise KeyError(op)
        result = self.settle(value, np.where(np.isfinite(value), total, 0.0), dtype)
        if error is not None:
            doubtful = np.isinf(np.max(error, over, initial=0.0))
            return Tile(result.data, kept, _nonzero(np.where(doubtful, np.inf, _error(result))))
        return Tile(result.data, kept, result.error)

    def arg_reduce(self, op: str, tile: Tile, axis: int, kept: tuple[object, ...]) -> Tile:
        """The index is unknown where another element may be as extreme, and where nothing is present."""
        neutral = elementwise.identity(op, F32)
        floats = tile.data.dtype.kind == "f"
        data = replace_absent(tile.data, tile.present, (axis,), neutral) if floats else tile.data
        index = self.arg_extreme(op, data, tile.present[axis], axis)
        present = tuple(m for n, m in enumerate(tile.present) if n != axis)
        mask = tile.present[axis]
        if not data.shape[axis] or (mask is not None and not mask.any()):
            return Tile(index, present, np.full(index.shape, np.inf))
        if tile.error is None:
            return Tile(index, present)
        sign = 1.0 if op == "argmax" else -1.0
        error = replace_absent(tile.error, tile.present, (axis,), 0.0)
        where = np.expand_dims(index, axis)
        floor = np.take_along_axis(sign * data - error, where, axis)
        rival = (sign * data + error >= floor) & (
            error + np.take_along_axis(error, where, axis) > 0
        )
        np.put_along_axis(rival, where, False, axis)
        doubtful = rival.any(axis)
        return Tile(index, present, np.where(doubtful, np.inf, 0.0) if doubtful.any() else None)

    def scan(self, op: str, tile: Tile, axis: int, dtype: DType) -> Tile:
        """A running sum errs like the sum of what it holds."""
        if not dtype.is_float:
            return super().scan(op, tile, axis, dtype)
        data = replace_absent(tile.data, tile.present, (axis,), elementwise.identity(op, dtype))
        error = np.zeros_like(data)
        if tile.error is not None:
            error = replace_absent(tile.error, tile.present, (axis,), 0.0)
        if op == "max":
            value = np.maximum.accumulate(data, axis)
            return Tile(value, tile.present, _nonzero(np.maximum.accumulate(error, axis)))
        value = np.add.accumulate(data, axis)
        shape = [-1 if n == axis else 1 for n in range(data.ndim)]
        count = np.arange(data.shape[axis]).reshape(shape)
        mass = np.add.accumulate(np.abs(data) + error, axis)
        total = count * (self.ulp(dtype) / 2) * mass + np.add.accumulate(error, axis)
        total = _in_any_order(value, mass, total, dtype)
        # a scan in blocks adds and takes away block totals: twice the sequential bound covers it
        result = self.settle(value, np.where(np.isfinite(value), 2 * total, 0.0), dtype)
        return Tile(result.data, tile.present, result.error)

    def topk(self, tile: Tile, axis: int, k: int, dtype: DType) -> tuple[Tile, Tile]:
        """The k-th greatest moves by at most the greatest error. Its index is known where it is further than that from its neighbours."""
        if tile.error is None:
            return super().topk(tile, axis, k, dtype)
        more, places = super().topk(tile, axis, k + 1, dtype)
        kept = np.arange(k)
        values, indices = more.data.take(kept, axis), places.data.take(kept, axis)
        error = replace_absent(tile.error, tile.present, (axis,), 0.0)
        reach = np.max(error, axis, keepdims=True, initial=0.0)
        apart = more.data.take(kept, axis) - more.data.take(kept + 1, axis) > 2 * reach
        known = apart & (
            apart.take(np.maximum(kept - 1, 0), axis) | along(kept == 0, axis, apart.ndim)
        )
        own = np.take_along_axis(
            np.broadcast_to(error, tile.data.shape), np.maximum(indices, 0), axis
        )
        bound = np.where(known & (indices >= 0), own, reach)
        unknown = ~known & np.broadcast_to(reach > 0, known.shape)
        return (
            Tile(values, more.present, _clean(values, bound, bound)),
            Tile(indices, more.present, np.where(unknown, np.inf, 0.0)),
        )

    def dot(
        self,
        a: Tile,
        b: Tile,
        types: tuple[DType, DType, DType],
        accumulate: Tile | None,
        precision: str,
    ) -> Tile:
        """K additions, each truncated to an ulp as tensor cores do; f8 by the table's 2^-13 K max|a| max|b|."""
        dtype = types[2]
        left, right, present = self.operands(a, b)
        left, right = left.astype(np.float64), right.astype(np.float64)
        ea = None if a.error is None else _masked_error(a, left)
        eb = None if b.error is None else _masked_error(b, right)
        if dtype.is_integer:
            exact = super().dot(a, b, types, accumulate, precision)
            error = _error_of_product(left, right, ea, eb)
            if accumulate is not None:
                error = error + _error(accumulate)
            error = np.broadcast_to(error, exact.data.shape)
            return Tile(exact.data, exact.present, _nonzero(error))
        depth = left.shape[-1]
        value = np.asarray(np.matmul(left, right))
        size = np.matmul(np.abs(left), np.abs(right))
        if precision == "tf32":
            ea = (0.0 if ea is None else ea) + np.abs(to_tf32(left) - left) * 2
            eb = (0.0 if eb is None else eb) + np.abs(to_tf32(right) - right) * 2
        total = _error_of_product(left, right, ea, eb)
        if accumulate is not None:
            value = value + accumulate.data
            size = size + np.abs(accumulate.data) + _error(accumulate)
            total = total + _error(accumulate)
            present = intersect([accumulate, Tile(value, present)])
        # total + (K + 1) ulp (size + total)
        size = size + total
        total = _in_any_order(value, size, total, dtype)
        size *= (depth + (accumulate is not None)) * self.ulp(dtype)
        total = np.asarray(size + total)
        if types[0].bits == 8 and types[0].is_float and depth:
            rows = np.max(np.abs(left), -1, keepdims=True)
            columns = np.max(np.abs(right), -2, keepdims=True)
            total = total + 2.0**-13 * depth * rows * columns
        if not np.isfinite(np.max(total, initial=0.0)) or not np.isfinite(value).all():
            doubtful = ~np.isfinite(total)
            total = np.where(np.isfinite(value) | doubtful, total, 0.0)
        result = self.settle(value, np.asarray(total), dtype)
        return Tile(result.data, widen(present, value.shape), result.error)


def _in_any_order(value: Array, size: Array, total: Array | float, dtype: DType) -> Array:
    """The bound `total` of a sum whose terms' sizes add up to `size`: infinite where the order decides which partial sums leave the
    type, and so whether the result is the sum, an infinity of either sign, or NaN."""
    limit = greatest(dtype)
    if not size.size or np.max(size) <= limit:
        return np.asarray(total)
    mixed = np.isfinite(size) & (size > limit) & (np.abs(value) < size * (1 - 2.0**-30))
    return np.where(mixed, np.inf, total)


def _error_of_product(
    left: Array, right: Array, ea: Array | None, eb: Array | None
) -> Array | float:
    """What the errors of factors, `ea` and `eb`, make of exact sums of their products."""
    total: Array | float = 0.0
    if ea is not None:
        total = np.matmul(ea, np.abs(right))
    if eb is not None:
        total = total + np.matmul(np.abs(left) + (0.0 if ea is None else ea), eb)
    return total


def _rounded(value: Array, dtype: DType) -> Array:
    return round_to(value, dtype).astype(np.float64)


def _error(tile: Tile) -> Array:
    return np.zeros(()) if tile.error is None else tile.error


def _any(args: Sequence[Tile]) -> Array | None:
    """Greatest error among the arguments."""
    total: Array | None = None
    for arg in args:
        if arg.error is not None:
            total = arg.error if total is None else np.maximum(total, arg.error)
    return total


def _nonzero(error: Array) -> Array | None:
    return error if error.any() else None


def _clean(value: Array, total: Array, given: Array | None) -> Array | None:
    """A certain NaN or infinity has no error; an unknown bound is infinite; all zero is None."""
    total = np.asarray(total)
    odd = ~np.isfinite(value)
    if odd.any():
        certain = odd if given is None else odd & np.isfinite(given)
        total = np.where(certain, 0.0, total)
    if np.isnan(total).any():
        total = np.where(np.isnan(total), np.inf, total)
    return total if total.any() else None


def _product_error(a: Tile, b: Tile) -> Array:
    """|a| eb + |b| ea + ea eb; a factor that may be zero beside an infinite one leaves nothing known."""
    ea, eb = _error(a), _error(b)
    x, y = np.abs(a.data), np.abs(b.data)
    total = x * eb + y * ea + ea * eb
    if ea.any() or eb.any():
        zero_times_infinity = (np.isinf(x) & (eb > 0) & (y <= eb)) | (
            np.isinf(y) & (ea > 0) & (x <= ea)
        )
        unknown = np.isinf(ea) | np.isinf(eb) | zero_times_infinity
        settled = (np.isinf(x) | np.isinf(y)) & ~unknown
        total = np.where(unknown, np.inf, np.where(settled, 0.0, total))
    return np.asarray(total)


def _select(condition: Tile, then: Tile, otherwise: Tile) -> Tile:
    """`where`: an uncertain condition widens to both branches."""
    data = np.where(condition.data, then.data, otherwise.data)
    spread = None
    if then.spread is not None or otherwise.spread is not None:
        spread = np.where(condition.data, _sizes(then), _sizes(otherwise))
    if condition.error is None and then.error is None and otherwise.error is None:
        return Tile(data, (), None, spread)
    ea, eb = _error(then), _error(otherwise)
    error = np.where(condition.data, ea, eb)
    if condition.error is not None:
        with np.errstate(all="ignore"):
            apart = np.abs(np.asarray(then.data, np.float64) - otherwise.data)
        same = (then.data == otherwise.data) | (np.isnan(then.data) & np.isnan(otherwise.data))
        apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
        other = np.where(condition.data, eb, ea)
        error = np.where(condition.error > 0, np.maximum(error, apart + other), error)
    return Tile(data, (), _nonzero(error), spread)


def _sizes(tile: Tile) -> Array:
    """The sizes of a tile's terms."""
    return np.abs(tile.data, dtype=np.float64) if tile.spread is None else tile.spread


def _integer_error(op: str, args: Sequence[Tile], data: Array) -> Array | None:
    """Integers and bools that came from uncertain floats."""
    errors = [np.broadcast_to(_error(a), data.shape) for a in args]
    if data.dtype.kind == "b":
        if op in ("and", "or"):
            # a certain operand may decide alone
            deciding = op == "or"
            decided = np.zeros(data.shape, np.bool_)
            for arg, error in zip(args, errors, strict=True):
                decided |= (arg.data == deciding) & (error == 0)
            return _nonzero(np.where(decided, 0.0, np.maximum(*errors)))
        return _nonzero(np.maximum.reduce(errors))
    match op:
        case "add" | "sub":
            return _nonzero(errors[0] + errors[1])
        case "neg" | "abs":
            return _nonzero(errors[0])
        case "min" | "max":
            return _nonzero(np.maximum(*errors))
        case "mul":
            return _nonzero(_product_error(*(_real(a) for a in args)))
        case _:
            return _nonzero(np.where(np.maximum.reduce(errors) > 0, np.inf, 0.0))


def _real(tile: Tile) -> Tile:
    return Tile(tile.data.astype(np.float64), tile.present, tile.error)


def _narrows(source: DType, target: DType) -> bool:
    return target.mantissa < source.mantissa or target.exponent < source.exponent


def _masked_error(tile: Tile, cleared: Array) -> Array:
    """Errors of an operand, none where it was cleared or is no number."""
    assert tile.error is not None
    return np.where((cleared == 0) & ~np.isfinite(tile.data), 0.0, tile.error)
