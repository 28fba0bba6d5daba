"""The laws every head keeps, and the paper's identities between heads."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from examples import features_of, head_of, many_outputs
from shiftprism.heads import (
    GSD,
    HEADS,
    Cosine,
    Euclidean,
    Geometric,
    Head,
    HyperFree,
    Inner,
    Linear,
    LogitNorm,
    T2FNorm,
    describe_heads,
    norm,
)
from shiftprism.outputs import Outputs

every_head = pytest.mark.parametrize("name", sorted(HEADS))


@every_head
def test_logits_are_those_of_the_outputs(name: str) -> None:
    head, features = head_of(name), features_of()
    outputs = head.outputs(features)
    assert torch.equal(head(features), outputs.logits)
    assert outputs.check().features is features
    torch.testing.assert_close(outputs.norms, features.norm(dim=1))


@every_head
def test_gradients_are_finite_at_zero_and_far_out(name: str) -> None:
    head = head_of(name)
    for scale in (0.0, 1e-30, 1e-3, 1e3, 1e12):
        features = (scale * features_of()).requires_grad_()
        outputs = head.outputs(features).check()
        torch.stack([field.sum() for field in outputs]).sum().backward()
        assert features.grad is not None
        assert features.grad.isfinite().all(), scale
        assert all(p.grad is None or p.grad.isfinite().all() for p in head.parameters()), scale


@every_head
def test_float32_survives_huge_features(name: str) -> None:
    head = head_of(name).float()
    assert head.finite_up_to >= 1e15
    head.outputs(features_of(scale=head.finite_up_to).float()).check()


def with_a_zero_row(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Features that float16 holds exactly, one of them 0."""
    features = features_of().half().to(dtype)
    features[0] = 0
    return features


@every_head
@pytest.mark.parametrize("given", [torch.float32, torch.float16])
def test_autocast_changes_no_value_and_leaves_gradients_finite(name: str, given: torch.dtype) -> None:
    head, labels = head_of(name).float(), torch.arange(20) % 4
    features = with_a_zero_row(given).requires_grad_()
    expected = head.outputs(features.detach().float())
    with torch.autocast("cpu", torch.float16):
        found = head.outputs(features)
        loss = head.loss(found.logits, labels)
        assert torch.equal(head(features), found.logits)
        scales = head.scales(features)
        head.after_step(features, labels)
    loss.backward()  # outside of autocast, as torch's manual asks
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    assert all(torch.equal(value, head.scales(features.float())[key]) for key, value in scales.items())
    assert features.grad is not None
    gradients = [features.grad, *(p.grad for p in head.parameters() if p.grad is not None)]
    assert all(gradient.isfinite().all() for gradient in gradients)


@every_head
def test_a_model_cast_to_half_keeps_its_head_in_float32(name: str) -> None:
    """Also what the head gathers: a moving average with γ = 0.999 would stand still in half precision."""
    head = head_of(name).float()
    state = {key: tensor.clone() for key, tensor in head.state_dict().items()}
    expected = head.outputs(with_a_zero_row()).check()
    cast = nn.Sequential(head).half()
    assert all(torch.equal(tensor, state[key]) for key, tensor in head.state_dict().items())
    for one, other in zip(head.outputs(with_a_zero_row(torch.float16)).check(), expected, strict=True):
        assert torch.equal(one, other)
    assert {field.dtype for field in head.outputs(with_a_zero_row(torch.float16))} == {torch.float32}
    assert {p.dtype for p in cast.double().parameters()} == {torch.float64}


@every_head
def test_the_loss_depends_on_every_parameter(name: str) -> None:
    """A bias that no output reads would be saved, counted, and an error in training on several processes."""
    head = head_of(name).train()
    head.loss(head(features_of()), torch.arange(20) % 4).backward()
    assert [key for key, parameter in head.named_parameters() if parameter.grad is None] == []


@every_head
def test_state_round_trips(name: str) -> None:
    head, other = head_of(name, seed=1), head_of(name, seed=2)
    other.load_state_dict(head.state_dict())
    assert torch.equal(head(features_of()), other(features_of()))


