"""Sentences that are written by hand in README.md and results/README.md: each is there, and true of the rows."""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

import pytest

from shiftprism import claims
from shiftprism.benchmark import Results
from shiftprism.benchmark._bootstrap import Effect, Measured
from shiftprism.claims import paper_value
from shiftprism.report._paper_tables import calibrated, corruptions_not_chosen_on, ranked, whole_sets

ROOT = Path(__file__).parents[1]
Pair = tuple[str, str]
U = ("alpha-beta", "u")
HEADS = ("vanilla", "alpha", "beta", "alpha-beta")
WORDS = {1: "one", 2: "two", 3: "three", 5: "five"}


class Rows:
    """The published rows of one ID data set, asked as a sentence would."""

    def __init__(self, measured: Measured, found: Sequence[claims.Finding]) -> None:
        self.measured = measured
        self.sets, self.blind = whole_sets(measured), corruptions_not_chosen_on(measured)
        self.models = {key[0] for key in measured.index} - {"pixels"}
        self.calibrated = [pair for pair, _, _ in calibrated(measured, "corrupted")]
        self.verdicts = {one.claim.name: one.reason or one.verdict for one in found if one.data == measured.data}

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
        theirs = paper_value(self.measured.data, shift, 0, *pair, metric)
        assert theirs is not None, (pair, shift, metric)
        return 100 * (theirs.value - self.value(pair, shift, metric).value)

    def accuracy(self, model: str) -> float:
        return 100 * self.value((model, "none"), "clean", "accuracy").value

    def best(self, *sets: str) -> list[Pair]:
        return [pair for pair, _, _ in ranked(self.measured, list(sets or self.sets))]

    def seeds(self, model: str) -> int:
        return self.value((model, "none"), "clean", "accuracy").seeds


def beyond(lead: Effect) -> bool:
    return lead.low > 0


def within(lead: Effect) -> bool:
    return lead.value > 0 >= lead.low


@pytest.fixture(scope="module")
def rows() -> dict[str, Rows]:
    results = Results.read(ROOT / "results").where(protocol=("held-out", ""))
    found = claims.judge(results)
    return {one.data: Rows(one, found) for one in Measured.split(results)}


@pytest.fixture(scope="module")
def page() -> str:
    return _one_line(ROOT / "results/README.md")


@pytest.fixture(scope="module")
def readme() -> str:
    return _one_line(ROOT / "README.md")


def _one_line(path: Path) -> str:
    return re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))


def said(text: str, *phrases: str) -> None:
    for phrase in phrases:
        assert phrase in text, phrase


def test_the_gain(rows: dict[str, Rows], page: str) -> None:
    own = rows["cifar10"]
    leads = {score: own.lead(U, ("vanilla", score)) for score in ("msp", "energy")}
    assert all(map(beyond, leads.values()))
    points = {score: f"{100 * lead.value:.1f}" for score, lead in leads.items()}
    said(
        page,
        f"U of α-β beats the softmax confidence of a vanilla network by {points['msp']} points of AUROC in the mean of "
        f"the four sets and its energy by {points['energy']}, both beyond noise",
        "It gains on corrupted and far images (SVHN), beyond noise too, and *loses* on unseen classes",
        "on CIFAR-100 the ensemble and even the vanilla network's own U are ahead of it beyond noise",
        "the paper's statements about unseen classes and the splits are contradicted",
        "U of α alone, β alone, GSD and odin is level with it or above",
        "That α and β are better together than either alone is not to be seen",
    )
    for one in ("corrupted", "svhn"):
        assert beyond(own.lead(U, ("vanilla", "energy"), [one]))
    for ahead in (("ensemble", "entropy"), ("vanilla", "u")):
        assert beyond(own.lead(ahead, U, ["cifar100"]))
    for claim in ("u-best-concept", "variants-beat-vanilla-splits"):
        assert own.verdicts[claim] == "contradicted"
    for model in ("alpha", "beta", "gsd", "odin"):
        assert not beyond(own.lead(U, (model, "u")))
    said(
        page,
        "U of α-β beats the energy of a vanilla network; on SVHN no method of the paper's Table 1 is better than it",
    )
    for claim in ("beats-vanilla-energy", "u-best-far", "beta-helps-far"):
        assert own.verdicts[claim] == "holds"
    said(page, "two seeds give 9 and none")
    found = list(rows["cifar100"].verdicts.values())
    assert (found.count("holds"), found.count("contradicted")) == (9, 0)


