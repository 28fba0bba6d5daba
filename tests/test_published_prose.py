"""What README.md and results/README.md say in words about the published rows, as predicates over these rows."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest

from averages import average_gains, find_members
from lengths import LONG, length_claims
from more_images import half_by_seeds, is_settled_by_seeds, open_effects
from shiftprism import claims
from shiftprism.claims import paper_value
from shiftprism.report._tables import corruptions_not_chosen_on, rank_calibrators, rank_scores, whole_sets
from shiftprism.rows import Effect, Measured, Results

RESULTS = Path(__file__).parents[1] / "results"
Pair = tuple[str, str]
U = ("alpha-beta", "u")
HEADS = ("vanilla", "alpha", "beta", "alpha-beta")
AVERAGES = ("alpha-beta-mirrored", "alpha-beta-ensemble")
THREE = ("gsd", "odin", "ddu", "sngp", "duq")
SEEDS = dict.fromkeys(THREE, 3) | {"vanilla": 7, "alpha-beta": 11, "alpha": 4, "beta": 4, "laptop-robust": 2}


class Rows:
    """The published rows of one ID data set, with the questions that the sentences answer."""

    def __init__(self, measured: Measured, found: Sequence[claims.Finding]) -> None:
        self.measured = measured
        self.sets, self.blind = whole_sets(measured), corruptions_not_chosen_on(measured)
        self.models = {key[0] for key in measured.index} - {"pixels"}
        self.calibrated = [one.pair for one in rank_calibrators(measured, "corrupted")]
        self.judgements = {one.claim.name: one.judgement for one in found if one.data == measured.data}

    def value(self, pair: Pair, shift: str, metric: str) -> Effect:
        found = self.measured.effect(pair[0], shift, 0, pair[1], metric)
        assert found is not None, (pair, shift, metric)
        return found

    def lead(self, first: Pair, second: Pair, sets: Sequence[str] = (), metric: str = "auroc") -> Effect:
        """The mean over the sets of the first minus the second."""
        return Effect.mean(
            [self.value(first, one, metric) - self.value(second, one, metric) for one in sets or self.sets]
        )

    def below_paper(self, pair: Pair, shift: str, metric: str) -> float:
        """How many points the paper's own number is above ours."""
        theirs = paper_value(self.measured.data, (pair[0], shift, 0, pair[1], metric))
        assert theirs is not None, (pair, shift, metric)
        return 100 * (theirs.value - self.value(pair, shift, metric).value)

    def accuracy(self, model: str) -> float:
        return 100 * self.value((model, "none"), "clean", "accuracy").value

    def best(self, *sets: str) -> list[Pair]:
        return [one.pair for one in rank_scores(self.measured, list(sets or self.sets))]

    def gains(self, head: str, score: str, shift: str) -> list[float]:
        """How far the score is above U in each network that has it."""
        u = {row.seed: row.value for row in self.measured.rows((head, shift, 0, "u", "auroc"))}
        return [row.value - u[row.seed] for row in self.measured.rows((head, shift, 0, score, "auroc"))]

    def seeds(self, model: str) -> int:
        return self.value((model, "none"), "clean", "accuracy").seeds


def significant(lead: Effect) -> bool:
    return lead.low > 0 and lead.decides


@pytest.fixture(scope="module")
def rows(held_out_rows: Results, published_findings: list[claims.Finding]) -> dict[str, Rows]:
    return {one.data: Rows(one, published_findings) for one in Measured.split(held_out_rows)}


def test_u_of_alpha_beta_gains_on_corrupted_and_far_images_and_loses_on_unseen_classes(rows: dict[str, Rows]) -> None:
    own = rows["cifar10"]
    assert significant(own.lead(U, ("vanilla", "energy")))
    for one in ("corrupted", "svhn"):
        assert significant(own.lead(U, ("vanilla", "energy"), [one]))
    assert significant(own.lead(("vanilla", "u"), U, ["cifar100"]))
    assert own.judgements["variants-beat-vanilla-splits"] == "contradicted"
    assert own.judgements["u-best-concept"] == "not shown"


