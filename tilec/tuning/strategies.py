"""Which candidates are tried, and in which order.

A strategy proposes batches; between two of them it sees every result. It keeps nothing that the results do not say, so a search that was
interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from tilec.ir.dtypes import DType
from tilec.plan.candidate import Choice, Static
from tilec.source.diagnostics import fail
from tilec.tuning.building import Compiled
from tilec.tuning.records import Trial, choice_name

Kind = Literal["exhaustive", "guided", "tpe"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""What `--search` takes."""

PATIENCE: Mapping[Kind, int | None] = {"exhaustive": None, "guided": 12, "tpe": 16}
"""Candidates in a row that were no better, after which a search ends; None: all are tried."""

BETTER = 0.99
"""A time is better where it is below this share of the best so far: less than times repeat to."""

RANKED_AT_MOST = 512
"""Candidates that are compiled to be ranked; of a larger space as many, spread evenly."""

ASKED_AT_MOST = 40
"""How often the sampler may name a candidate that is excluded or known, for each new one."""

Ranking = Callable[[Sequence[Choice]], list[Compiled]]
"""Those that fit the target, the likely fastest first; what does not is noted."""


class Strategy(Protocol):
    """Proposes candidates."""

    def batch(self, trials: Mapping[str, Trial]) -> list[Choice]:
        """What to try next, the most promising first; empty at the end. The untuned candidate is among the first."""


def since_better(trials: Iterable[Trial]) -> int:
    """Candidates measured since the last that was better than all before; those that were not timed themselves do not count."""
    best, count = float("inf"), 0
    for trial in trials:
        if trial.status != "ok" or trial.microseconds is None or trial.twin:
            continue
        count += 1
        if trial.microseconds < BETTER * best:
            best, count = trial.microseconds, 0
    return count


@dataclass
class Exhaustive:
    """All candidates, in the order of their estimates. `step` at a time where the search may end early, else all at once."""

    choices: Sequence[Choice]
    rank: Ranking
    step: int | None = None

    def batch(self, trials: Mapping[str, Trial]) -> list[Choice]:
        """See Strategy."""
        left = [c.choice for c in self.rank(_untried(self.choices, trials))]
        return _untuned_first(left)[: self.step]


@dataclass
class Guided:
    """The likely fastest, a batch at a time."""

    choices: Sequence[Choice]
    rank: Ranking
    step: int

    def batch(self, trials: Mapping[str, Trial]) -> list[Choice]:
        """See Strategy."""
        left = _untried(_spread(self.choices), trials)
        return _untuned_first([c.choice for c in self.rank(left)])[: self.step]


@dataclass
class Tpe:
    """The tree-structured Parzen estimator of optuna (Bergstra et al., NeurIPS 2011), begun with the likely fastest."""

    choices: Sequence[Choice]
    rank: Ranking
    step: int
    seed: int

    def batch(self, trials: Mapping[str, Trial]) -> list[Choice]:
        """See Strategy."""
        measured = [t for t in trials.values() if t.status == "ok"]
        if len(measured) < self.step:
            left = _untried(_spread(self.choices), trials)
            return _untuned_first([c.choice for c in self.rank(left)])[: self.step]
        optuna = import_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        names = list(self.choices[-1])
        values = {n: _categories(self.choices, n) for n in names}
        kinds = {
            n: optuna.distributions.CategoricalDistribution(list(v)) for n, v in values.items()
        }
        study = self._study(optuna, kinds, trials)
        offered = {choice_name(c): c for c in self.choices}
        found: list[Choice] = []
        for _ in range(self.step * ASKED_AT_MOST):
            asked = study.ask(kinds)
            choice = {n: values[n][asked.params[n]] for n in names}
            name = choice_name(choice)
            if name not in offered or name in trials:
                study.tell(asked, state=optuna.trial.TrialState.FAIL)
                continue
            # left open: the sampler takes it for slow, so that the next one lies elsewhere
            if name not in [choice_name(c) for c in found]:
                found.append(offered[name])
            if len(found) == self.step:
                break
        return found or _untried(self.choices, trials)[: self.step]

    def _study(self, optuna: Any, kinds: Mapping[str, Any], trials: Mapping[str, Trial]) -> Any:
        """The results so far, as the sampler has them. What failed counts as four times the slowest."""
        sampler = optuna.samplers.TPESampler(
            seed=self.seed + len(trials), n_startup_trials=1, constant_liar=True, multivariate=True
        )
        study = optuna.create_study(sampler=sampler)
        times = [t.microseconds for t in trials.values() if t.microseconds is not None]
        for trial in trials.values():
            labels = {n: _label(v) for n, v in trial.choice.items()}
            if set(labels) != set(kinds):
                continue  # the untuned one is no point of the space
            study.add_trial(
                optuna.trial.create_trial(
                    params=labels,
                    distributions=dict(kinds),
                    value=trial.microseconds or 4.0 * max(times, default=1.0),
                )
            )
        return study


def import_optuna() -> Any:
    """The module. Raises TileError (E0819) without it."""
    try:
        import warnings

        import optuna

        # multivariate sampling and the liar are marked experimental
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    except ModuleNotFoundError as error:
        raise fail(
            "E0819",
            "`--search tpe` needs optuna, which is not installed",
            help="run `pip install 'tilec[tune]'`, or take `--search guided`",
        ) from error
    return optuna


def make_strategy(
    kind: Kind, choices: Sequence[Choice], rank: Ranking, *, step: int, seed: int, stops: bool
) -> Strategy:
    """The strategy of a kind; `stops` where it may end early, `step` candidates a batch. Raises TileError (E0819)."""
    match kind:
        case "exhaustive":
            return Exhaustive(choices, rank, step if stops else None)
        case "guided":
            return Guided(choices, rank, step)
        case "tpe":
            import_optuna()
            return Tpe(choices, rank, step, seed)


def _untried(choices: Sequence[Choice], trials: Mapping[str, Trial]) -> list[Choice]:
    return [c for c in choices if choice_name(c) not in trials]


def _untuned_first(choices: list[Choice]) -> list[Choice]:
    """The untuned candidate in front: what the others are compared with."""
    return sorted(choices, key=lambda c: bool(c))


def _spread(choices: Sequence[Choice]) -> list[Choice]:
    """At most RANKED_AT_MOST of them, the first among these."""
    if len(choices) <= RANKED_AT_MOST:
        return list(choices)
    return [choices[n * len(choices) // RANKED_AT_MOST] for n in range(RANKED_AT_MOST)]


def _categories(choices: Sequence[Choice], name: str) -> dict[Any, Static]:
    """The values of a name by what optuna calls them."""
    return {_label(c[name]): c[name] for c in choices if name in c}


def _label(value: Static) -> Any:
    return str(value) if isinstance(value, DType) else value