def test_exports_with_a_dynamic_batch() -> None:
    """All in one program: the exporter's own work would take a second for each head."""

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict({name: head_of(name) for name in HEADS})

        def forward(self, features: torch.Tensor) -> dict[str, Outputs]:
            return {name: head.outputs(features) for name, head in self.heads.items() if isinstance(head, Head)}

    module = Wrapped()
    program = torch.export.export(module, (features_of(4),), dynamic_shapes=({0: torch.export.Dim("n")},))
    for size in (2, 9):
        found, expected = program.module()(features_of(size)), module(features_of(size))
        assert set(found) == set(HEADS)
        for name in HEADS:
            torch.testing.assert_close(tuple(found[name]), tuple(expected[name]))


@every_head
def test_parameter_groups_hold_each_parameter_once(name: str) -> None:
    head = head_of(name)
    groups = head.parameter_groups(0.5)
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(listed) == sorted(id(parameter) for parameter in head.parameters())
    assert all(group["params"] for group in groups)
    undecayed = {id(p) for group in groups if group["weight_decay"] == 0 for p in group["params"]}
    assert undecayed == {id(head.get_parameter(parameter)) for parameter in head.undecayed}
    assert all(group["weight_decay"] in (0, 0.5) for group in groups)


def test_published_heads_take_the_weight_decay_off_their_class_weights() -> None:
    undecayed = {name: entry.implementation.undecayed for name, entry in HEADS.items()}
    assert undecayed["inner"] == ("weight", "bias")
    assert undecayed["cosine"] == undecayed["euclidean"] == undecayed["hyper-free"] == ("weight",)
    assert undecayed["sngp"] == ("output",)
    assert undecayed["vanilla"] == undecayed["alpha-beta"] == undecayed["gsd"] == undecayed["duq"] == ()


@every_head
def test_the_loop_gets_plain_answers(name: str) -> None:
    head, features, labels = head_of(name), features_of().requires_grad_(), torch.arange(20) % 4
    logits = head(features)
    if type(head).loss is Head.loss:
        assert head.loss(logits, labels).item() == pytest.approx(nn.functional.cross_entropy(logits, labels).item())
    if type(head).penalty is Head.penalty:
        assert head.penalty(features, logits).item() == 0
    assert (head.loss(logits, labels) + head.penalty(features, logits)).isfinite()
    head.start_epoch()
    head.after_step(features, labels)
    head.end_epoch()
    assert not any(buffer.requires_grad for buffer in head.buffers())  # no graph piles up from step to step


@every_head
def test_what_a_head_gathered_is_in_its_state(name: str) -> None:
    head, other = head_of(name, seed=1), head_of(name, seed=2)
    head.start_epoch()
    head.after_step(features_of(seed=5), torch.arange(20) % 4)
    before = head(features_of())
    head.end_epoch()
    assert torch.equal(head(features_of()), before) == (type(head).end_epoch is Head.end_epoch)
    other.load_state_dict(head.state_dict())
    assert torch.equal(head(features_of()), other(features_of()))


