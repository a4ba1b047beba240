"""Codes E02, E03, E04 and W02: names, extents, dtypes, presence; with E050 and E075, what analysis and plan say of the same."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {
    "E0201": CodeEntry(
        "unknown name",
        "A name is used that nothing binds: no parameter, dimension, loop variable, assignment, `fn`, `const` or import, "
        "and no function or dtype of the language. The message proposes the most similar name that is in scope.",
    ),
    "E0202": CodeEntry(
        "name declared twice",
        "Two parameters, outputs or workspaces of a kernel have one name, or a name is a dimension and a parameter: "
        "`kernel k(a: f32[N], a: f32[N])`. Rename one of them.",
    ),
    "E0203": CodeEntry(
        "name that is not bound again",
        "Parameters, dimensions and loop variables keep their meaning: `N = 4` where `N` is a dimension, or "
        "`for i in range(4)` inside a loop over `i`. Choose another name.",
    ),
    "E0204": CodeEntry(
        "dimension that is never bound",
        "A dimension gets its value where it stands alone in a tensor, as `N` in `a: f32[N]`. An expression such as "
        "`b: f32[N // G]` uses it but binds nothing: `G` must be bound elsewhere or be a bracket parameter.",
    ),
    "E0205": CodeEntry(
        "not a dtype",
        "The name before `[` in a tensor parameter, or after `:` in a scalar one, is no dtype and no bracket parameter with a "
        "dtype as its value. Dtypes are bool, i4 to i64, u4 to u64, f8e4m3, f8e5m2, f16, bf16, f32, f64.",
    ),
    "E0206": CodeEntry(
        "recursion",
        "A `fn` calls itself, directly or through others, or a `const` is defined by itself. Functions are expanded where they are "
        "called, so there must be an end; write a loop.",
    ),
    "E0207": CodeEntry(
        "wrong number of arguments",
        "A function, a method, a tuple that is unpacked or a `parallel` loop has more or fewer parts than are given: "
        "`where(c, a)` lacks the third argument.",
    ),
    "E0208": CodeEntry(
        "unknown keyword",
        "The function has no such keyword argument, or it is given twice: `sum(x, axes=1)` must be `sum(x, axis=1)`.",
    ),
    "E0209": CodeEntry(
        "no such attribute, or not a function",
        "`x.y` where `x` has no `y`, a call of something that is no function, or an index on something that has no elements. "
        "A local name hides a function of the same name: after `max = 3`, `max(x)` is a call of 3.",
    ),
    "E0210": CodeEntry(
        "input that is written",
        "Only outputs, `inout` parameters and `temp` workspaces are stored to. Declare the parameter `inout x: f32[N]`, "
        "or name an output.",
    ),
    "E0211": CodeEntry(
        "output that is read",
        "An output holds nothing before it is stored. Keep the value in a name, or declare the tensor `inout`.",
    ),
    "E0212": CodeEntry(
        "name that has ended",
        "A name that a loop's body or one branch of an `if` binds first ends with it. Bind it before: `x = 0.0` ahead of the loop "
        "makes it a carried name.",
    ),
    "E0213": CodeEntry(
        "parallel inside",
        "`parallel` is the grid of instances and stands at the top of a kernel only. Give all its ranges in one statement, "
        "`for i, j in parallel(M by BM, N by BN)`, and use `range` inside.",
    ),
    "E0214": CodeEntry(
        "statement outside parallel",
        "Between the nests of a kernel only compile-time values and sizes are computed. Whatever touches tensors is inside "
        "`for … in parallel(…)`; `parallel(1)` makes a single instance.",
    ),
    "E0215": CodeEntry(
        "bracket parameter without a value",
        "A bracket parameter needs a default or `-D NAME=VALUE`. `auto` is for tile sizes only, since a program parameter is part "
        "of the meaning.",
    ),
    "E0217": CodeEntry(
        "tune or schedule",
        "`tune` lists compile-time values for bracket parameters, `stages` and `warps`; its `where` is decided by them and its `key` "
        "names dimensions. `schedule` sets `stages`, `warps`, `mma` (auto, wmma, mma, wgmma) and `math` (fast, strict).",
    ),
    "E0219": CodeEntry(
        "requirement that does not hold",
        "A `require` or `assert` that speaks of compile-time values only is false, for example `require BM % 16 == 0` with "
        "`BM = 24`. Choose other values.",
    ),
    "E0220": CodeEntry(
        "requirement that cannot be checked",
        "`require` is checked by the launcher before anything runs, so it speaks of dimensions, scalar parameters and bracket "
        "parameters, in comparisons, `and`, `or`, `not` and arithmetic. Values of tensors are checked with `assert`.",
    ),
    "E0221": CodeEntry(
        "not a compile-time value",
        "A `const` and the default of a scalar parameter are literals, other consts and arithmetic of them.",
    ),
    "E0222": CodeEntry(
        "not a value",
        "A tensor, a tuple, a dtype or a function stands where a tile or a scalar is needed: `a + 1` where `a` is a tensor must say "
        "which block, `a[i] + 1`; tuples are unpacked first.",
    ),
    "E0223": CodeEntry(
        "check clause",
        "`check` compares outputs with expressions over whole arrays: `check c == a @ b`, or a block of assignments and "
        "comparisons. The left side of a comparison is an output or an `inout` parameter; loops are `for … in range`.",
    ),
    "E0224": CodeEntry(
        "statement without effect, or wrong target",
        "A statement binds a name, stores to a tensor, or is an atomic update. `x + 1` alone does nothing; a tile's elements are "
        "not assigned to; `atomic_add` has no result.",
    ),
    "E0302": CodeEntry(
        "wrong number of indices",
        "Every dimension has one index: `a` of `[M, K]` is indexed `a[i, k]` or `a[i, :]`, not `a[i]`. A tile takes one `:` "
        "or slice for each axis, with `None` for new axes.",
    ),
    "E0303": CodeEntry(
        "extent without an upper bound",
        "`x[r, :]` is a tile as large as the dimension, so the compiler needs a bound: `require C <= 65536`. Or go over the "
        "dimension in spans: `for c in range(C by 1024)`.",
    ),
    "E0304": CodeEntry(
        "dtypes that do not combine",
        "bf16 with f16, an integer with a float, and u64 with a signed integer have no common dtype here. Convert one: "
        "`x.to(f32)`. Literals and sizes are weak and take the other operand's dtype, but a float literal does not become an integer.",
    ),
    "E0305": CodeEntry(
        "division of integers",
        "`/` is for floats. `//` is the floor of the quotient; `x.to(f32) / n` is the real quotient.",
    ),
    "E0306": CodeEntry(
        "operands of a product",
        "`a @ b` sums over the last axis of `a` and the last but one of `b`; both have at least two axes and these extents are the "
        "same expression. `b.T` swaps the last two axes, `x[None, :]` gives a vector a second one.",
    ),
    "E0307": CodeEntry(
        "run-time extent in a product",
        "A bounded dimension (`x[r, :]`) is no axis of an operand of `@`. Go over it in spans, or make it a bracket parameter.",
    ),
    "E0308": CodeEntry(
        "dtype of a product",
        "Factors are f8 to f64 or 8-bit and 4-bit integers (accumulated in i32); `dot(a, b, as = tf32)` takes f32. Convert with `.to`.",
    ),
    "E0309": CodeEntry(
        "value that does not fit its place",
        "A store takes the shape of the block, with axes of extent 1 or missing leading axes broadcast, or a scalar: "
        "`c[i, j] = x` needs `x` of [BM, BN].",
    ),
    "E0310": CodeEntry(
        "store of another dtype",
        "A store rounds a float to a narrower float by itself. Every other conversion is written: `c[i] = x.to(i32)`.",
    ),
    "E0311": CodeEntry(
        "tile where a scalar is needed",
        "`if`, `and`, `or`, `not`, `a if c else b` and `print` take scalars. Choose element by element with `where(c, a, b)` and "
        "`&`, `|`, `~`; reduce with `any` or `all`.",
    ),
    "E0312": CodeEntry(
        "extents that do not agree",
        "Aligned axes must have the same expression as extent, or the literal 1. Two tile sizes never agree, even if a candidate gives "
        "them one value. Align with `[:, None]`, or use one tile size for both.",
    ),
    "E0313": CodeEntry(
        "axis",
        "The axis does not exist, is named twice, or the function needs a tile with more axes: axes count from 0, and from -1 "
        "backwards.",
    ),
    "E0314": CodeEntry(
        "not an index",
        "A tensor is indexed with spans, integer scalars, integer tiles of one axis and `:`; a tile with `:`, `None` and constant "
        "slices. Tiles of several axes index pointwise: `t.at[i, j]`.",
    ),
    "E0315": CodeEntry(
        "extent that is not known at compile time",
        "What follows `by`, the second argument of `span` and the width of a slice are literals or bracket parameters. A span that is "
        "shorter at run time ends with `until=`.",
    ),
    "E0316": CodeEntry(
        "literal that does not fit",
        "A literal takes the other operand's dtype and must be one of its values: `x + 300` with `x` of u8 needs `x.to(i32) + 300`.",
    ),
    "E0317": CodeEntry(
        "reshape or view",
        "`.reshape` and `.view` keep the number of elements: the products of old and new extents are the same expression.",
    ),
    "E0318": CodeEntry(
        "bitcast",
        "`.bitcast` keeps the bits, so both dtypes have one width, and bool has no other form.",
    ),
    "E0319": CodeEntry(
        "position out of range",
        "A constant index or slice lies outside its dimension. Indices count from 0 and never wrap around.",
    ),
    "E0320": CodeEntry(
        "function of this dtype",
        "The function is not there for this dtype: `exp` takes floats, `max` no truth values, `sum` no integers under 32 bits. "
        "Convert with `.to`.",
    ),
    "E0321": CodeEntry(
        "argument",
        "An argument has the wrong kind or value: a compile-time integer is needed (an axis, a count, the range of `unroll`), a dtype "
        "(`zeros(f32, i)`), a scalar (`.fill(0)`), or a divisor that is not 0.",
    ),
    "E0322": CodeEntry(
        "extent below 1",
        "An extent after `by` or in `span` is at least 1; a dimension is at least 0.",
    ),
    "E0323": CodeEntry(
        "not a truth value",
        "Conditions are comparisons and combinations of them; an integer is compared: `x != 0`.",
    ),
    "E0324": CodeEntry(
        "odd place in a packed tensor",
        "i4 and u4 lie two to a byte along the last dimension, so that dimension and the start of every span on it are even.",
    ),
    "E0401": CodeEntry(
        "carried name that changes its extents",
        "A name that a loop changes has the same extents in every trip. Start with the shape of the update: "
        "`m = full(f32, -inf, i)`, not `m = -inf`, where the update has an axis.",
    ),
    "E0402": CodeEntry(
        "carried name that changes its dtype",
        "A name that a loop changes keeps its dtype. A literal before the loop takes the dtype of the update; otherwise convert with `.to`.",
    ),
    "E0403": CodeEntry(
        "carried name that could lose elements",
        "`acc += x[j]` where elements of `x[j]` can be absent in a later trip would make those of `acc` absent. Give the absent ones a "
        "number: `acc += x[j].fill(0)`.",
    ),
    "E0404": CodeEntry(
        "reshape of an axis that can be absent",
        "An axis with absent coordinates is neither merged nor split. Fill it first: `x.fill(0).reshape(…)`.",
    ),
    "E0405": CodeEntry(
        "branches that bind different types",
        "A name that both branches of a run-time `if` bind has one dtype, one shape and the same presence in both.",
    ),
    "E0406": CodeEntry(
        "carried name that is no tile",
        "Tiles, scalars and tuples of them go from trip to trip; spans, tensors and dtypes do not. Compute the span in each trip.",
    ),
    "E0407": CodeEntry(
        "carried name that gains elements",
        "The name has absent elements before the loop that are present after a trip. Make them present before: `acc = x[i].fill(0)`.",
    ),
    "E0502": CodeEntry(
        "too many expanded calls",
        "Functions are expanded where they are called. This kernel would grow beyond the limit, in number or in depth; call less "
        "deeply or use `range` in place of `unroll`.",
    ),
    "E0751": CodeEntry(
        "option for an unknown parameter",
        "`-D NAME=VALUE` sets a bracket parameter of the kernel; this kernel has none of that name.",
    ),
    "E0752": CodeEntry(
        "option with an unfit value",
        "`-D NAME=VALUE` takes an integer, a float, `true`, `false` or a dtype, of the kind of the parameter's default; a tile size is an "
        "integer from 1 on.",
    ),
    "W0201": CodeEntry(
        "output that is never stored",
        "Nothing in the kernel writes this output, so it keeps whatever it held.",
    ),
    "W0202": CodeEntry(
        "elements that several instances store",
        "The place of a store is the same for all instances along an axis of the grid, and the value is not: which one is kept is nobody's choice. "
        "A sum over that axis is a loop inside the instance, or an atomic.",
    ),
    "W0203": CodeEntry(
        "result that depends on a tile size which is `auto`",
        "The start or the end of a span is a number that depends on how large tiles are. Where it flows into what is stored, names an element, or "
        "decides which trips are left out and no mask of coordinates in them says the same, the result is another with other tiles – on another "
        "GPU, or at another size, for which other tiles are chosen. Compare and index with the span itself: `where(k < n, x, 0.0)`, `k // 64` with "
        "`require 64 % BK == 0`; or give the tile size a number.",
    ),
}
