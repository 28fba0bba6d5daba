"""What was to be reached beyond the paper, and what each published network reaches: tables from the rows alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from shiftprism.corruptions import COMMON
from shiftprism.rows import Results

LEVELS = (1, 3, 5)
FOUR = ("cifar100", "corrupted", "svhn", "tiny-imagenet")
"""The sets for CIFAR-10 as ID data."""
UNSEEN = {"cifar10": "cifar100", "cifar100": "cifar10"}
"""For each ID data set the one with unseen classes."""
_NAMES = {"alpha": "α", "alpha-beta": "α-β", "beta": "β", "vanilla": "vanilla"}


class Numbers:
    """The rows of one network by what they are about."""

    def __init__(self, results: Results) -> None:
        self.unseen = UNSEEN[results.rows[0].data]
        self.values = {(r.shift, r.severity, r.subject, r.metric): r.value for r in results.rows}

    def __call__(self, shift: str, subject: str, metric: str, severity: int = 0) -> float:
        return self.values.get((shift, severity, subject, metric), float("nan"))

    def at(self, severity: int, subject: str, metric: str) -> float:
        """The mean over the corruptions at one severity."""
        return fmean(self(name, subject, metric, severity) for name in COMMON)

    def mean(self, score: str) -> float:
        """The mean AUROC over the four sets."""
        return fmean(self(shift, score, "auroc") for shift in (self.unseen, *FOUR[1:]))


class Goal(NamedTuple):
    """One line of a table: a number of each network, and whether it is enough."""

    name: str
    bound: str
    value: Callable[[Numbers], float]
    reached: Callable[[float], bool]
    show: Callable[[Numbers, float], str]


def percent(values: Iterable[float]) -> str:
    return " / ".join(f"{100 * value:.1f}" for value in values)


def read_networks(results: Results, models: Sequence[str], data: str = "cifar10") -> dict[tuple[str, int], Numbers]:
    """The networks of these models that have rows of `spectrum`, in the order of models and seeds."""
    rows = results.where(data=data, protocol="held-out", model=models)
    keys = {(row.model, row.seed) for row in rows.rows if row.subject == "spectrum"}
    return {key: Numbers(rows.where(model=key[0], seed=key[1])) for key in sorted(keys)}


def style_goals(results: Results, data: str = "cifar10") -> str:
    """The goals of `style`, `spectrum`, attribution and `shift-aware`, a column a network."""
    networks = read_networks(results, list(_NAMES), data)
    return _make_table(_STYLE_GOALS, {f"{_NAMES[model]} {seed}": own for (model, seed), own in networks.items()})


def robust_goals(results: Results) -> str:
    """The goals of the preset `laptop-robust`, with `laptop` of the same seed in brackets; bold where one is missed."""
    plain = read_networks(results, ["vanilla"])
    lines = [
        "| seed | corrupted accuracy | corrupted ECE: temperature, `shift-aware` | clean accuracy |",
        "|---|---|---|---|",
        "| goal | ≥ 75 % | ≤ .05 | at most .7 lost |",
    ]
    for (_, seed), own in read_networks(results, ["laptop-robust"]).items():
        other = plain["vanilla", seed]
        clean, corrupted = (
            [100 * one(shift, "none", "accuracy") for one in (own, other)] for shift in ("clean", "corrupted")
        )
        errors = [[one("corrupted", name, "ece") for name in ("temperature", "shift-aware")] for one in (own, other)]
        texts = [", ".join(_decimal(error, 3) for error in pair) for pair in errors]
        change = round(clean[0] - clean[1], 2)
        cells = [
            _mark(f"{corrupted[0]:.1f} ({corrupted[1]:.1f})", corrupted[0] >= 75),
            _mark(f"{texts[0]} ({texts[1]})", min(errors[0]) <= 0.05),
            _mark(
                f"{clean[0]:.1f} ({clean[1]:.1f}): {abs(change):.1f} {'lost' if change < 0 else 'gained'}",
                change >= -0.7,
            ),
        ]
        lines.append(f"| {seed} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _make_table(goals: Sequence[Goal], networks: Mapping[str, Numbers]) -> str:
    """A line a goal, a column a network; bold where the goal is missed."""
    lines = [f"| | goal | {' | '.join(networks)} |", "|---|---|" + "---|" * len(networks)]
    for goal in goals:
        cells = []
        for own in networks.values():
            value = goal.value(own)
            cells.append(_mark(goal.show(own, value), goal.reached(value)))
        lines.append(f"| {goal.name} | {goal.bound} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mark(text: str, reached: bool) -> str:
    """Bold where a goal is missed."""
    return text if reached else f"**{text}**"


def _right_at(severity: int) -> Callable[[Numbers], float]:
    """Of the flagged images at this severity, the share that is called covariate."""

    def share(own: Numbers) -> float:
        covariate, concept = (own.at(severity, "attribution", kind) for kind in ("covariate", "concept"))
        return covariate / (covariate + concept)

    return share


def _right_on_unseen(own: Numbers) -> float:
    covariate, concept = (own(own.unseen, "attribution", kind) for kind in ("covariate", "concept"))
    return concept / (covariate + concept)


def _below_u(own: Numbers) -> float:
    return own(own.unseen, "u", "auroc") - own(own.unseen, "spectrum", "auroc")


def _beside(other: Callable[[Numbers], float]) -> Callable[[Numbers, float], str]:
    return lambda own, value: f"{100 * value:.1f} ({100 * other(own):.1f})"


def _points(_: Numbers, value: float) -> str:
    return f"{100 * value:.1f}".replace("-", "−")


def _whole_percent(_: Numbers, value: float) -> str:
    return f"{100 * value:.0f} %"


def _decimal(value: float, digits: int = 4) -> str:
    """0.0413 as .0413."""
    return f"{value:.{digits}f}".removeprefix("0")


_STYLE_GOALS = [
    Goal(
        "`style`, corrupted AUROC (U)",
        "≥ 88",
        lambda own: own("corrupted", "style", "auroc"),
        lambda value: value >= 0.88,
        _beside(lambda own: own("corrupted", "u", "auroc")),
    ),
    Goal(
        "`style` on unseen classes",
        "45 to 60",
        lambda own: own(own.unseen, "style", "auroc"),
        lambda value: 0.45 <= value <= 0.60,
        _points,
    ),
    Goal(
        "`spectrum`, mean of four sets (U)",
        "≥ 90",
        lambda own: own.mean("spectrum"),
        lambda value: value >= 0.90,
        _beside(lambda own: own.mean("u")),
    ),
    Goal("`spectrum` on unseen classes, below U", "≤ 1", _below_u, lambda value: value <= 0.01, _points),
    Goal(
        "which way, AUROC ((g, h))",
        "≥ 90",
        lambda own: own("corrupted", "style, gen", "which_way"),
        lambda value: value >= 0.90,
        _beside(lambda own: own("corrupted", "g, h", "which_way")),
    ),
    Goal("of the flagged right: severity 3", "≥ 90 %", _right_at(3), lambda value: value >= 0.90, _whole_percent),
    Goal("severity 5", "≥ 90 %", _right_at(5), lambda value: value >= 0.90, _whole_percent),
    Goal("unseen classes", "≥ 70 %", _right_on_unseen, lambda value: value >= 0.70, _whole_percent),
    Goal(
        "`shift-aware`, corrupted ECE (temperature)",
        "≤ .07",
        lambda own: own("corrupted", "shift-aware", "ece"),
        lambda value: value <= 0.07,
        lambda own, value: f"{_decimal(value)} ({_decimal(own('corrupted', 'temperature', 'ece'))})",
    ),
    Goal(
        "`shift-aware`, clean ECE",
        "≤ .012",
        lambda own: own("clean", "shift-aware", "ece"),
        lambda value: value <= 0.012,
        lambda own, value: _decimal(value),
    ),
    Goal(
        "share of predictions changed",
        "0",
        lambda own: own("corrupted", "shift-aware", "predictions_changed"),
        lambda value: value == 0,
        lambda own, value: f"{value:g}",
    ),
]