def test_alpha_and_beta_together_are_not_shown_to_beat_either_alone(rows: dict[str, Rows]) -> None:
    for model in ("alpha", "beta", "gsd"):
        assert not significant(rows["cifar10"].lead(U, (model, "u")))
    for claim in ("beats-beta-motion-blur", "beats-alpha-vanilla-corrupted"):
        assert rows["cifar10"].judgements[claim] == "holds"


def test_what_holds(rows: dict[str, Rows]) -> None:
    for claim in ("beats-vanilla-energy", "beta-helps-far"):
        assert rows["cifar10"].judgements[claim] == "holds"
    assert rows["cifar10"].judgements["u-best-far"] == "not shown"
    found = list(rows["cifar100"].judgements.values())
    assert (found.count("holds"), found.count("contradicted")) == (14, 1)


def test_rows_of_older_formulas_were_measured_again_on_few_networks(rows: dict[str, Rows]) -> None:
    """CIFAR-10: see `counts`; CIFAR-100: two seeds of each head, of α four."""
    own, other = rows["cifar10"], rows["cifar100"]
    assert {pair[0] for pair in other.best() if pair[1] == "msp"} == set(HEADS)
    mended = [pair for pair in other.calibrated if pair[1] in ("alpha-beta", "matrix", "dirichlet")]
    seeds = {pair: other.value(pair, "corrupted", "ece").seeds for pair in mended}
    assert seeds == {pair: 4 if pair[0] == "alpha" else 2 for pair in mended}
    models = {pair[0] for pair in own.best() if pair[1] == "msp"}
    counts = {"vanilla": 4, "alpha-beta": 7, "odin": 2, "ddu": 3, "sngp": 3, "duq": 3, "alpha": 1, "beta": 1}
    assert models - {"laptop-robust", *AVERAGES} == set(counts)
    again = [pair for pair in own.calibrated if pair[1] in ("alpha-beta", "matrix", "dirichlet")]
    assert {pair[0]: own.value(pair, "corrupted", "ece").seeds for pair in again if pair[0] not in AVERAGES} == counts
    exponential = [pair for pair in own.calibrated if pair[1] == "exponential-map"]
    assert {pair[0]: own.value(pair, "corrupted", "ece").seeds for pair in exponential} == {
        "alpha-beta": 3,
        "vanilla": 3,
    }
    for name in ("temperature", "matrix", "dirichlet"):
        assert own.judgements[f"corrupted-ece-{name}"] == other.judgements[f"corrupted-ece-{name}"] == "not shown"
    assert own.judgements["beats-vanilla-msp"] == "holds"


def test_spectrum_is_ahead_of_every_other_score(rows: dict[str, Rows]) -> None:
    """By more than four points in the mean of four sets, through corrupted and far images; not on unseen classes."""
    own = rows["cifar10"]
    ours = [("odin", "spectrum"), ("alpha-beta", "spectrum"), ("vanilla", "spectrum")]
    few = [("alpha-beta-mirrored", "spectrum"), ("alpha", "spectrum"), ("beta", "spectrum")]  # one network each
    assert set(own.best()[:6]) == {*ours, *few}
    assert [pair for pair in own.best()[:6] if pair not in few] == ours
    assert own.best()[0] == few[0]
    rival = next(pair for pair in own.best() if pair[1] != "spectrum" and pair[0] not in AVERAGES)
    assert rival == ("gsd", "fisher")
    for pair in ours:
        assert own.lead(pair, rival).value > 0.04
        assert significant(own.lead(pair, rival))
        assert significant(own.lead(pair, U))
        for one in ("corrupted", "svhn", "tiny-imagenet"):
            assert own.lead(pair, rival, [one]).value > 0
        assert own.lead(pair, rival, ["cifar100"]).value < 0
    assert own.best("corrupted")[0][1] == "style"
    gains = {head: fmean(own.gains(head, "spectrum", "cifar100")) for head in ("vanilla", "alpha-beta")}
    assert gains == pytest.approx({"vanilla": -0.005, "alpha-beta": 0.005}, abs=0.001)


