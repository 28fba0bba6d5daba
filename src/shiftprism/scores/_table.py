"""The table of scores: every name with its formula, what it reads and where it comes from."""

from shiftprism.scores._boundaries import FDBD, max_cosine
from shiftprism.scores._entry import Entry
from shiftprism.scores._gaussian import Mahalanobis, RelativeMahalanobis
from shiftprism.scores._geometric import g, h, kl_uniform, max_similarity, u
from shiftprism.scores._logits import energy, entropy, gen, kernel, max_logit, msp
from shiftprism.scores._mixture import GaussianMixture
from shiftprism.scores._neighbours import KNN, NNGuide
from shiftprism.scores._ranks import Fisher, GTwoSided, Prism
from shiftprism.scores._spectrum import Spectrum
from shiftprism.scores._style import Style
from shiftprism.scores._subspace import Residual, ViM
from shiftprism.scores._templates import SHE, KLMatching

_F, _L, _H, _S = "features", "logits", "head", "style"
SCORES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("g", g, "|f|", (_F,), "Tian et al. 2021"),
        Entry("h", h, "max_k s_k − mean_k s_k", (_F,), "Tian et al. 2021"),
        Entry("u", u, "g·h", (_F,), "Tian et al. 2021"),
        Entry("msp", msp, "ln p/(1 − p), p = max_k p_k", (_L,), "Hendrycks & Gimpel 2017"),
        Entry("max_logit", max_logit, "max_k l_k", (_L,), "Hendrycks et al. 2022"),
        Entry("energy", energy, "T ln Σ_k exp(l_k/T)", (_L,), "Liu et al. 2020"),
        Entry("entropy", entropy, "−ln H, H = −Σ_k p_k ln p_k", (_L,), "Shannon 1948"),
        Entry("kl_uniform", kl_uniform, "KL(Uniform ‖ softmax(|f| s))", (_F,), "Tian et al. 2021"),
        Entry("max_similarity", max_similarity, "max_k s_k", (_F,), "Hsu et al. 2020"),
        Entry("max_cosine", max_cosine, "max_k cos(f, w_k)", (_F, _H), "Techapanurak et al. 2020"),
        Entry("kernel", kernel, "max_k ln K_k", (_L, _H), "van Amersfoort et al. 2020"),
        Entry("gen", gen, "−ln Σ_top p_k^γ (1 − p_k)^γ", (_L,), "Liu et al. 2023"),
        Entry("mahalanobis", Mahalanobis, "−min_k d(x, μ_k; Σ)²", (_F,), "Lee et al. 2018"),
        Entry(
            "mahalanobis_logits",
            Mahalanobis,
            "−min_k d(l, μ_k; Σ)²",
            (_L,),
            "Lee et al. 2018; Tian et al. 2021",
            settings={"space": "logits"},
        ),
        Entry("relative_mahalanobis", RelativeMahalanobis, "d_0² − min_k d_k²", (_F,), "Ren et al. 2021"),
        Entry("gmm", GaussianMixture, "ln Σ_k N(f; μ_k, Σ_k)", (_F,), "Mukhoti et al. 2023"),
        Entry("knn", KNN, "−|z − z_(k)|, z = f/|f|", (_F,), "Sun et al. 2022"),
        Entry("vim", ViM, "ln Σ_k exp l_k − α|f^⊥|", (_F, _L, _H), "Wang et al. 2022"),
        Entry("residual", Residual, "−|f^⊥|", (_F, _H), "Wang et al. 2022"),
        Entry("kl_matching", KLMatching, "−min_k KL(p ‖ d_k)", (_L,), "Hendrycks et al. 2022"),
        Entry("nnguide", NNGuide, "E(x) · mean_top E(x_i) cos(f, f_i)", (_F, _L), "Park et al. 2023"),
        Entry("fdbd", FDBD, "mean_k (l_ŷ − l_k)/|w_ŷ − w_k| / |f − μ|", (_F, _L, _H), "Liu & Qin 2024"),
        Entry("she", SHE, "f · m_ŷ", (_F, _L), "Zhang et al. 2023"),
        Entry("g_two_sided", GTwoSided, "min(1, 2 min(p_g, p′_g))", (_F,), "ours"),
        Entry("fisher", Fisher, "ln p_g + ln p_h", (_F,), "Fisher 1932; ours"),
        Entry("prism", Prism, "ln p_g + ln p_h + ln p_knn", (_F,), "ours"),
        Entry("style", Style, "w · (z, |z|) + b", (_S,), "ours"),
        Entry("spectrum", Spectrum, "ln p_gen + ½ ln p_knn + min(0, ln p_style − ln 0.15)", (_F, _L, _S), "ours"),
    )
}


def describe_scores() -> list[tuple[str, ...]]:
    """A row of cells for each score, the titles first: what `shiftprism list scores` and docs/scores.md show."""
    rows: list[tuple[str, ...]] = [("name", "formula", "reads", "fitted", "paper")]
    for entry in SCORES.values():
        rows.append((entry.name, entry.formula, ", ".join(entry.reads), _describe_fit(entry), entry.paper))
    return rows


def _describe_fit(entry: Entry) -> str:
    """The class that is fitted and what it needs, as in "KNN" or "ViM with head"; "no" where nothing is fitted."""
    if not isinstance(entry.implementation, type):
        return "no"
    settings = ", ".join(f"{name}={value!r}" for name, value in entry.settings.items())
    kind = entry.implementation.__name__ + (f"({settings})" if settings else "")
    return f"{kind} with {', '.join(entry.needs)}" if entry.needs else kind
