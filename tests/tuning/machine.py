"""nvcc and the measuring process replaced by a table of times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.source.diagnostics import fail
from tilec.toolchain.build import Built
from tilec.toolchain.ptxas import PtxasReport
from tilec.tuning.protocol import Measure, Measured, Race, Raced


class Machine:
    """nvcc and the GPU: times by what the generated text holds."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.cached: set[str] = set()
        self.measured: list[Measure] = []
        self.races: list[Race] = []
        self.times: Mapping[str, float] = {}
        self.answers: Mapping[str, Measured] = {}

    def build(self, cu: str, arch: str, **options: Any) -> Built:
        self.built.append(cu)
        known = cu in self.cached
        self.cached.add(cu)
        if "fails in nvcc" in cu:
            raise fail("E7002", "nvcc rejected the generated code")
        return Built("cubin", cu.encode(), PtxasReport((), ()), "", known)

    def measure(self, request: Measure) -> Measured:
        self.measured.append(request)
        return self.answer(request)

    def race(self, request: Race) -> Raced:
        self.races.append(request)
        answers = [self.answer(Measure(plan, code, final=True)) for plan, code in request.entries]
        return Raced("ok", tuple(a.times for a in answers))

    def answer(self, request: Measure) -> Measured:
        text = request.code.decode()
        for part, answer in self.answers.items():
            if part in text and not request.final:
                return answer
        time = next((us for part, us in self.times.items() if part in text), 100.0)
        return Measured("ok", (time, time, time))