def test_on_cifar100_spectrum_is_ahead_and_loses_on_unseen_classes(rows: dict[str, Rows]) -> None:
    """By more than four points over every score but `style`; 1.5 to 4.1 points below U on unseen classes."""
    own = rows["cifar100"]
    rival = next(pair for pair in own.best() if pair[1] not in ("spectrum", "style"))
    for head in ("vanilla", "alpha-beta"):
        assert own.lead((head, "spectrum"), rival).value > 0.04
        assert significant(own.lead((head, "spectrum"), U))
    lost = [-gain for head in HEADS for gain in own.gains(head, "spectrum", "cifar10")]
    assert [round(100 * end, 1) for end in (min(lost), max(lost))] == [1.5, 4.1]


def test_shift_aware_halves_the_error_on_corrupted_images(rows: dict[str, Rows]) -> None:
    """On CIFAR-10 clean images keep their mean ECE, or nearly; on CIFAR-100 it is twice that of temperature or more."""
    for data, own in rows.items():
        for head in ("vanilla", "alpha-beta"):
            ours, theirs = (
                {shift: own.value((head, name), shift, "ece").value for shift in ("clean", "corrupted")}
                for name in ("shift-aware", "temperature")
            )
            assert ours["corrupted"] < theirs["corrupted"] / 2
            if data == "cifar100":
                assert ours["clean"] > 2 * theirs["clean"]
            else:
                ece = {row.seed: row.value for row in own.measured.rows((head, "clean", 0, "temperature", "ece"))}
                found = own.measured.rows((head, "clean", 0, "shift-aware", "ece"))
                worse = fmean(row.value - ece[row.seed] for row in found)
                assert round(worse, 3) == (0.002 if head == "alpha-beta" else 0.001)
                nll = {row.seed: row.value for row in own.measured.rows((head, "clean", 0, "temperature", "nll"))}
                found = own.measured.rows((head, "clean", 0, "shift-aware", "nll"))
                more = [row.value - nll[row.seed] for row in found]
                assert 0.002 <= round(min(more), 3) <= round(max(more), 3) <= 0.005


def test_duq_ddu_and_sngp_are_below_the_energy_of_vanilla(rows: dict[str, Rows]) -> None:
    own = rows["cifar10"]
    accuracies = {"duq": 87.6, "ddu": 86.8, "sngp": 87.9, "vanilla": 90.6}
    assert {model: round(own.accuracy(model), 1) for model in accuracies} == accuracies
    for model in ("duq", "ddu", "sngp"):
        best = next(pair for pair in own.best() if pair[0] == model and pair[1] not in ("style", "spectrum"))
        assert own.lead(("vanilla", "energy"), best).value > 0


def test_mahalanobis_is_below_chance(rows: dict[str, Rows]) -> None:
    own = rows["cifar10"]
    assert Effect.mean([own.value(("vanilla", "mahalanobis"), one, "auroc") for one in own.sets]).value < 0.5


def test_other_scores_of_the_same_network_are_better_than_u(rows: dict[str, Rows]) -> None:
    """On average `fdbd`, `prism` and `fisher` are, on CIFAR-10 significantly, by less than a fifth of a point."""
    for data, own in rows.items():
        leads = {score: own.lead(("alpha-beta", score), U) for score in ("fdbd", "prism", "fisher")}
        assert all(lead.value > 0 for lead in leads.values())
        if data == "cifar10":
            assert all(lead.value < 1 / 500 for lead in leads.values())
            assert all(significant(lead) for lead in leads.values())


def test_on_corruptions_that_played_no_part_in_their_choice_they_are_below_u(rows: dict[str, Rows]) -> None:
    own = rows["cifar10"]
    blind = {score: own.lead(U, ("alpha-beta", score), own.blind) for score in ("fisher", "prism", "fdbd")}
    assert all(significant(lead) for lead in blind.values())
    assert blind["fisher"].value < blind["prism"].value < blind["fdbd"].value < 0.01