def test_duq_and_ddu(rows: dict[str, Rows], page: str, readme: str) -> None:
    own = rows["cifar10"]
    duq, ddu = own.accuracy("duq"), own.accuracy("ddu")
    said(page, f"DUQ gets {duq:.1f} % of the test set right", f"DDU with its spectral normalisation {ddu:.1f} %")
    said(page, "both detect worse than the vanilla network's softmax")
    for model in ("duq", "ddu"):
        best = next(pair for pair in own.best() if pair[0] == model)
        assert beyond(own.lead(("vanilla", "msp"), best))
    others = [own.accuracy(model) for model in own.models - {"duq", "ddu"}]
    said(readme, "(`mahalanobis`, below 50 %;")
    assert Effect.mean([own.value(("vanilla", "mahalanobis"), one, "auroc") for one in own.sets]).value < 0.5
    said(
        readme, f"({ddu:.1f} and {duq:.1f} % of the test set right; the others {min(others):.0f} to {max(others):.0f})"
    )


def test_other_scores_of_the_same_network(rows: dict[str, Rows], page: str) -> None:
    said(
        page,
        "`fdbd`, `prism` and `fisher` do on average; on CIFAR-10 by a third of a point or less, though beyond noise",
        "on the corruptions that played no part in choosing them `fisher` and `prism` are level with U, and `fdbd` is "
        "behind it",
        "`fdbd` is the best score of either head, three to four points above U of α-β",
        "`prism` is the best on corrupted images; on the same networks both leads are beyond noise",
    )
    for data, own in rows.items():
        leads = {score: own.lead(("alpha-beta", score), U) for score in ("fdbd", "prism", "fisher")}
        assert all(lead.value > 0 for lead in leads.values())
        if data == "cifar10":
            assert all(beyond(lead) and lead.value < 1 / 300 for lead in leads.values())
    own = rows["cifar10"]
    blind = {score: own.lead(("alpha-beta", score), U, own.blind).value for score in ("fdbd", "prism", "fisher")}
    assert max(abs(blind["fisher"]), abs(blind["prism"])) < 0.001
    assert blind["fdbd"] < -0.002
    own = rows["cifar100"]
    assert {own.best()[0], own.best()[1]} == {("vanilla", "fdbd"), ("alpha-beta", "fdbd")}
    assert all(0.03 < own.lead((head, "fdbd"), U).value < 0.04 for head in ("vanilla", "alpha-beta"))
    assert own.best("corrupted")[0] == ("alpha-beta", "prism")
    assert beyond(own.lead(("alpha-beta", "fdbd"), U))
    assert beyond(own.lead(("alpha-beta", "prism"), U, ["corrupted"]))


def test_the_division_of_labour(rows: dict[str, Rows], page: str) -> None:
    said(
        page,
        "In an α-β network h follows concept shift more than g does, on both ID sets",
        "g follows covariate shift more than h on CIFAR-10 (not shown on CIFAR-100)",
        "AUROC rises with severity and along the concept splits, the best of g, h and U is U on CIFAR-10 (not shown on "
        "CIFAR-100), and calibrating α and β changes no prediction and no score",
    )
    both = ["h-sees-concept", "h-sees-splits", "grows-with-corruption", "grows-with-concept"]
    both += ["calibration-keeps-predictions", "calibration-keeps-scores"]
    assert {own.verdicts[claim] for own in rows.values() for claim in both} == {"holds"}
    for claim in ("g-sees-covariate", "u-best-of-alpha-beta"):
        assert (rows["cifar10"].verdicts[claim], rows["cifar100"].verdicts[claim]) == ("holds", "not shown")


def test_calibration(rows: dict[str, Rows], page: str) -> None:
    ours, theirs = ("alpha-beta", "alpha-beta"), ("vanilla", "temperature")
    own = rows["cifar100"]
    values = [f"{own.value(pair, 'corrupted', 'ece').value:.3f}".lstrip("0") for pair in (ours, theirs)]
    said(
        page,
        "There it has the smallest ECE and NLL of all on corrupted images, though two seeds do not lift its lead over "
        f"vanilla with temperature ({values[0]} against {values[1]}) above noise",
        "On CIFAR-10 it is as good as any on clean data and has the larger ECE on corrupted data than vanilla with "
        "plain temperature, though not beyond the noise of the seeds",
        "Uncalibrated, α-β networks are the more over-confident ones",
    )
    for metric in ("ece", "nll"):
        others = [pair for pair in own.calibrated if pair != ours]
        assert all(own.lead(pair, ours, ["corrupted"], metric).value > 0 for pair in others), metric
    assert within(own.lead(theirs, ours, ["corrupted"], "ece"))
    own = rows["cifar10"]
    assert not any(beyond(own.lead(ours, pair, ["clean"], "ece")) for pair in own.calibrated)
    assert within(own.lead(ours, theirs, ["corrupted"], "ece"))
    for one in rows.values():
        for shift in ("clean", "corrupted"):
            assert one.lead(("alpha-beta", "none"), ("vanilla", "none"), [shift], "ece").value > 0


