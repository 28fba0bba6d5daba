"""ShiftAware: a temperature that reads style and features, fitted to clean data and shifted copies of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis
from torch import Tensor, nn

from shiftprism.calibrators import CALIBRATORS, ShiftAware, Temperature, load
from shiftprism.calibrators._calibrator import FitData
from shiftprism.calibrators._shift_aware import _minimum, _Space
from shiftprism.heads import Linear
from shiftprism.outputs import Outputs


def photograph(samples: int = 400, seed: int = 0, shift: float = 0.0) -> tuple[Outputs, Tensor]:
    """Outputs and labels of a model that is right as often as it says where style is usual, and less where it moved."""
    torch.manual_seed(seed)
    head = Linear(8, 5).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.weight.copy_(3 * torch.randn(5, 8, generator=torch.Generator().manual_seed(7)))
        outputs = head.outputs(torch.randn(samples, 8, dtype=torch.float64, generator=generator))
    style = torch.randn(samples, 4, dtype=torch.float64, generator=generator)
    style[:, 0] += 3 * shift
    probabilities = torch.softmax(outputs.logits * torch.tensor(-0.7 * shift).exp(), 1)
    return outputs._replace(style=style), torch.multinomial(probabilities, 1, generator=generator).squeeze(1)


def shifted_copies() -> dict[str, tuple[Outputs, Tensor]]:
    return {"some": photograph(300, 1, 1.0), "more": photograph(300, 2, 2.0)}


@pytest.fixture(scope="module")
def fitted() -> ShiftAware:
    return ShiftAware.fit(*photograph(), shifted=shifted_copies())


def test_shifted_images_get_the_softer_confidence_that_is_true(fitted: ShiftAware) -> None:
    temperature = Temperature.fit(*photograph())
    assert fitted.report.kept == "fit"
    assert fitted.report.converged
    for shift, gain in ((0.0, -0.02), (1.5, 0.05), (2.5, 0.5)):
        outputs, labels = photograph(4000, 9, shift)
        best = nn.functional.cross_entropy(outputs.logits * torch.tensor(-0.7 * shift).exp(), labels).item()
        ours, theirs = (nn.functional.cross_entropy(x(outputs), labels).item() for x in (fitted, temperature))
        assert ours < theirs - gain
        assert ours < best + 0.1


@pytest.mark.parametrize("shift", [-50.0, -1.0, 0.0, 0.5, 3.0, 1e30])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_no_prediction_changes(fitted: ShiftAware, shift: float, size: float) -> None:
    outputs, _ = photograph(50, 3)
    outputs = outputs._replace(logits=size * outputs.logits, style=outputs.style + shift)
    logits = fitted(outputs)
    assert logits.isfinite().all()
    assert torch.equal(logits.gather(1, outputs.predictions[:, None]).squeeze(1), logits.amax(1))
    factors = logits / outputs.logits
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors))
    assert float(factors.min()) > 0


def test_never_worse_on_its_data_and_the_order_of_the_sets_does_not_matter(fitted: ShiftAware) -> None:
    assert fitted.report.nll_after <= fitted.report.nll_before
    outputs, labels = photograph()
    again = ShiftAware.fit(outputs, labels, shifted=dict(reversed(shifted_copies().items())))
    torch.testing.assert_close(again(outputs), fitted(outputs), rtol=1e-3, atol=1e-3)


def test_clean_data_and_each_shifted_set_have_their_share_of_the_weight() -> None:
    """A set given twice under one name changes nothing in T(x)."""
    clean, (some, truth) = photograph(), photograph(300, 1, 1.0)

    def slopes(times: int) -> Any:
        outputs = Outputs.concat([clean[0], *[some] * times])
        labels = torch.cat([clean[1], *[truth] * times]).numpy()
        conditions = torch.tensor([0] * 400 + [1] * 300 * times).numpy()
        rows = torch.cat([torch.ones(outputs.N, 1), outputs.style[:, :1]], 1).double().numpy()
        start = torch.zeros(2).double().numpy()
        return _minimum(FitData(outputs, labels, conditions), rows, start)[0]

    assert slopes(3) == pytest.approx(slopes(1), abs=1e-4)


def test_distances_are_those_of_scipy_in_all_components() -> None:
    """With as many components as there are columns, d is the Mahalanobis distance of unclipped data."""
    outputs, _ = photograph()
    space = _Space.fit(outputs.style, 4)
    inverse = np.linalg.inv(np.cov(outputs.style.numpy().T, bias=True))
    centre = outputs.style.mean(0).numpy()
    witness = [mahalanobis(row, centre, inverse) ** 2 for row in outputs.style.numpy()]
    assert space.distance(outputs.style).expm1().numpy() == pytest.approx(witness, rel=1e-6)


def test_few_clean_rows_give_few_components() -> None:
    """Of 40 rows two components are read: in more, rows of the fit would be nearer than new ones."""
    outputs, _ = photograph(40)
    assert _Space.fit(outputs.features, 32).components.shape == (8, 2)
    assert _Space.fit(outputs.features, 1).components.shape == (8, 1)


def test_features_that_moved_soften_too() -> None:
    """Style as usual, but features longer and the model wrong more often: the second distance has to see it."""
    clean, (far, truth) = photograph(), photograph(300, 1, 2.0)
    usual = torch.randn(300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    moved = far._replace(style=usual, features=5 * far.features)
    fitted = ShiftAware.fit(*clean, shifted={"longer": (moved, truth)})
    near, distant = (fitted(one).std() / one.logits.std() for one in (clean[0], moved))
    assert distant < 0.5 * near


def test_outputs_of_another_model_are_refused(fitted: ShiftAware) -> None:
    outputs, _ = photograph(20)
    with pytest.raises(ValueError, match="of 4 columns of style or features but got 3 columns"):
        fitted(outputs._replace(style=outputs.style[:, :3]))


def test_without_shifted_data_it_says_how_to_make_some() -> None:
    nothing: tuple[Any, ...] = (None, {})
    for shifted in nothing:
        with pytest.raises(
            ValueError, match=r"of shifted copies but got none; make copies of the images with shifts\."
        ):
            ShiftAware.fit(*photograph(), shifted=shifted)
    with pytest.raises(ValueError, match="Expected `shifted` to be left out for Temperature but got some"):
        Temperature.fit(*photograph(), shifted=shifted_copies())
    outputs, labels = photograph()
    bare = Outputs.from_logits(outputs.logits)
    with pytest.raises(ValueError, match="made by a classifier from images, with style"):
        ShiftAware.fit(bare, labels, shifted={"some": (bare, labels)})
    with pytest.raises(ValueError, match="Expected `parts` to be of one model"):
        ShiftAware.fit(outputs, labels, shifted={"some": (bare, labels)})


def test_saved_and_loaded_whole(fitted: ShiftAware, tmp_path: Path) -> None:
    outputs, _ = photograph(20, 5)
    fitted.save(tmp_path)
    again = load(tmp_path)
    assert CALIBRATORS["shift-aware"] is type(again)
    assert torch.equal(again(outputs), fitted(outputs))
    assert fitted(outputs.to(torch.float32)).dtype == torch.float32


def test_exports_with_a_dynamic_batch(fitted: ShiftAware) -> None:
    outputs, _ = photograph(20, 5)
    shapes: Any = Outputs(*[{0: torch.export.Dim("n")}] * 6)  # type: ignore[arg-type]
    program = torch.export.export(fitted, (outputs.rows(slice(0, 3)),), dynamic_shapes=(shapes,))
    torch.testing.assert_close(program.module()(outputs), fitted(outputs))


def test_the_report_says_what_clean_rows_pay() -> None:
    # the model is true where style is usual, so that every softer answer costs something there
    few, copies = photograph(60), shifted_copies()
    report = ShiftAware.fit(*few, shifted=copies).report
    assert report.kept != "logits"
    assert "clean rows alone are worse (NLL " in report.note
    outputs, labels = photograph()
    copies = {name: (shifted._replace(logits=3 * shifted.logits), truth) for name, (shifted, truth) in copies.items()}
    report = ShiftAware.fit(outputs._replace(logits=3 * outputs.logits), labels, shifted=copies).report
    assert report.kept == "fit"  # over-confident on clean data too, so that both gain
    assert "clean rows" not in report.note


def test_few_or_perfect_answers_keep_a_temperature() -> None:
    outputs, labels = photograph(20)
    report = ShiftAware.fit(outputs, labels, shifted={"same": (outputs, labels)}).report
    assert report.kept in ("temperature", "logits")
    copies, wrong = photograph(300, 1, 1.0)
    one = ShiftAware.fit(outputs.rows([0]), labels[:1], shifted={"some": (copies, wrong)})
    assert one(copies).isfinite().all()
    report = ShiftAware.fit(outputs, outputs.predictions, shifted={"some": (copies, copies.predictions)}).report
    assert report.all_right
    assert report.kept in ("temperature", "logits")
