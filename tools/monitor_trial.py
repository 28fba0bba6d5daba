"""The tables of docs/monitor.md and results/monitor.md: promises, delays, kinds, accuracy without labels.

Run with: .venv/bin/python tools/monitor_trial.py TABLE --scores DIR [--networks resnet20 resnet32] [--streams 1000]
          [--write results/monitor.md]
TABLE is one of promise, sticky, options, delay, merge, accuracy. DIR holds the arrays of `monitor_scores.py`.
`pip install river` adds river's detectors to `promise`; it is not a dependency.

Chosen on synthetic scores (normal, shifted by 0.7 to 3 deviations, wholly or a tenth of them) and on the extras: bets
and shares. The 15 corruptions and the other data sets were looked at once, when nothing was left to choose.
"""

import argparse
import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from shiftprism.monitor import Monitor
from shiftprism.verdicts import Reference, Verdicts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
CLASSES, BINS = 10, 128
PAIRS = {"(style, gen)": ("style", "gen"), "(g, h)": ("g", "h")}


class Page:
    """Lines that are printed as they come, and kept as one section of a Markdown file."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, *lines: str) -> None:
        self.lines += lines
        print(*lines, sep="\n", flush=True)

    def write(self, path: Path, title: str, command: str) -> None:
        """Replace the section of this title, or append it."""
        known = (
            path.read_text() if path.exists() else "# monitor: the full tables\n\nMade by `tools/monitor_trial.py`.\n"
        )
        before, _, rest = known.partition(f"\n## {title}\n")
        _, mark, after = rest.partition("\n## ")
        section = f"\n## {title}\n\n`{command}`\n\n" + "\n".join(self.lines) + "\n"
        path.write_text(before + section + mark + after)


class Scores:
    """The scores of one network by set and field."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as arrays:
            self.arrays = {name: arrays[name] for name in arrays.files}

    def sizes(self) -> tuple[int, int, int]:
        """How many clean images were corrupted (no stream has an image twice), are the reference, and come first."""
        return (1000, 500, 1000) if len(self.of("clean", "g")) == 8000 else (200, 300, 400)

    def corruptions(self) -> list[str]:
        names = (key.partition("/")[0] for key in self.arrays if key.endswith("-3/g"))
        return [name.removesuffix("-3") for name in names if not name.startswith("extra-")]

    def of(self, name: str, field: str) -> Floats:
        values: Floats = self.arrays[f"{name}/{field}"]
        return values

    def verdicts(self, name: str, rows: Integers, pair: Sequence[str]) -> Verdicts:
        style, concept = (self.of(name, field)[rows] for field in pair)
        return make_verdicts(style, concept, self.of(name, "label")[rows], self.of(name, "aware")[rows])

    def reference(self, rows: Integers, pair: Sequence[str]) -> Reference:
        """Bins from other images (of CIFAR-10's test set 1,000–1,999), counts of the clean images `rows`."""
        edges = [find_edges(self.of("fit", field)[-1000:]) for field in pair]
        scores = [self.of("clean", field)[rows] for field in pair]
        return make_reference(edges, scores, self.of("clean", "label")[rows].astype(int))


def auroc(usual: Floats, shifted: Floats) -> float:
    """The chance that a usual score is above a shifted one; NumPy and SciPy alone, so that a trial starts at once."""
    return float(stats.mannwhitneyu(usual, shifted).statistic / len(usual) / len(shifted))


def find_edges(values: Floats) -> Floats:
    places = np.linspace(0, 1, BINS + 1)[1:-1]
    edges: Floats = np.unique(np.quantile(values, places, method="nearest"))
    return edges


def make_reference(edges: Sequence[Floats], scores: Sequence[Floats], labels: Integers) -> Reference:
    counts = []
    for own, each in zip(edges, scores, strict=True):
        table = np.zeros((CLASSES, len(own) + 1), np.int64)
        np.add.at(table, (labels, np.searchsorted(own, each)), 1)
        counts.append(table)
    names = tuple(map(str, range(CLASSES)))
    return Reference(
        "trial", names, edges[0], edges[1], counts[0], counts[1], np.stack(scores, 1)[:500], 0.05, 0.9, True
    )