def test_fdbd_is_the_best_score_of_either_head_on_cifar100(rows: dict[str, Rows]) -> None:
    own = rows["cifar100"]
    for head in ("vanilla", "alpha-beta"):
        scores = [pair[1] for pair in own.best() if pair[0] == head and pair[1] not in ("spectrum", "style")]
        assert scores[0] == "fdbd"
    assert all(0.03 < own.lead((head, "fdbd"), U).value < 0.04 for head in ("vanilla", "alpha-beta"))
    assert significant(own.lead(("alpha-beta", "fdbd"), U))
    plain = [pair for pair in own.best("corrupted") if pair[1] not in ("spectrum", "style")]
    assert next(pair for pair in plain if own.seeds(pair[0]) > 2) == ("alpha-beta", "prism")
    assert significant(own.lead(("alpha-beta", "prism"), U, ["corrupted"]))


def test_the_division_of_labour(rows: dict[str, Rows]) -> None:
    """In an α-β network h follows concept shift on both ID sets, g covariate shift on CIFAR-10 alone."""
    both = ["h-sees-concept", "h-sees-splits", "grows-with-corruption", "grows-with-concept"]
    both += ["calibration-keeps-predictions", "calibration-keeps-scores"]
    assert {own.judgements[claim] for own in rows.values() for claim in both} == {"holds"}
    assert {own.judgements["u-best-of-alpha-beta"] for own in rows.values()} == {"holds"}
    for own, unseen in ((rows["cifar10"], "cifar100"), (rows["cifar100"], "cifar10")):
        assert own.lead(("alpha-beta", "h"), U, [unseen]).value > 0
    assert [rows[data].judgements["g-sees-covariate"] for data in ("cifar10", "cifar100")] == ["holds", "not shown"]


def test_uncalibrated_alpha_beta_networks_are_the_more_over_confident_ones(rows: dict[str, Rows]) -> None:
    for own in rows.values():
        for shift in ("clean", "corrupted"):
            assert own.lead(("alpha-beta", "none"), ("vanilla", "none"), [shift], "ece").value > 0


def test_g_under_impulse_noise_is_below_chance_in_some_networks(rows: dict[str, Rows]) -> None:
    own, other = rows["cifar10"].measured, rows["cifar100"].measured
    vanilla = [row.value for row in own.rows(("vanilla", "impulse_noise", 0, "g", "auroc"))]
    assert [round(100 * value) for value in vanilla if value < 0.5] == [9]
    norms = [lengthening(own, "vanilla", severity) for severity in (1, 2, 3, 4, 5)]
    assert [seed for seed in norms[0] if min(ratio[seed] for ratio in norms) > 1] == [4]
    assert min(lengthening(other, "alpha-beta", 5).values()) > 1
    found = [row.value for row in own.rows(("alpha-beta", "impulse_noise", 0, "g", "auroc"))]
    assert [round(100 * end) for end in (min(found), max(found))] == [65, 97]


def lengthening(own: Measured, model: str, severity: int) -> dict[int, float]:
    """Of each seed: the median norm under impulse noise over that of clean images."""
    clean = {row.seed: row.value for row in own.rows((model, "clean", 0, "norm", "median"))}
    noised = own.rows((model, "impulse_noise", severity, "norm", "median"))
    return {row.seed: row.value / clean[row.seed] for row in noised}


def test_which_calibrators_fell_back_to_temperature(rows: dict[str, Rows]) -> None:
    own = rows["cifar10"].measured
    plain = {row.seed: row.value for row in own.rows(("vanilla", "clean", 0, "temperature", "nll"))}
    for name in ("dirichlet", "alpha-beta", "exponential-map"):
        found = {row.seed: row.value for row in own.rows(("vanilla", "clean", 0, name, "nll"))}
        assert len(found) == (3 if name == "exponential-map" else 4)
        assert found == {seed: plain[seed] for seed in found}


def test_which_rivals_cifar100_lacks(rows: dict[str, Rows]) -> None:
    assert rows["cifar100"].models == set(HEADS)
    assert rows["cifar100"].judgements["u-best-far"] == "holds"


def test_the_best_scores_of_the_public_network() -> None:
    (own,) = Measured.split(Results.read(RESULTS).where(model="resnet20"))
    ranking = [one.pair[1] for one in rank_scores(own, whole_sets(own))]
    assert ranking[:5] == ["prism", "knn", "fdbd", "gen", "nnguide"]
    assert (ranking.index("u"), len(ranking)) == (6, 24)