@every_head
def test_wrong_features_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"Expected `features` to be of shape \(N, 6\) but got shape \(3, 5\)"):
        head_of(name)(torch.zeros(3, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"Expected `features` to be of shape \(N, 6\) but got shape \(6,\)"):
        head_of(name)(torch.zeros(6, dtype=torch.float16, requires_grad=True))
    with pytest.raises(ValueError, match="Expected `out_features` to be a positive number but got 0"):
        HEADS[name](3, 0)


@given(st.integers(0, 10_000), st.booleans())
def test_neutral_geometric_and_gsd_equal_linear(seed: int, bias: bool) -> None:
    torch.manual_seed(seed)
    linear = Linear(5, 3, bias=bias)
    features = torch.randn(7, 5)
    for kind in (Geometric, GSD):
        neutral = kind(5, 3, alpha=False, beta=False, bias=bias)
        neutral.load_state_dict(linear.state_dict())
        for found, expected in zip(neutral.outputs(features), linear.outputs(features), strict=True):
            assert torch.equal(found, expected)


@given(st.floats(-4, 4), st.floats(-4, 4))
def test_constant_alpha_and_beta_equal_gsd(a: float, b: float) -> None:
    geometric, gsd = Geometric(5, 3).double(), GSD(5, 3).double()
    scalars = {"alpha": torch.tensor(a), "beta": torch.tensor(b)}
    maps = {f"{name}.bias": value.reshape(1) for name, value in scalars.items()}
    maps |= {f"{name}.weight": torch.zeros(1, 5) for name in scalars}
    gsd.load_state_dict({"weight": geometric.weight, **scalars})
    geometric.load_state_dict({"weight": geometric.weight, **maps})
    features = features_of(8, 5)
    torch.testing.assert_close(geometric(features), gsd(features))


@pytest.mark.parametrize("name", ["alpha", "beta", "alpha-beta"])
def test_geometric_is_equation_8(name: str) -> None:
    head, features = head_of(name), features_of()
    assert isinstance(head, Geometric)
    f, length = features, features.norm(dim=1)
    alpha = torch.sigmoid(f @ head.alpha.weight[0] + head.alpha.bias) if head.alpha is not None else torch.ones(20)
    beta = (
        torch.log1p(torch.exp(f @ head.beta.weight[0] + head.beta.bias)) if head.beta is not None else torch.zeros(20)
    )
    similarity = f @ head.weight.T / length[:, None]
    torch.testing.assert_close(head(f), ((length + beta) / alpha)[:, None] * similarity)
    assert set(head.scales(f)) == set(name.split("-"))


def test_geometric_adds_two_linear_maps() -> None:
    def count(head: nn.Module) -> int:
        return sum(parameter.numel() for parameter in head.parameters())

    assert count(Geometric(640, 10)) - count(Linear(640, 10)) == 2 * (640 + 1)


def test_a_norm_below_a_millionth_counts_as_a_millionth() -> None:
    head = Linear(2, 2).double()
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
        similarities = head.outputs(torch.tensor([[1.5e-6, 0], [5e-7, 0]], dtype=torch.float64)).similarities
    assert similarities[:, 0].tolist() == pytest.approx([1, 0.5])


def test_equal_seeds_give_equal_class_weights() -> None:
    drawn = [head_of(name, seed=3).get_parameter("weight") for name in ("vanilla", "alpha-beta", "gsd")]
    assert all(torch.equal(drawn[0], weight) for weight in drawn)


def test_similarities_never_see_the_bias() -> None:
    head = Linear(4, 3, bias=True).double()
    assert head.bias is not None
    outputs = head.outputs(features_of(5, 4))
    torch.testing.assert_close(outputs.norms[:, None] * outputs.similarities + head.bias, outputs.logits)


def test_cosine_by_hand() -> None:
    head = Cosine(2, 2).eval()
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[2.0, 0.0], [5.0, 5.0]]))
        outputs = head.outputs(torch.tensor([[3.0, 4.0]]))
    torch.testing.assert_close(outputs.similarities, torch.tensor([[0.6, 1.4 / math.sqrt(2)]]))
    torch.testing.assert_close(outputs.raw, 5 * outputs.similarities)


def test_generalized_odin_starts_as_its_public_code_does() -> None:
    """N(0, 2/D) by He et al., and a bias of 0; nn.Linear's start has a sixth of this variance."""
    torch.manual_seed(0)
    for head in (Inner(400, 100), Cosine(400, 100), Euclidean(400, 100)):
        weight = head.weight.detach()
        assert float(weight.var()) == pytest.approx(2 / 400, rel=0.05)
        assert float(weight.abs().max()) > 3 * math.sqrt(2 / 400)  # no uniform draw has such tails
    assert not Inner(400, 100).get_parameter("bias").any()