def make_verdicts(style: Floats, concept: Floats, labels: Any, confidence: Any) -> Verdicts:
    ones = np.ones(len(style))
    kinds = np.full(len(style), "in-distribution")
    return Verdicts(labels, confidence * ones, style, concept, ones, ones, ones, kinds)


class Stream(NamedTuple):
    """In-distribution scores: a reference, the edges of its bins, and what follows."""

    reference: Reference
    held_out: tuple[Floats, Floats]
    verdicts: Verdicts


def synthetic_streams(n: int, length: int, count: int, run: int = 1) -> Iterator[Stream]:
    """Normal scores; in runs, each class has a mean of its own."""
    for seed in range(count):
        rng = np.random.default_rng([n, seed])
        edges = [np.sort(rng.normal(size=BINS - 1)) for _ in range(2)]
        scores, labels = rng.normal(size=(2, n + length)), rng.integers(CLASSES, size=n + length)
        if run > 1:
            labels[n:] = np.repeat(rng.integers(CLASSES, size=length // run), run)
            scores += rng.normal(0, 0.5, size=(2, CLASSES))[:, labels]
        held = (scores[0, :n], scores[1, :n])
        yield Stream(
            make_reference(edges, held, labels[:n]), held, make_verdicts(scores[0, n:], scores[1, n:], labels[n:], 0.9)
        )


def real_streams(scores: Scores, n: int, count: int, run: int) -> Iterator[Stream]:
    """CIFAR-10 test images without replacement, in any order or with their true classes in runs."""
    classes = scores.of("clean", "class").astype(np.int64)
    for seed in range(count):
        rng = np.random.default_rng([n, seed])
        rows = rng.permutation(8000)
        held = (scores.of("clean", "style")[rows[:n]], scores.of("clean", "gen")[rows[:n]])
        reference = scores.reference(rows[:n], PAIRS["(style, gen)"])
        rest = rows[n:] if run == 1 else rows[n:][in_runs(classes[rows[n:]], run, rng)]
        yield Stream(reference, held, scores.verdicts("clean", rest, PAIRS["(style, gen)"]))


def highest(monitor: Monitor, verdicts: Verdicts) -> float:
    monitor.update(verdicts)
    return max(monitor.highest_evidence())


def has_window_alarm(stream: Stream, level: float, size: int = 100) -> bool:
    """Kolmogorov and Smirnov's test of each window of 100 against the reference, as drift detectors on windows do."""
    for held, scores in zip(stream.held_out, (stream.verdicts.style, stream.verdicts.concept), strict=True):
        windows = np.sort(scores[: len(scores) // size * size].reshape(-1, size), axis=1)
        known = np.sort(held)
        ours = np.searchsorted(known, windows, side="right") / len(known)
        ranks = np.arange(1, size + 1) / size
        above = np.maximum(
            np.abs(ours - ranks), np.abs(np.searchsorted(known, windows) / len(known) - ranks + 1 / size)
        )
        root = np.sqrt(size * len(known) / (size + len(known)))
        if (stats.kstwobign.sf(above.max(1) * root) <= level / 2).any():
            return True
    return False


def river_alarms(make: Callable[[], Any], stream: Stream) -> int:
    """How often one of river's detectors, fed the reference first, alarms on either score."""
    alarms = 0
    for held, scores in zip(stream.held_out, (stream.verdicts.style, stream.verdicts.concept), strict=True):
        detector = make()
        for value in held.tolist():
            detector.update(value)
        for value in scores.tolist():
            detector.update(value)
            alarms += bool(detector.drift_detected)
    return alarms


def interval(hits: int, count: int) -> str:
    low, high = stats.binomtest(hits, count).proportion_ci()
    return f"{100 * hits / count:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def show_promise(words: argparse.Namespace, page: Page) -> None:
    """Streams with an alarm, in %, of those without any shift."""
    detectors = river_detectors(words.streams)
    columns = ["ours, 1 %", "ours, 5 %", "ours within classes, 1 %", "windows of 100, 1 %", *detectors]
    page.add(f"| reference | streams | {' | '.join(columns)} |", f"|---|---|{'---|' * len(columns)}")
    few = max(1, words.streams // 20)
    path = words.scores / f"{words.networks[0]}.npz"
    for n in (200, 500, 2000, 10_000):
        sources = {"synthetic": synthetic_streams(n, 10_000, words.streams)}
        sources["synthetic, classes in runs of 50"] = synthetic_streams(n, 10_000, few, 50)
        if n <= 2000 and path.exists():
            sources["real"] = real_streams(Scores(path), n, 3 * few, 1)
            sources["real, classes in runs of 50"] = real_streams(Scores(path), n, few, 50)
        for kind, streams in sources.items():
            alarms: dict[str, list[float]] = {name: [] for name in columns}
            for number, stream in enumerate(streams):
                evidence = highest(Monitor(stream.reference, seed=number), stream.verdicts)
                alarms["ours, 1 %"].append(evidence >= 200)
                alarms["ours, 5 %"].append(evidence >= 40)
                alarms["windows of 100, 1 %"].append(has_window_alarm(stream, 0.01))
                if number < few:
                    within = Monitor(stream.reference, within_class=True, seed=number)
                    alarms[columns[2]].append(highest(within, stream.verdicts) >= 200)
                for name, (make, most) in detectors.items():
                    if number < (most if n == 500 and kind == "synthetic" else most // 10):
                        alarms[name].append(river_alarms(make, stream))
            cells = [describe_alarms(alarms[name], name in detectors) for name in columns]
            page.add(f"| {n:,}, {kind} | {number + 1:,} of {len(stream.verdicts):,} | {' | '.join(cells)} |")


def describe_alarms(alarms: Sequence[float], counted: bool) -> str:
    """The share of streams with an alarm and its interval, or how many alarms a stream had."""
    if not alarms:
        return ""
    hits = sum(one > 0 for one in alarms)
    if not counted:
        return interval(hits, len(alarms))
    return f"{100 * hits / len(alarms):.0f}, {np.mean(alarms):.1f} alarms each ({len(alarms):,} streams)"


def river_detectors(streams: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """river's detectors with its defaults, and on how many streams of one row each is run, a tenth in other rows.

    KSWIN takes ten seconds a stream.
    """
    try:
        from river import drift  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return {}
    return {
        "ADWIN": (drift.ADWIN, streams // 3),
        "PageHinkley": (drift.PageHinkley, streams // 3),
        "KSWIN": (lambda: drift.KSWIN(seed=0), streams // 500),
    }


def in_runs(classes: Integers, run: int, rng: np.random.Generator) -> Integers:
    """An order of rows in which classes come in runs of `run` rows, as long as there are any."""
    pools = [rng.permutation(np.flatnonzero(classes == one)) for one in range(CLASSES)]
    pieces = [pool[start : start + run] for pool in pools for start in range(0, len(pool) - run + 1, run)]
    return np.concatenate([pieces[place] for place in rng.permutation(len(pieces))])


def show_sticky(words: argparse.Namespace, page: Page) -> None:
    """Streams with an alarm, in %, without any shift of the images: classes in runs, sorted, in another mix."""
    scores = Scores(words.scores / f"{words.networks[0]}.npz")
    classes = scores.of("clean", "class").astype(np.int64)
    options: dict[str, dict[str, Any]] = {
        "default": {},
        "within_class": {"within_class": True},
        "every=50": {"every": 50},
        "within_class, every=50": {"within_class": True, "every": 50},
    }
    page.add(f"| reference of 500, real scores, 1 % | {' | '.join(options)} |", f"|---|{'---|' * len(options)}")
    orders: dict[str, Callable[[Integers, np.random.Generator], Integers]] = {
        "exchangeable": lambda rows, rng: rows,
        "classes in runs of 10": lambda rows, rng: rows[in_runs(classes[rows], 10, rng)],
        "classes in runs of 50": lambda rows, rng: rows[in_runs(classes[rows], 50, rng)],
        "sorted by class": lambda rows, rng: rows[np.argsort(classes[rows], kind="stable")],
        "only classes 3, 4, 5": lambda rows, rng: rows[np.isin(classes[rows], (3, 4, 5))],
    }
    for name, order in orders.items():
        hits = dict.fromkeys(options, 0)
        for seed in range(words.streams):
            rng = np.random.default_rng(seed)
            rows = rng.permutation(8000)
            reference = scores.reference(rows[:500], PAIRS["(style, gen)"])
            verdicts = scores.verdicts("clean", order(rows[500:], rng), PAIRS["(style, gen)"])
            for key, keywords in options.items():
                hits[key] += highest(Monitor(reference, seed=seed, **keywords), verdicts) >= 200
        page.add(f"| {name} | {' | '.join(interval(hit, words.streams) for hit in hits.values())} |")


def show_options(words: argparse.Namespace, page: Page) -> None:
    """The promise with each option, on normal scores: reference of 200, streams of 10,000."""
    choices: dict[str, dict[str, Any]] = {
        "within_class=True": {"within_class": True},
        "every=5": {"every": 5},
        'sides="both"': {"sides": "both"},
    }
    page.add("| option | 1 % | 5 % |", "|---|---|---|")
    for name, keywords in choices.items():
        evidence = [
            highest(Monitor(stream.reference, seed=number, **keywords), stream.verdicts)
            for number, stream in enumerate(synthetic_streams(200, 10_000, words.streams))
        ]
        cells = [interval(sum(each >= 2 / level for each in evidence), words.streams) for level in (0.01, 0.05)]
        page.add(f"| `{name}` | {' | '.join(cells)} |")
    lengths = []
    for number, stream in enumerate(synthetic_streams(200, 10_000, words.streams)):
        monitor = Monitor(stream.reference, run_length=1000, seed=number)
        monitor.update(stream.verdicts)
        found = monitor.status().episodes
        lengths.append(found[0].alarm_at + 1 if found else 10_000)
    page.add("", f"`run_length=1000`: {np.mean(lengths):,.0f} observations before an alarm, on average, where streams")
    page.add(f"without one count as 10,000 ({100 * np.mean(np.array(lengths) == 10_000):.0f} % of them).")


class Outcome(NamedTuple):
    delay: int | None
    kind: str
    """When the alarm was raised."""
    since: int


def watch_change(
    scores: Scores,
    target: str,
    pair: Sequence[str],
    seed: int,
    share: Callable[[Floats], Floats],
    after: int,
    **options: Any,
) -> Outcome | None:
    """Clean images, then `after` with a share of the target by time; None where the alarm is early."""
    rng = np.random.default_rng(seed)
    changed, known, before = scores.sizes()
    rows = rng.permutation(np.arange(changed, len(scores.of("clean", "g"))))
    monitor = Monitor(scores.reference(rows[:known], pair), seed=seed, **options)
    monitor.update(scores.verdicts("clean", rows[known : known + before], pair))
    if monitor.status().level == "alarm":
        return None
    new = rng.permutation(len(scores.of(target, pair[0])))
    both = Verdicts.concat(
        [
            scores.verdicts(target, np.resize(new, after), pair),
            scores.verdicts("clean", np.resize(rows[known + before :], after), pair),
        ]
    )
    shifted = rng.random(after) < share(np.arange(after) / after)
    verdicts = both[np.where(shifted, 0, after) + np.arange(after)]
    again = copy.deepcopy(monitor)
    monitor.update(verdicts)
    status = monitor.status()
    if not status.episodes:
        return Outcome(None, "", 0)
    delay = status.episodes[0].alarm_at - before
    again.update(verdicts[: delay + 1])
    return Outcome(delay, again.status().kind, status.episodes[0].since - before)


def show_delay(words: argparse.Namespace, page: Page) -> None:
    """Delay, missed, and the kind at the alarm, after a change of real images."""
    names = Scores(words.scores / f"{words.networks[0]}.npz").corruptions()
    groups: dict[str, tuple[str, list[str]]] = {
        f"corrupted, severity {level}": ("covariate", [f"{name}-{level}" for name in names]) for level in (1, 3, 5)
    }
    groups["cifar100"] = ("concept", ["cifar100"])
    groups |= {name: ("either", [name]) for name in ("svhn", "tin")}
    forms: dict[str, tuple[Callable[[Floats], Floats], int]] = {
        "sudden": (lambda time: np.ones_like(time), 1000),
        "10 % mixture": (lambda time: np.full_like(time, 0.1), 3000),
        "slow drift": (lambda time: time, 2000),
    }
    page.add("| network | scores | change | to | AUROC | median delay | missed % | right kind % | early |")
    page.add("|---|---|---|---|---|---|---|---|---|")
    lines = []
    for network in words.networks:
        scores = Scores(words.scores / f"{network}.npz")
        for pair_name, pair in PAIRS.items():
            if f"clean/{pair[0]}" not in scores.arrays:
                continue
            for form, (share, after) in forms.items():
                if form != "sudden" and pair_name == "(g, h)":
                    continue
                for group, (truth, targets) in groups.items():
                    if form != "sudden" and group.endswith("severity 1"):
                        continue
                    everything = []
                    aurocs = []
                    for target in targets:
                        # the mixtures and the drift are longer: half as many streams
                        count = words.streams if form == "sudden" else -(-words.streams // 2)
                        length = min(after, len(scores.of(target, "g"))) if form == "sudden" else after
                        found = [watch_change(scores, target, pair, seed, share, length) for seed in range(count)]
                        own = 100 * max(auroc(scores.of("clean", one), scores.of(target, one)) for one in pair)
                        aurocs.append(own)
                        everything += found
                        if form == "sudden":
                            lines.append(
                                f"| {network} | {pair_name} | {target} | {own:.1f} | {describe(found, truth)} |"
                            )
                    row = f"| {network} | {pair_name} | {form} | {group} | {np.mean(aurocs):.1f} |"
                    page.add(f"{row} {describe(everything, truth)} |")
    page.add("", "| network | scores | sudden change to | AUROC | median delay | missed % | right kind % | early |")
    page.add("|---|---|---|---|---|---|---|---|", *lines)


def describe(found: Sequence[Outcome | None], truth: str) -> str:
    seen = [one for one in found if one is not None]
    delays = [np.inf if one.delay is None else one.delay for one in seen]
    alarms = [one for one in seen if one.delay is not None]
    right = f"{100 * np.mean([one.kind == truth for one in alarms]):.1f}" if alarms and truth != "either" else "–"
    if truth == "either" and alarms:
        right = f"covariate {100 * np.mean([one.kind == 'covariate' for one in alarms]):.0f}"
    middle = float(np.median(delays)) if seen else np.inf
    shown = f"{middle:.0f}" if np.isfinite(middle) else "–"
    return f"{shown} | {100 * np.mean(np.isinf(delays)):.1f} | {right} | {len(found) - len(seen)}"


def show_merge(words: argparse.Namespace, page: Page) -> None:
    """Eight shards of streams without shift, and the delay of one log beside three merged."""
    count, hits = words.streams, 0
    for stream in synthetic_streams(500, 8 * 1250, count):
        parts = [Monitor(stream.reference, 0.05, seed=seed) for seed in range(8)]
        for seed, part in enumerate(parts):
            part.update(stream.verdicts[seed::8])
        hits += Monitor.merge(parts).status().level == "alarm"
    page.add(f"8 shards of 1,250, nominal 5 %: {interval(hits, count)} % of {count:,} with an alarm.")
    delays: dict[int, list[int]] = {1: [], 3: [], 8: []}
    for seed in range(min(count, 40)):
        rng = np.random.default_rng(seed)
        edges = [np.sort(rng.normal(size=BINS - 1)) for _ in range(2)]
        held = rng.normal(size=(2, 500))
        reference = make_reference(edges, (held[0], held[1]), rng.integers(CLASSES, size=500))
        style, concept = rng.normal(size=(2, 4000))
        style[2000:] -= 1
        verdicts = make_verdicts(style, concept, np.zeros(4000), 0.9)
        for shards, found in delays.items():
            parts = [Monitor(reference, seed=number) for number in range(shards)]
            for number, part in enumerate(parts):
                part.update(verdicts[:2000][number::shards])
            merged = Monitor.merge(parts)
            for start in range(2000, 4000, 24):
                for number, part in enumerate(parts):
                    part.update(verdicts[start : start + 24][number::shards])
                if merged.status().level == "alarm":
                    found.append(start + 24 - 2000)
                    break
            else:
                found.append(2000)
    text = ", ".join(f"{shards}: {np.median(found):.0f}" for shards, found in delays.items())
    page.add(f"Median delay in images (AUROC 76, looked at every 24), by number of shards: {text}.")


def show_accuracy(words: argparse.Namespace, page: Page) -> None:
    """Mean absolute error of the estimated accuracy over the 75 corrupted conditions, and what is said of others."""
    methods = ("none", "temperature", "shift-aware", "ATC", "Difference of Confidences")
    page.add(f"| network | | {' | '.join(methods)} | true |", f"|---|---|{'---|' * (len(methods) + 1)}")
    for network in words.networks:
        scores = Scores(words.scores / f"{network}.npz")
        errors: dict[str, list[Floats]] = {}
        for name in [f"{one}-{level}" for one in scores.corruptions() for level in range(1, 6)]:
            guesses, true = estimate_accuracy(scores, name), scores.of(name, "right").mean()
            errors.setdefault("corrupted", []).append(np.abs(guesses - true))
            errors.setdefault(f"severity {name[-1]}", []).append(np.abs(guesses - true))
        for group, each in sorted(errors.items()):
            cells = " | ".join(f"{value:.4f}" for value in np.mean(each, axis=0))
            page.add(f"| {network} | mean absolute error, {group} | {cells} | |")
        for name in ("clean", "cifar100", "svhn", "tin"):
            true = f"{scores.of(name, 'right').mean():.3f}" if name == "clean" else "0"
            cells = " | ".join(f"{value:.3f}" for value in estimate_accuracy(scores, name))
            page.add(f"| {network} | {name}: estimate | {cells} | {true} |")


def estimate_accuracy(scores: Scores, name: str) -> Floats:
    """Mean confidences; ATC (Garg et al. 2022) and DoC (Guillory et al. 2021) on confidences with a temperature."""
    known, right = scores.of("fit", "temperature"), scores.of("fit", "right").mean()
    new = scores.of(name, "temperature")
    threshold = np.quantile(known, 1 - right)
    means = [scores.of(name, field).mean() for field in ("plain", "temperature", "aware")]
    return np.array([*means, (new >= threshold).mean(), right - (known.mean() - new.mean())])


TABLES = {
    "promise": show_promise,
    "sticky": show_sticky,
    "options": show_options,
    "delay": show_delay,
    "merge": show_merge,
    "accuracy": show_accuracy,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", default=["resnet20"])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--write", type=Path, help="a Markdown file to keep the table in")
    words = parser.parse_args()
    page = Page()
    TABLES[words.table](words, page)
    if words.write:
        names = " ".join(words.networks)
        command = f"tools/monitor_trial.py {words.table} --networks {names} --streams {words.streams}"
        page.write(words.write, f"{words.table}, {names}", command)


if __name__ == "__main__":
    main()