def test_the_distance_from_the_paper(rows: dict[str, Rows]) -> None:
    """Five to six points of accuracy; U of α-β is farther below the paper's than vanilla's energy is."""
    own = rows["cifar10"]
    assert 5 <= own.below_paper(("vanilla", "none"), "clean", "accuracy") <= 6
    u, energy = (
        {shift: own.below_paper(pair, shift, "auroc") for shift in own.sets} for pair in (U, ("vanilla", "energy"))
    )
    assert all(u[shift] > max(energy[shift], 0) for shift in own.sets)
    assert all(energy[shift] < 0 for shift in ("tiny-imagenet", "corrupted"))
    weak = [("vanilla", "gmm"), ("ddu", "gmm"), ("vanilla", "mahalanobis_logits")]
    far = [own.below_paper(pair, shift, "auroc") for pair in weak for shift in own.sets]
    assert 8 <= min(far) <= max(far) < 42.5


def test_seeds_and_images(rows: dict[str, Rows]) -> None:
    """2,000 images of each corruption, 10,000 of every other set."""
    own = rows["cifar10"]
    seeds = {model: own.seeds(model) for model in own.models - {"ensemble"}}
    assert seeds == dict.fromkeys(seeds, 1) | SEEDS
    other = rows["cifar100"]
    assert {model: other.seeds(model) for model in other.models} == {
        "vanilla": 4,
        "alpha-beta": 4,
        "alpha": 4,
        "beta": 2,
    }
    detected = [row for row in own.measured.results.rows if row.metric == "auroc"]
    single = [row for row in detected if row.kind == "covariate" and row.severity]
    whole = [row for row in detected if row.shift in own.sets and row.severity == 0]
    assert {row.n for row in single} == {2000}
    assert {row.n for row in whole if row.shift != "corrupted"} == {10000}


def test_what_longer_training_changes(held_out_rows: Results) -> None:
    longer = Results.read(RESULTS / "long")
    both = Results.concat([held_out_rows, longer])
    (measured,) = (one for one in Measured.split(both) if one.data == "cifar10")
    own = Rows(measured, [])
    assert {own.seeds(head + LONG) for head in ("vanilla", "alpha-beta")} == {3}

    def leads(score: str, *sets: str) -> tuple[Effect, Effect]:
        """Of α-β over vanilla, after 12 and after 60 epochs."""
        first, second = (own.lead(("alpha-beta" + end, score), ("vanilla" + end, score), sets) for end in ("", LONG))
        return first, second

    short, long = leads("u", "cifar100")
    assert significant(short * -1.0)
    assert long.value < 0
    assert not significant(long * -1.0)
    assert not significant(long - short)
    short, long = leads("gen", "cifar100")
    assert not significant(short)
    assert significant(long)
    assert significant(long - short)
    short, long = leads("u", "corrupted")
    assert significant(short)
    assert significant(long)
    assert abs(long.value - short.value) < 0.002
    for sets in (["svhn"], own.sets):
        short, long = leads("u", *sets)
        assert significant(long)
        assert not significant(long - short)
    fallen = own.lead(("vanilla", "u"), ("vanilla" + LONG, "u"), ["svhn"])
    assert fallen.value > 0
    assert not significant(fallen)
    vanilla = [row.value for row in own.measured.rows(("vanilla" + LONG, "svhn", 0, "u", "auroc"))]
    assert 0.03 < max(vanilla) - min(vanilla) < 0.05
    for head in ("vanilla", "alpha-beta"):
        assert own.accuracy(head + LONG) > own.accuracy(head) + 1
        assert significant(own.lead((head + LONG, "u"), (head, "u"), ["cifar100"]))
        others = [pair for pair in own.best() if pair[0] == head + LONG and pair[1] != "spectrum"]
        assert own.lead((head + LONG, "spectrum"), others[0]).value > 0.03


def test_judgements_of_both_lengths(held_out_rows: Results) -> None:
    """What holds after 12 epochs holds after 60 but for one claim; the two contradicted ones are not shown."""
    both = Results.concat([held_out_rows, Results.read(RESULTS / "long")])
    cells = [line.split(" | ")[1:3] for line in length_claims(both).splitlines()[2:]]
    judged = [tuple(cell.partition(";")[0] for cell in pair) for pair in cells]
    assert [long for short, long in judged if short == "holds" != long] == ["not shown"]
    assert [long for short, long in judged if short == "contradicted"] == ["not shown"] * 2