def test_hyper_free_by_hand() -> None:
    head = HyperFree(2, 2).double().eval()
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[2.0, 0.0], [5.0, 5.0]]))
        head.get_parameter("exponent.0.weight").copy_(torch.tensor([[0.5, -1.0]]))
        head.get_parameter("exponent.0.bias").fill_(0.25)
        outputs = head.outputs(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    scale = math.exp((1.5 - 4 + 0.25) / math.sqrt(1 + 1e-5))  # fresh running statistics are 0 and 1
    expected = [0.6, 1.4 / math.sqrt(2)]
    assert outputs.similarities[0].tolist() == pytest.approx(expected)
    assert outputs.logits[0].tolist() == pytest.approx([scale * cosine for cosine in expected])


def test_euclidean_by_hand() -> None:
    head = Euclidean(2, 2).eval()
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 1.0], [3.0, 0.0]]))
        outputs = head.outputs(torch.tensor([[3.0, 4.0]]))
        divisor = head.divisor(torch.tensor([[3.0, 4.0]]))
    torch.testing.assert_close(outputs.raw, torch.tensor([[-6.5, -8.0]]))
    torch.testing.assert_close(outputs.logits, outputs.raw / divisor)


def test_generalized_odin_scale_is_batch_normalised() -> None:
    head = HEADS["inner"](3, 2).train()
    scale = head.get_submodule("divisor")(torch.randn(64, 3))
    logit = torch.logit(scale)
    assert logit.mean().item() == pytest.approx(0, abs=1e-4)
    assert logit.std(correction=0).item() == pytest.approx(1, abs=1e-2)


@given(many_outputs())
def test_every_output_is_finite_and_the_scale_keeps_the_order(outputs: Outputs) -> None:
    outputs.check()
    assert torch.equal(outputs.logits.gather(1, outputs.raw.argmax(1, keepdim=True)).squeeze(1), outputs.logits.amax(1))


def test_norm_agrees_with_torch_where_torch_can() -> None:
    torch.testing.assert_close(norm(features_of()), torch.linalg.vector_norm(features_of(), dim=1))
    assert norm(torch.full((1, 4), 1e-30)).item() == pytest.approx(2e-30)


def test_the_table_names_class_formula_and_settings() -> None:
    titles, *rows = describe_heads()
    assert [row[0] for row in rows] == list(HEADS)
    assert all(len(row) == len(titles) and row[2] for row in rows)
    assert rows[1] == ("alpha", "Geometric(beta=False)", "|f|/α(f) · s_k", "Tian et al. 2021, its α-only model")
    alpha = HEADS["alpha"](3, 2)
    assert isinstance(alpha, Geometric)
    assert alpha.beta is None


def test_logit_norm_is_the_cross_entropy_of_directions() -> None:
    logits, labels = features_of(8, 5), torch.arange(8) % 5
    directions = nn.functional.normalize(logits, dim=1) / 0.2
    head = LogitNorm(4, 5, temperature=0.2)
    torch.testing.assert_close(head.loss(logits, labels), nn.functional.cross_entropy(directions, labels))
    assert head.loss(torch.zeros(3, 5), labels[:3]).item() == pytest.approx(math.log(5))
    # Wei et al., Proposition 4.1: with K classes the loss has a floor, ln(1 + (K − 1) exp(−1/τ √(K/(K−1))))
    best = torch.full((1, 5), -1.0, dtype=torch.float64)
    best[0, 2] = 4
    floor = math.log1p(4 * math.exp(-(1 / 0.2) * math.sqrt(5 / 4)))
    assert head.loss(best, torch.tensor([2])).item() == pytest.approx(floor)
    assert head.loss(logits, labels) > floor


def test_t2f_norm_trains_on_unit_features_and_predicts_with_lengths() -> None:
    head, features = T2FNorm(6, 4, temperature=0.5).double(), features_of()
    unit = nn.functional.normalize(features, dim=1)
    torch.testing.assert_close(head.train()(features), unit @ head.weight.T / 0.5)
    torch.testing.assert_close(head.eval()(features), features @ head.weight.T / 0.5)
    assert torch.equal(head.train()(features).argmax(1), head.eval()(features).argmax(1))


@pytest.mark.parametrize("kind", [LogitNorm, T2FNorm])
def test_a_temperature_of_zero_is_refused(kind: type[LogitNorm] | type[T2FNorm]) -> None:
    with pytest.raises(ValueError, match="Expected `temperature` to be positive and finite but got 0"):
        kind(3, 2, temperature=0)
