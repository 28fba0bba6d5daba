"""The monitor: its promise, its answers, and that neither batches nor files change a bit of it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from monitor_examples import draw_stream, make_reference, make_verdicts
from shiftprism.monitor import Monitor
from shiftprism.verdicts import Verdicts

OPTIONS: list[dict[str, Any]] = [
    {},
    {"within_class": True},
    {"every": 3},
    {"sides": "both"},
    {"run_length": 5000},
]


def shifting_stream() -> Verdicts:
    """Usual, a burst of covariate shift, usual again, and concept shift that stays."""
    parts = [(0, 0.0, 0.0, 900), (1, -2.0, -0.5, 300), (2, 0.0, 0.0, 1200), (3, 0.0, -1.5, 500)]
    return Verdicts.concat([draw_stream(seed, n, style, concept) for seed, style, concept, n in parts])


def state_bytes(monitor: Monitor, folder: Path) -> bytes:
    monitor.save(folder / "state")
    return (folder / "state").read_bytes()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_and_files_change_nothing(options: dict[str, Any], tmp_path: Path) -> None:
    whole = Monitor(make_reference(), **options)
    stream = shifting_stream()
    whole.update(stream)
    pieces, rng, start = Monitor(make_reference(), **options), np.random.default_rng(5), 0
    while start < len(stream):
        size = int(rng.choice([1, 1, 2, 7, 16, 63, 64, 65, 300]))
        pieces.update(stream[start : start + size])
        start += size
        if rng.random() < 0.2:
            pieces.status()  # looking changes nothing
        if rng.random() < 0.2:
            pieces.save(tmp_path / "part")
            pieces = Monitor.load(tmp_path / "part")
    assert state_bytes(pieces, tmp_path) == state_bytes(whole, tmp_path)
    assert pieces.status() == whole.status()
    assert whole.status().level == "alarm"


def test_the_alarm_comes_with_the_observation_that_earned_it() -> None:
    stream = Verdicts.concat([draw_stream(0, 500), draw_stream(1, 200, style=-1.5)])
    whole = Monitor(make_reference())
    whole.update(stream)
    at = whole.status().alarm_at
    assert at is not None
    step = Monitor(make_reference())
    step.update(stream[:at])
    assert step.status().level != "alarm"
    step.update(stream[at : at + 1])
    now = step.status()
    assert now.alarm_at == at
    assert max(now.e_covariate, now.e_concept) >= now.threshold


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_exchangeable_streams_seldom_alarm(options: dict[str, Any]) -> None:
    """At most 5 % of streams ever; the binomial bound is for one test in a thousand."""
    alarms = 0
    for seed in range(150):
        monitor = Monitor(make_reference(seed, n=60), 0.05, seed=seed, **options)
        monitor.update(draw_stream(seed + 1000, 1024))
        alarms += monitor.status().level == "alarm"
    assert alarms <= stats.binom.ppf(0.999, 150, 0.05)


def test_average_run_length() -> None:
    """The mean number of observations before an alarm, those without one counted as 4,096."""
    lengths = []
    for seed in range(40):
        monitor = Monitor(make_reference(seed), run_length=300, seed=seed)
        monitor.update(draw_stream(seed + 2000, 4096))
        at = monitor.status().alarm_at if not monitor.status().episodes else monitor.status().episodes[0].alarm_at
        lengths.append(4096 if at is None else at + 1)
    assert np.mean(lengths) >= 300
    assert min(lengths) < 4096  # the promise is not kept by never alarming


@pytest.mark.parametrize(
    ("style", "concept", "kind"),
    # at −9 both have the lowest rank in every image: what is as strange in style is not called concept by chance
    [(-2.0, -1.0, "covariate"), (0.0, -1.5, "concept"), (-0.2, -1.5, "concept"), (-9.0, -9.0, "covariate")],
)
def test_kinds(style: float, concept: float, kind: str) -> None:
    for seed in range(5):
        monitor = Monitor(make_reference(seed), seed=seed)
        monitor.update(draw_stream(seed, 1000))
        assert monitor.status().level == "ok"
        assert monitor.status().trust
        monitor.update(draw_stream(seed + 50, 150, style, concept))
        status = monitor.status()
        assert (status.level, status.kind, status.active) == ("alarm", kind, True)
        assert status.trust == (kind == "covariate")
        assert status.since is not None
        assert abs(status.since - 1000) < 30
        assert status.alarm_at is not None
        assert status.alarm_at < 1080


def test_a_burst_ends_and_the_next_one_is_another_episode() -> None:
    monitor = Monitor(make_reference())
    monitor.update(shifting_stream())
    status = monitor.status()
    assert [one.kind for one in status.episodes] == ["covariate", "concept"]
    burst, last = status.episodes
    assert burst.ended is not None
    assert 1200 < burst.ended < 2300
    assert last.ended is None
    assert abs(last.since - 2400) < 30
    assert status.level == "alarm"


def test_an_alarm_stays_after_its_change_has_ended() -> None:
    monitor = Monitor(make_reference())
    monitor.update(shifting_stream()[:2400])
    status = monitor.status()
    assert (status.level, status.active, status.trust) == ("alarm", False, True)


def test_better_scores_raise_no_alarm_unless_both_sides_are_watched() -> None:
    better = draw_stream(0, 1500, style=1.0, concept=1.0)
    low, both = Monitor(make_reference()), Monitor(make_reference(), sides="both")
    low.update(better)
    both.update(better)
    assert low.status().level == "ok"
    assert both.status().level == "alarm"


def test_classes_in_runs_need_ranks_within_classes() -> None:
    """Two classes of different scores, in runs of 50: the stream is exchangeable only within a class."""
    rng = np.random.default_rng(0)
    edges = np.sort(rng.normal(size=127) * 1.5)
    reference = make_reference()
    counts = np.zeros((3, 128), np.int64)
    labels = np.arange(600) % 2
    np.add.at(counts, (labels, np.searchsorted(edges, rng.normal(2.0 * labels - 1))), 1)
    reference = reference._replace(style_edges=edges, concept_edges=edges, style_counts=counts, concept_counts=counts)
    runs = np.repeat(np.arange(60) % 2, 50)
    scores = rng.normal(2.0 * runs - 1, size=(2, 3000))
    plain, within = Monitor(reference), Monitor(reference, within_class=True)
    for one in (plain, within):
        one.update(make_verdicts(scores[0], scores[1], runs))
    assert plain.status().level == "alarm"
    assert within.status().level != "alarm"


def test_reset_begins_a_new_promise_and_is_recorded(tmp_path: Path) -> None:
    monitor = Monitor(make_reference())
    monitor.update(draw_stream(0, 800, concept=-2))
    monitor.reset("new camera")
    status = monitor.status()
    assert (status.level, status.observations, status.resets, status.episodes) == ("ok", 800, 1, ())
    record = monitor.resets[0]
    assert (record["observation"], record["reason"], record["kind"]) == (800, "new camera", "concept")
    assert [each.tolist() for each in monitor.counts()] == [
        monitor.reference.style_counts.tolist(),
        monitor.reference.concept_counts.tolist(),
    ]
    monitor.update(draw_stream(1, 500))
    assert monitor.status().level == "ok"
    monitor.update(draw_stream(2, 100, style=-2))
    assert abs((monitor.status().since or 0) - 1300) < 30
    monitor.save(tmp_path / "state")
    assert Monitor.load(tmp_path / "state").resets == monitor.resets
    with pytest.raises(ValueError, match="reason"):
        monitor.reset(" ")


def test_merged_monitors() -> None:
    reference = make_reference()
    stream = Verdicts.concat([draw_stream(0, 600), draw_stream(1, 300, style=-1.5)])
    parts = [Monitor(reference, seed=seed) for seed in range(3)]
    for number, part in enumerate(parts):
        part.update(stream[number::3])
    merged = Monitor.merge(parts)
    assert merged.threshold == 3 * parts[0].settings.threshold
    status = merged.status()
    assert (status.level, status.kind, status.observations) == ("alarm", "covariate", 900)
    calm = [Monitor(reference, seed=seed) for seed in range(3)]
    for number, part in enumerate(calm):
        part.update(stream[:576][number::3])
    together, one = Monitor.merge(calm), Monitor(reference)
    one.update(stream[:576])
    assert together.status().level == "ok"
    for sums, expected in zip(together.counts(), one.counts(), strict=True):
        assert sums.tolist() == expected.tolist()  # whole blocks of 64, so all are counted; the reference once
        assert sums.sum() == 500 + 576
    other = Monitor(reference._replace(detector="b" * 64))
    with pytest.raises(ValueError, match="one detector"):
        Monitor.merge([parts[0], other])
    with pytest.raises(ValueError, match="equal settings"):
        Monitor.merge([parts[0], Monitor(reference, 0.05)])


def test_evidence_after_the_pool_froze_is_not_merged() -> None:
    """Ranks in a pool that froze are not independent: a second change must not count towards the merged promise."""
    monitor = Monitor(make_reference())
    monitor.update(shifting_stream()[:2400])
    before = monitor.highest_evidence()
    monitor.update(shifting_stream()[2400:])
    assert monitor.status().episodes[-1].kind == "concept"
    assert monitor.highest_evidence() == before


def test_a_mixture_that_lasts_is_one_change() -> None:
    """A tenth of the images shifted, for long: the change must not be taken for ended again and again."""
    episodes = []
    for seed in range(6):
        usual, shifted = draw_stream(seed, 4500), draw_stream(seed + 50, 4500, style=-3)
        rows = np.arange(4500) + 4500 * (np.random.default_rng(seed).random(4500) < 0.1) * (np.arange(4500) > 500)
        monitor = Monitor(make_reference(seed), seed=seed)
        monitor.update(Verdicts.concat([usual, shifted])[rows])
        episodes.append(len(monitor.status().episodes))
    assert sorted(episodes)[3] == 1
    assert max(episodes) <= 3


def test_promises_of_thinned_streams() -> None:
    """Of `every` observations the first is tested: the k-th test comes after (k − 1) · every + 1 of them."""
    settings = Monitor(make_reference(), run_length=1000, every=50).settings
    least = settings.threshold / 2 - 16  # tests before an alarm, on average
    assert (least - 1) * 50 + 1 == pytest.approx(1000)
    thinned = Monitor(make_reference(), every=50)
    thinned.update(draw_stream(0, 64 * 50 * 3 + 40 * 50))
    thinned.update(draw_stream(1, 64 * 50, style=-4))  # the alarm comes a few tests before a look at the change
    alarm = thinned.status().alarm_at
    assert alarm is not None
    assert thinned.counts()[0].sum() == 500 + thinned.observations // 50 // 64 * 64  # and the pool still grows


def test_merged_alarm_needs_more_evidence() -> None:
    """Evidence between one threshold and three is an alarm alone, and none among three."""
    reference = make_reference()
    for size in range(5, 40):
        alone = Monitor(reference)
        alone.update(Verdicts.concat([draw_stream(0, 640), draw_stream(1, size, style=-1.5)]))
        if alone.settings.threshold <= max(alone.highest_evidence()) < 3 * alone.settings.threshold:
            calm = [Monitor(reference), Monitor(reference)]
            assert alone.status().level == "alarm"
            assert Monitor.merge([alone, *calm]).status().level == "warning"
            return
    pytest.fail("no stream had the evidence that this test needs")


def test_history_is_that_of_the_stream() -> None:
    monitor, stream = Monitor(make_reference()), shifting_stream()
    monitor.update(stream)
    history = monitor.history()
    for one in history:
        part = stream[one.first : one.first + one.images]
        c = part.confidence
        assert abs(one.value - c.mean()) < 1e-8
        assert abs((one.high - one.low) / 2 - stats.norm.ppf(0.975) * np.sqrt((c * (1 - c)).sum()) / len(c)) < 1e-6
        assert one.covariate == part.counts()["covariate"] / len(part)
        assert one.concept == part.counts()["concept"] / len(part)
    assert sum(one.images for one in history) == len(stream)
    recent = monitor.status().accuracy
    assert recent is not None
    assert abs(recent.value - stream.confidence[-512:].mean()) < 1e-8
    assert (recent.first, recent.images) == (len(stream) - 512, 512)


@pytest.mark.parametrize("length", [5, 40, 64, 100])
def test_the_evidence_over_time_counts_every_observation(length: int) -> None:
    """An alarm after a few images has evidence to show, though no whole block was tested."""
    monitor = Monitor(make_reference())
    monitor.update(shifting_stream()[-length:])
    # linear between powers of two, so never more than .09 from the logarithm
    assert monitor.evidence_history().max(1) == pytest.approx(np.log2(monitor.highest_evidence()), abs=0.09)
    assert len(monitor.evidence_history().T) == len(monitor.history()) == -(-length // 64)


def test_history_is_bounded() -> None:
    monitor, stream = Monitor(make_reference(), every=50), draw_stream(0, 40_000)
    monitor.update(stream)
    history = monitor.history()
    assert 64 < len(history) <= 256
    assert abs(sum(one.value * one.images for one in history) / 40_000 - stream.confidence.mean()) < 1e-8
    assert monitor.evidence_history().shape == (2, len(history))


def test_audit_draws_at_random_and_only_those_count() -> None:
    monitor = Monitor(make_reference())
    monitor.update(draw_stream(0, 1000))
    drawn = monitor.audit(200)
    assert len(set(drawn)) == 200
    assert drawn == sorted(drawn)
    assert stats.kstest(np.array(drawn) / 1000, "uniform").pvalue > 0.001
    found = monitor.label({number: number % 10 > 0 for number in drawn[:150]})
    assert found is not None
    right = sum(number % 10 > 0 for number in drawn[:150])
    expected = stats.binomtest(right, 150).proportion_ci(method="exact")
    assert found[3:] == (150, 50, 0, 1000)
    assert np.allclose(found[:3], (right / 150, expected.low, expected.high), atol=1e-9)
    outside = next(number for number in range(1000) if number not in drawn)
    with pytest.raises(ValueError, match="that audit"):
        monitor.label({outside: True})
    with pytest.raises(ValueError, match="number of observations"):
        monitor.audit(2000)


def test_a_draw_is_a_sample_of_its_own_range(tmp_path: Path) -> None:
    """The stream was bad at first and is good now: labels of an early draw must not weigh more than their share."""
    monitor = Monitor(make_reference())
    monitor.update(draw_stream(0, 1000))
    early = monitor.audit(400)
    monitor.label(dict.fromkeys(early, False))
    monitor.update(draw_stream(1, 9000))
    late = monitor.audit(400)
    assert 20 <= sum(number < 1000 for number in late) <= 60  # 40 expected
    assert {number for number in late if number < 1000} <= set(early)  # labelled already, and shared
    found = monitor.label({number: number >= 1000 for number in late})
    assert found is not None
    assert found.low < 0.9 < found.high
    assert set(late) < set(monitor.audit(500))
    monitor.save(tmp_path / "state")
    assert Monitor.load(tmp_path / "state").audits.accuracy() == monitor.audits.accuracy()
    assert min(monitor.audit(50, first=9000)) >= 9000


def test_the_state_is_small_and_strict(tmp_path: Path) -> None:
    classes = 1000
    monitor = Monitor(make_reference(n=50_000, classes=classes, bins=256), within_class=True)
    monitor.update(draw_stream(0, 20_000, classes=classes))
    monitor.update(draw_stream(1, 200, style=-3, classes=classes))
    path = tmp_path / "state"
    monitor.save(path)
    assert path.stat().st_size < 1_000_000
    assert Monitor.load(path, "a" * 64).status() == monitor.status()
    with pytest.raises(ValueError, match="of a monitor of detector bbb"):
        Monitor.load(path, "bbb")
    whole = path.read_bytes()
    for damaged in (whole[:-100], whole[: len(whole) // 2], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="path"):
            Monitor.load(path)
    with pytest.raises(FileNotFoundError):
        Monitor.load(tmp_path / "nothing")


def test_what_it_refuses() -> None:
    reference = make_reference()
    for options in ({"false_alarm": 0.0}, {"run_length": 3}, {"every": 0}, {"sides": "left"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            Monitor(reference, **options)
    with pytest.raises(ValueError, match="style_counts"):
        Monitor(reference._replace(style_edges=reference.style_edges[1:]))
    monitor = Monitor(reference, within_class=True)
    with pytest.raises(ValueError, match="label"):
        monitor.update(make_verdicts(np.zeros(1), np.zeros(1), np.array([3])))
    with pytest.raises(ValueError, match="style"):
        monitor.update(make_verdicts(np.array([np.nan]), np.zeros(1)))
    assert monitor.observations == 0
    assert monitor.status().accuracy is None


def test_sentences() -> None:
    monitor = Monitor(make_reference())
    assert str(monitor.status()).startswith("The stream looks like the reference; 0 observations")
    monitor.update(draw_stream(0, 500, concept=-2))
    assert str(monitor.status()).endswith("Do not trust the predictions.")
    assert "concept shift) since about observation" in str(monitor.status())


_LIGHT = """
import sys
sys.path.insert(0, "tests")
from monitor_examples import draw_stream, make_reference
from shiftprism.monitor import Monitor
monitor = Monitor(make_reference())
monitor.update(draw_stream(0, 300, -2.0))
monitor.audit(3)
monitor.save(sys.argv[1])
assert Monitor.load(sys.argv[1]).status().level == "alarm"
heavy = {"torch", "scipy", "sklearn", "matplotlib", "rich", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[1]
    words = [sys.executable, "-c", _LIGHT, str(tmp_path / "state")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
