"""The table of heads: every name with its class, its formula and where it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shiftprism.heads._duq import DUQ
from shiftprism.heads._geometric import GSD, Geometric, Linear
from shiftprism.heads._head import Head
from shiftprism.heads._normalised import LogitNorm, T2FNorm
from shiftprism.heads._odin import Cosine, Euclidean, HyperFree, Inner
from shiftprism.heads._sngp import SNGP


@dataclass(frozen=True)
class Entry:
    """A head by name. Called with the numbers of features and classes, it builds the head."""

    name: str
    implementation: type[Head]
    formula: str
    """Of the logit of class k."""
    paper: str
    settings: Mapping[str, bool] = field(default_factory=dict)
    """The arguments this name sets, beside those of the sizes."""

    def __call__(self, in_features: int, out_features: int) -> Head:
        return self.implementation(in_features, out_features, **self.settings)


HEADS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("vanilla", Linear, "w_k·f", ""),
        Entry("alpha", Geometric, "|f|/α(f) · s_k", "Tian et al. 2021, its α-only model", {"beta": False}),
        Entry("beta", Geometric, "(|f| + β(f)) · s_k", "Tian et al. 2021, its β-only model", {"alpha": False}),
        Entry("alpha-beta", Geometric, "(|f| + β(f))/α(f) · s_k", "Tian et al. 2021, Geometric ODIN"),
        Entry("gsd", GSD, "(|f| + β) · s_k, one β for all", "Tian et al. 2021, GSD", {"alpha": False}),
        Entry("inner", Inner, "(w_k·f + b_k)/g(f)", "Hsu et al. 2020, Generalized ODIN h^I"),
        Entry("cosine", Cosine, "cos φ_k / g(f)", "Hsu et al. 2020, Generalized ODIN h^C"),
        Entry("euclidean", Euclidean, "−mean_d (f_d − w_kd)² / g(f)", "Hsu et al. 2020, Generalized ODIN h^E"),
        Entry("hyper-free", HyperFree, "exp(BatchNorm(a·f)) · cos φ_k", "Techapanurak et al. 2020, scaled cosine"),
        Entry("logit-norm", LogitNorm, "w_k·f, trained with logits / (τ|logits|)", "Wei et al. 2022, LogitNorm"),
        Entry("t2f-norm", T2FNorm, "w_k·f/τ, trained with w_k·f/(τ|f|)", "Regmi et al. 2024, T2FNorm"),
        Entry("sngp", SNGP, "v_k·φ(f) / √(1 + factor·variance)", "Liu et al. 2020, SNGP"),
        Entry("duq", DUQ, "ln K_k = −mean_d (W_k f − μ_k)_d² / (2σ²)", "van Amersfoort et al. 2020, DUQ"),
    )
}


def describe_heads() -> list[tuple[str, ...]]:
    """A row of cells for each head, the titles first: what `shiftprism list heads` and docs/heads.md show."""
    rows: list[tuple[str, ...]] = [("name", "class", "logit of class k", "paper")]
    for entry in HEADS.values():
        settings = ", ".join(f"{name}={value!r}" for name, value in entry.settings.items())
        kind = entry.implementation.__name__ + (f"({settings})" if settings else "")
        rows.append((entry.name, kind, entry.formula, entry.paper))
    return rows
