"""Dataclasses whose methods are written when they are first called.

`dataclasses.dataclass` compiles up to six functions for each class at its definition, 0.4 ms a class; for the 300 that a
compilation imports that is longer than the compilation. Here `dataclasses` collects the fields alone, and that when
somebody asks for them; `__init__`, `__eq__` and `__hash__` are stand-ins that write the function and take its place; most are
never called. To type checkers, to `fields`, `replace` and `is_dataclass`, and to whoever uses the classes, they are dataclasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from _thread import RLock

    _COLLECTED = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
    _collecting = RLock()

    class _Collected:
        """One of these attributes of a class, until somebody asks for one of them."""

        def __init__(self, cls, name, kw_only):
            self.cls, self.name, self.kw_only = cls, name, kw_only

        def __get__(self, instance, owner=None):
            cls, name = self.cls, self.name
            # other threads wait here: none of the attributes is ever missing
            with _collecting:
                if cls.__dict__.get(name) is self:
                    decorate = dataclasses.dataclass(
                        init=False, repr=False, eq=False, match_args=False, kw_only=self.kw_only
                    )
                    known = decorate(cls).__dict__["__dataclass_fields__"].values()
                    cls.__match_args__ = tuple(f.name for f in known if f.init and not f.kw_only)
            return cls.__dict__[name]

    def dataclass(
        cls=None, /, *, frozen=False, eq=True, order=False, kw_only=False, init=True, repr=True
    ):
        """The decorator `dataclasses.dataclass`, of these options; with `order` it is that one itself."""

        def decorate(cls):
            return _completed(cls, frozen, eq, kw_only)

        if order or not init or not repr:
            decorate = dataclasses.dataclass(
                frozen=frozen, eq=eq, order=order, kw_only=kw_only, init=init, repr=repr
            )
        return decorate if cls is None else decorate(cls)

    def _completed(cls, frozen, eq, kw_only):
        own = cls.__dict__
        explicit_hash = own.get("__hash__") is not None
        if own.get("__doc__") is None:
            # `dataclasses` would describe the signature of an `__init__` that is not there yet
            cls.__doc__ = cls.__name__
        for name in _COLLECTED:
            setattr(cls, name, _Collected(cls, name, kw_only))
        methods = {"__init__": _init}
        if eq:
            methods["__eq__"] = _eq
            if frozen and not explicit_hash:
                methods["__hash__"] = _hash
            elif not explicit_hash:
                cls.__hash__ = None
        for name, write in methods.items():
            if name not in own or (name == "__hash__" and own[name] is None):
                setattr(cls, name, _stand_in(cls, name, write, frozen))
        if "__repr__" not in own:
            cls.__repr__ = _repr
        if frozen:
            cls.__setattr__ = _no_assignment
            cls.__delattr__ = _no_deletion
        return cls

    def _stand_in(cls, name, write, frozen):
        """A method that writes the one of its name, puts it into the class, and calls it."""

        def method(self, *args, **kwargs):
            text, names = write(cls, frozen)
            exec(text, names)
            written = names[name]
            written.__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, written)
            return written(self, *args, **kwargs)

        return method

    def _init(cls, frozen):
        names = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
        given, keyword, lines = [], [], []
        for f in dataclasses.fields(cls):
            if f.default is not dataclasses.MISSING:
                names[f"_default_{f.name}"] = f.default
                parameter = f"{f.name}=_default_{f.name}"
            elif f.default_factory is not dataclasses.MISSING:
                names[f"_default_{f.name}"] = f.default_factory
                parameter = f"{f.name}=_missing"
                lines.append(f"if {f.name} is _missing: {f.name} = _default_{f.name}()")
            else:
                parameter = f.name
            if f.init:
                (keyword if f.kw_only else given).append(parameter)
            elif parameter == f.name:
                continue
            else:
                lines.insert(0, parameter)
            lines.append(
                f"_set(self, {f.name!r}, {f.name})" if frozen else f"self.{f.name} = {f.name}"
            )
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        signature = ", ".join(["self", *given, *(["*", *keyword] if keyword else [])])
        return f"def __init__({signature}):\n " + "\n ".join(lines or ["pass"]), names

    def _eq(cls, frozen):
        left, right = (_tuple(cls, of, lambda f: f.compare) for of in ("self", "other"))
        return (
            "def __eq__(self, other):\n"
            f" return {left} == {right} if other.__class__ is self.__class__ else NotImplemented"
        ), {}

    def _hash(cls, frozen):
        counted = _tuple(cls, "self", lambda f: f.compare if f.hash is None else f.hash)
        return f"def __hash__(self):\n return hash({counted})", {}

    def _tuple(cls, of, wanted):
        """The text of a tuple of the fields of `of` that are wanted."""
        return "(" + "".join(f"{of}.{f.name}, " for f in dataclasses.fields(cls) if wanted(f)) + ")"

    def _repr(self):
        parts = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
        return f"{type(self).__qualname__}({', '.join(parts)})"

    def _no_assignment(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _no_deletion(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
