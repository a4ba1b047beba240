"""`tilec.lazy_dataclass` makes what `dataclasses` makes."""

# ruff: noqa: N806 – classes under test are variables
from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import cached_property, partial
from threading import Barrier
from typing import Any

import pytest

from tilec.lazy_dataclass import dataclass as lazy


def _classes(decorate: Any) -> dict[str, type]:
    """The same classes by one decorator."""

    @decorate(frozen=True, kw_only=True)
    class Node:
        """A base."""

        place: int = field(default=0, compare=False, repr=False)

    @decorate(frozen=True)
    class Leaf(Node):
        name: str
        parts: tuple[int, ...] = ()
        notes: dict[str, int] = field(default_factory=dict, hash=False)

        @cached_property
        def length(self) -> int:
            return len(self.name)

    @decorate
    class Counter:
        count: int = 0
        seen: list[int] = field(default_factory=list)
        inner: int = field(init=False)

        def __post_init__(self) -> None:
            self.inner = self.count + 1

    @decorate(frozen=True, eq=False)
    class Thing:
        number: int

    @decorate(frozen=True)
    class Own:
        number: int

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    @decorate(frozen=True, order=True)
    class Ordered:
        number: int

    return {c.__name__: c for c in (Node, Leaf, Counter, Thing, Own, Ordered)}


LAZY, USUAL = _classes(lazy), _classes(dataclasses.dataclass)


def _named(value: Any) -> str:
    return repr(value).replace("_classes.<locals>.", "")


@pytest.mark.parametrize("classes", [LAZY, USUAL], ids=["lazy", "usual"])
def test_instances_behave_alike(classes: dict[str, type]) -> None:
    Leaf, Counter, Thing, Own, Ordered = (
        classes[n] for n in ("Leaf", "Counter", "Thing", "Own", "Ordered")
    )
    leaf = Leaf("a", (1, 2), place=3)
    assert _named(leaf) == "Leaf(name='a', parts=(1, 2), notes={})"
    assert leaf == Leaf(name="a", parts=(1, 2), place=4) != Leaf("b")
    assert leaf != "a"
    assert hash(leaf) == hash(Leaf("a", (1, 2), {"x": 1}))
    assert leaf.notes is not Leaf("a").notes
    assert leaf.length == 1 and leaf.place == 3
    assert dataclasses.replace(leaf, name="c") == Leaf("c", (1, 2))
    assert [f.name for f in dataclasses.fields(leaf)] == ["place", "name", "parts", "notes"]
    assert copy.deepcopy(leaf) == leaf
    with pytest.raises(dataclasses.FrozenInstanceError):
        leaf.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del leaf.name
    with pytest.raises(TypeError):
        Leaf()
    with pytest.raises(TypeError):
        Leaf("a", (), {}, 3)
    match leaf:
        case Leaf(name, parts):
            assert (name, parts) == ("a", (1, 2))
        case _:
            raise AssertionError

    counter = Counter(3)
    counter.seen.append(1)
    counter.count = 4
    assert _named(counter) == "Counter(count=4, seen=[1], inner=4)"
    with pytest.raises(TypeError):
        hash(counter)
    assert Thing(1) != Thing(1) and len({Thing(1), Thing(1)}) == 2
    assert hash(Own(1)) == 7 and repr(Own(1)) == "own" and Own(1) == Own(1)
    assert sorted([Ordered(2), Ordered(1)]) == [Ordered(1), Ordered(2)]


def test_nodes_of_the_compiler_can_be_pickled() -> None:
    from tilec.ir.symbolic import Sym, Var

    sym = Sym.of(Var("N", "dim")) * 3 + 1
    assert pickle.loads(pickle.dumps(sym)) == sym


def test_a_class_writes_its_methods_when_they_are_called() -> None:
    cls = _classes(lazy)["Leaf"]
    before = {n: cls.__dict__[n] for n in ("__init__", "__eq__", "__hash__")}
    leaf = cls("a")
    changed = [n for n, method in before.items() if cls.__dict__[n] is not method]
    assert changed == ["__init__"]
    assert leaf == cls("a")
    assert cls.__dict__["__eq__"] is not before["__eq__"]


def _taken_apart(cls: Any, start: Barrier, number: int) -> object:
    start.wait()
    match cls(f"a{number}", (number,)):
        case cls(name, parts):
            return name, parts
    return None


def test_threads_may_ask_for_a_class_s_fields_at_the_same_time() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in range(40):
                work = partial(_taken_apart, _classes(lazy)["Leaf"], Barrier(8))
                assert list(pool.map(work, range(8))) == [(f"a{n}", (n,)) for n in range(8)]
    finally:
        sys.setswitchinterval(interval)