def test_g_under_impulse_noise(rows: dict[str, Rows], page: str) -> None:
    said(page, "Impulse noise makes features *longer* in some networks: there g detects less than a coin would")
    own = rows["cifar10"].measured
    found = [row.value for model in HEADS for row in own.rows((model, "impulse_noise", 0, "g", "auroc"))]
    assert min(found) < 0.5
    assert max(found) > 0.8


def test_the_distance_from_the_paper(rows: dict[str, Rows], page: str) -> None:
    own = rows["cifar10"]
    gaps = [{shift: own.below_paper(pair, shift, "auroc") for shift in own.sets} for pair in (U, ("vanilla", "energy"))]
    u, energy = ({shift: f"{gap:.1f}" for shift, gap in some.items()} for some in gaps)
    here = 100 * own.lead(U, ("vanilla", "energy")).value
    there = here + mean(gaps[0].values()) - mean(gaps[1].values())
    said(
        page,
        "Clean accuracy on CIFAR-10 is five to six points below its WRN-28-10",
        f"U of α-β is {u['cifar100']} points below the paper's on CIFAR-100, {u['tiny-imagenet']} on Tiny ImageNet, "
        f"{u['svhn']} on SVHN and {u['corrupted']} on corrupted images",
        f"the energy of a vanilla network only {energy['cifar100']} on CIFAR-100 and {energy['svhn']} on SVHN, and it "
        "is above the paper's on the other two",
        f"lead over that energy, {there:.1f} points in the mean of the four sets in the paper and {here:.1f} here",
        "Densities of features (GMM, DDU), Mahalanobis distances and DUQ are eight to forty points below",
    )
    for pair in (("vanilla", "none"), ("alpha-beta", "alpha-beta"), ("gsd", "exponential-map")):
        assert 5 <= own.below_paper(pair, "clean", "accuracy") <= 6
    assert all(float(energy[shift]) < 0 for shift in ("tiny-imagenet", "corrupted"))
    weak = [("vanilla", "gmm"), ("ddu", "gmm"), ("vanilla", "mahalanobis_logits")]
    far = [own.below_paper(pair, shift, "auroc") for pair in weak for shift in own.sets]
    far += [own.below_paper(("duq", "kernel"), shift, "auroc") for shift in ("cifar100", "svhn")]
    assert 8 <= min(far) <= max(far) < 40.5


def test_seeds_members_and_images(rows: dict[str, Rows], page: str, readme: str) -> None:
    own = rows["cifar10"]
    seeds = {model: WORDS[own.seeds(model)] for model in own.models - {"ensemble"}}
    assert seeds == dict.fromkeys(seeds, "one") | {"alpha": "three", "beta": "three", "gsd": "three"} | dict.fromkeys(
        ("vanilla", "alpha-beta"), "five"
    )
    said(
        page,
        "On CIFAR-10 five seeds of vanilla and α-β, three of α, β and GSD, one of the others; on CIFAR-100 two of each",
    )
    assert {rows["cifar100"].seeds(model) for model in rows["cifar100"].models} == {2}
    for text in (page, readme):
        said(text, "`ensemble` the mean of five vanilla networks")
    said(page, "2,000 images of each corruption at each severity, all 10,000 of every other set")
    said(readme, "2,000 images of each corruption, all 10,000 of every other set")
    detected = [row for row in own.measured.results.rows if row.metric == "auroc"]
    single = [row for row in detected if row.kind == "covariate" and row.severity]
    whole = [row for row in detected if row.shift in own.sets and row.severity == 0]
    assert {row.n for row in single} == {2000}
    assert {row.n for row in whole if row.shift != "corrupted"} == {10000}
    errors = [100 * median(row.error for row in some) for some in (single, whole)]
    said(page, f"an AUROC is known to {errors[0]:.1f} points on a single corruption and {errors[1]:.1f} on a whole set")
