"""Proofs about sizes: what must be found, and that nothing false is ever proved."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.ir.facts import Facts, split_extreme
from tilec.ir.symbolic import Sym, Var, ceildiv, sym_max, sym_min

N, K = Var("N", "dim"), Var("K", "dim")
B = Var("B", "tile")
T = Var("t", "trip", 1)
V = Var("v", "value", 7)


def facts() -> Facts:
    """N <= 100, 3 <= K, 64 divides K, B = 64, t counts blocks of K."""
    result = Facts({"B": 64})
    result.learn(Sym.of(101) - Sym.of(N))
    result.learn(Sym.of(K) - 2)
    result.learn_divisor(Sym.of(K), 64)
    result.bind_trip(T, ceildiv(Sym.of(K), Sym.of(B)))
    return result


def test_bounds_are_read_off() -> None:
    known = facts()
    assert known.range_of(N) == (0, 100)
    assert known.range_of(K)[0] == 3
    assert known.range_of(B) == (64, 64)
    assert known.range_of(V) == (None, None)
    assert known.upper_bound(Sym.of(N) * 2 + 1) == 201
    assert known.upper_bound(Sym.of(K)) is None
    assert known.upper_bound(sym_min([Sym.of(K), Sym.of(N)])) == 100
    together = Sym.of(K) // 32 * Sym.of(Var("M", "dim"))
    assert known.upper_bound(together) is None
    known.learn(Sym.of(4097) - together)
    assert known.upper_bound(together) == known.upper_bound(together - 8) + 8 == 4096


def test_divisibility() -> None:
    known = facts()
    assert known.divides(Sym.of(K) * 3 + 128, 64)
    assert not known.divides(Sym.of(N), 2)
    assert known.divides(Sym.of(B) * Sym.of(T), 32)
    assert not known.divides(Sym.of(K), 0)


def test_a_block_of_a_divisible_dimension_is_whole() -> None:
    known = facts()
    start = Sym.of(T) * Sym.of(B)
    assert known.prove_nonnegative(Sym.of(K) - start - Sym.of(B))
    assert not known.prove_nonnegative(Sym.of(K) - start - Sym.of(B) - 1)
    assert known.prove_nonnegative(start)
    assert not known.prove_nonnegative(Sym.of(V))


def test_any_block_starts_inside() -> None:
    known = Facts({"B": 64})
    known.bind_trip(T, ceildiv(Sym.of(N), Sym.of(B)))
    start = Sym.of(T) * Sym.of(B)
    assert known.prove_nonnegative(Sym.of(N) - start - 1)
    assert not known.prove_nonnegative(Sym.of(N) - start - 2)
    assert known.prove_nonnegative(sym_max([start, Sym.of(V)]))
    assert known.prove_nonnegative(Sym.of(N) - sym_min([Sym.of(N), Sym.of(V)]))
    assert not known.prove_nonnegative(Sym.of(N) - sym_max([Sym.of(N), Sym.of(V)]))


def test_a_known_order_of_two_sizes() -> None:
    known = Facts()
    assert not known.prove_nonnegative(Sym.of(K) - Sym.of(N))
    known.learn(Sym.of(K) - Sym.of(N) + 1)
    assert known.prove_nonnegative(Sym.of(K) - Sym.of(N))
    assert known.prove_nonnegative(Sym.of(K) - Sym.of(N) + 3)


def test_extremes_are_multiplied_out() -> None:
    parts = list(split_extreme(sym_min([Sym.of(N), Sym.of(V)]) - 3, "min"))
    assert parts == [Sym.of(N) - 3, Sym.of(V) - 3] or parts == [Sym.of(V) - 3, Sym.of(N) - 3]
    assert list(split_extreme(Sym.of(N) - 3, "min")) == [Sym.of(N) - 3]


def syms() -> st.SearchStrategy[Sym]:
    """Polynomials over N, K, B, t with min, max, // and %."""
    leaves = st.one_of(
        st.integers(-130, 130).map(Sym.of), st.sampled_from([N, K, B, T]).map(Sym.of)
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
            st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
            st.tuples(inner, st.integers(-70, 70)).map(lambda p: p[0] * p[1]),
            st.tuples(inner, st.sampled_from([2, 7, 64])).map(lambda p: p[0] // p[1]),
            st.tuples(inner, st.sampled_from([2, 7, 64])).map(lambda p: p[0] % p[1]),
            st.tuples(inner, inner).map(sym_min),
            st.tuples(inner, inner).map(sym_max),
        ),
        max_leaves=6,
    )


@settings(max_examples=400, deadline=None)
@given(syms(), st.integers(0, 100), st.integers(1, 4), st.data())
def test_nothing_false_is_proved(sym: Sym, n: int, blocks: int, data: st.DataObject) -> None:
    known = facts()
    values = {N: n, K: 64 * blocks, B: 64, T: data.draw(st.integers(0, blocks - 1))}
    value = sym.evaluate(values.__getitem__)
    if known.prove_nonnegative(sym):
        assert value >= 0, (sym, values)
    low, high = known.range(sym)
    assert (low is None or low <= value) and (high is None or value <= high)
    for divisor in (2, 64):
        if known.divides(sym, divisor):
            assert value % divisor == 0
    assert min(p.evaluate(values.__getitem__) for p in split_extreme(sym, "min")) == value
    assert max(p.evaluate(values.__getitem__) for p in split_extreme(sym, "max")) == value


def test_quotients_and_facts_inside_of_cases() -> None:
    known = facts()
    lo, hi = Sym.of(Var("lo", "value", 1)), Sym.of(Var("hi", "value", 2))
    tile = Sym.of(Var("t", "trip", 9))
    trips = (sym_min([lo + tile * 8 + 8, hi]) - lo + 7) // 8
    assert not known.prove_nonnegative(trips - 1)
    known.learn(hi - lo - tile * 8)  # something is left of the span at its tile number t
    assert known.prove_nonnegative(trips - 1)
    assert not known.prove_nonnegative(trips - 2)
    assert known.prove_nonnegative(trips * 3 - 3) and not known.prove_nonnegative(trips * 3 - 4)
    assert known.prove_nonnegative(trips * 8 - 8) and not known.prove_nonnegative(trips * 8 - 9)


def test_what_is_learned_later_counts() -> None:
    known, size = facts(), Var("later", "value", 5)
    sym = Sym.of(size) * 3
    assert known.range(sym) == (None, None)
    assert not known.prove_nonnegative(sym) and not known.prove_nonnegative(100 - sym)
    known.learn(Sym.of(size) + 1)
    known.learn(21 - Sym.of(size))
    assert known.range(sym) == (0, 60)
    assert known.prove_nonnegative(sym) and known.prove_nonnegative(100 - sym)
    known.unlearn_upper(size)
    assert known.range(sym) == (0, None) and not known.prove_nonnegative(100 - sym)