def test_what_averaging_gains(held_out_rows: Results) -> None:
    """The gains that the section names in words, read from its table."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in average_gains(held_out_rows).splitlines()
    ]
    mirrored, ensemble = ({(line[0], line[1]): line[column] for line in lines} for column in (3, 4))
    assert ensemble["accuracy in %", "clean"] == "+1.8"
    assert ensemble["accuracy in %", "corrupted"] == "+2.9"
    assert ensemble["`gen`", "cifar100"] == "+1.5"
    assert ensemble["ECE in % with temperature", "clean"] == "+0.3"
    one = float(next(line[2] for line in lines if line[:2] == ["ECE in % with temperature", "corrupted"]).split()[0])
    assert -float(ensemble["ECE in % with temperature", "corrupted"].replace("−", "-")) / one == pytest.approx(
        1 / 4, abs=0.02
    )
    unseen = {score: mirrored[f"`{score}`", "cifar100"] for score in ("u", "spectrum", "knn")}
    assert unseen == {"u": "+0.8", "spectrum": "+1.0", "knn": "+1.4"}
    for score in ("gen", "entropy", "msp"):
        share = float(mirrored[f"`{score}`", "cifar100"]) / float(ensemble[f"`{score}`", "cifar100"])
        assert 0.4 < share < 0.65
    assert find_members(held_out_rows.where(data="cifar10")) == (0, 7, 8, 9, 10)


def test_what_10000_images_of_each_corruption_change(held_out_rows: Results) -> None:
    """g falls by 0 to .2 points, U rises by 0 to .2, h by .2 to .4; image noise falls by more than √5."""
    many = Results.read(RESULTS / "images")
    assert {(row.model, row.seed) for row in many.rows} == {
        ("vanilla", 6),
        ("alpha", 3),
        ("beta", 3),
        ("alpha-beta", 0),
    }
    published = {
        (row.model, row.weights, row.subject, row.metric): row
        for row in held_out_rows.where(data="cifar10", shift="corrupted", severity=0).rows
    }
    pairs = [(row, published[row.model, row.weights, row.subject, row.metric]) for row in many.rows]
    assert {(now.n, before.n) for now, before in pairs} == {(750_000, 150_000)}
    detected = [(now, before) for now, before in pairs if now.metric == "auroc"]
    assert all(abs(now.value - before.value) < before.error for now, before in detected)
    errors = [[round(100 * row.error, 2) for row in rows] for rows in zip(*detected, strict=True)]
    assert [(min(one), max(one)) for one in errors] == [(0.11, 0.16), (0.40, 0.48)]
    assert all(now.error * 5**0.5 < before.error for now, before in detected)
    for score, ends in {"g": (-0.2, 0.0), "u": (0.0, 0.2), "h": (0.2, 0.4)}.items():
        changes = [100 * (now.value - before.value) for now, before in detected if now.subject == score]
        assert (round(min(changes), 1), round(max(changes), 1)) == ends, score
    eces = [(now, before) for now, before in pairs if (now.subject, now.metric) == ("shift-aware", "ece")]
    assert len(eces) == 4
    assert all(round(before.value - now.value, 3) in (0.004, 0.005, 0.006) for now, before in eces)


def test_more_images_would_settle_no_open_claim(held_out_rows: Results) -> None:
    """Without any image noise the interval nearest to the bound of each claim would be less than a quarter narrower."""
    for _, claim, effects in open_effects(held_out_rows):
        assert not is_settled_by_seeds(claim, effects), claim.name
        nearest = min(effects, key=lambda one: abs(one.value + claim.margin) / one.error)
        assert half_by_seeds(nearest) > 3 / 4 * (nearest.high - nearest.value), claim.name


@pytest.mark.slow
def test_ten_seeds_would_leave_most_of_what_is_not_shown_open(held_out_rows: Results) -> None:
    opened = claims.open_claims(held_out_rows)
    settled = [one for one in opened if one.required_seeds is not None]
    assert len(settled) < len(opened) / 2
