"""The statements of the paper, each with the scope that its own tables support."""

from shiftprism.claims import _evidence as evidence
from shiftprism.claims._claim import Claim

_ALL = ("concept", "covariate", "both")
_G, _H, _U = ("alpha-beta", "g"), ("alpha-beta", "h"), ("alpha-beta", "u")

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "grows-with-corruption",
        "The severer a corruption, the easier it is to detect: AUROC rises with severity.",
        "Sec. 5.1.2, observation 1; Fig. 3; Tables 5–7",
        evidence.correlation_with_severity("covariate"),
        "rank correlation",
        "mean",
    ),
    Claim(
        "grows-with-concept",
        "The farther new classes are from the known ones, the easier they are to detect: AUROC rises along the splits.",
        "Sec. 5.1.3, observation 1; Fig. 4; Table 8",
        evidence.correlation_with_severity("concept"),
        "rank correlation",
        "mean",
    ),
    Claim(
        "g-sees-covariate",
        "In the α-β model g follows covariate shift more than h does. (Not at every severity: in Table 7 h is above g "
        "for shot noise of severity 1 to 3.)",
        "Sec. 5.1.2, observation 3; Fig. 3a; Tables 1, 5–7",
        evidence.contrast_by_ladder("covariate", _G, _H),
        rule="mean",
    ),
    Claim(
        "h-sees-concept",
        "In the α-β model h follows concept shift more than g does: unseen classes.",
        "Sec. 5.1.3; Table 1",
        evidence.contrast_by_set(("concept",), _H, _G, everywhere=True),
        rule="mean",
    ),
    Claim(
        "h-sees-splits",
        "In the α-β model h follows concept shift more than g does: the splits.",
        "Sec. 5.1.3, observation 4; Fig. 4a; Table 8",
        evidence.contrast_on_splits((_H,), _G),
    ),
    Claim(
        "vanilla-prefers-concept-corrupted",
        "A vanilla model is more sensitive to concept: its h is above its g even on corrupted images.",
        "Sec. 5.1.2, observation 2; Fig. 3a; Tables 5–7",
        evidence.contrast_by_ladder("covariate", ("vanilla", "h"), ("vanilla", "g")),
        rule="mean",
    ),
    Claim(
        "vanilla-prefers-concept-splits",
        "A vanilla model is more sensitive to concept: its h is above its g on the splits.",
        "Sec. 5.1.3, observation 3; Fig. 4a; Table 8",
        evidence.contrast_on_splits((("vanilla", "h"),), ("vanilla", "g")),
    ),
    Claim(
        "beta-raises-g",
        "β makes the norm more sensitive to covariate shift: g of α-β is above g of α.",
        "Sec. 4.3; Sec. 5.1.1; Tables 5–7",
        evidence.contrast_by_ladder("covariate", _G, ("alpha", "g")),
        rule="mean",
    ),
    Claim(
        "beta-alone-raises-g",
        "β makes the norm more sensitive to covariate shift: g of β alone is above g of vanilla.",
        "Sec. 4.3; Fig. 3a (no table)",
        evidence.contrast_by_ladder("covariate", ("beta", "g"), ("vanilla", "g")),
        rule="mean",
    ),
    Claim(
        "alpha-raises-h",
        "α makes the angles more sensitive to concept shift: h of α is above h of vanilla on the splits.",
        "Sec. 4.3; Sec. 5.1.1; Table 8",
        evidence.contrast_on_splits((("alpha", "h"),), ("vanilla", "h")),
    ),
    Claim(
        "u-best-corrupted",
        "U of α-β detects corrupted images better than every other method of Table 1.",
        "Sec. 5.1.1; Table 1, CIFAR10C",
        evidence.contrast_with_rivals("covariate"),
    ),
    Claim(
        "u-best-far",
        "No other method of Table 1 detects far images (SVHN) better than U of α-β. (Cosine ties with it there.)",
        "Sec. 5.1.1; Table 1, SVHN",
        evidence.contrast_with_rivals("both"),
        margin=0.005,
    ),
    Claim(
        "u-best-concept",
        "No other method of Table 1 detects unseen classes (CIFAR-100) better than U of α-β. (h of α and cosine tie.)",
        "Sec. 5.1.1; Table 1, CIFAR100",
        evidence.contrast_with_rivals("concept", but=("cifar100",)),
        margin=0.005,
    ),
    Claim(
        "beats-vanilla-msp",
        "U of α-β detects shift better than the softmax confidence of a vanilla model.",
        "Table 1",
        evidence.contrast_by_set(_ALL, _U, ("vanilla", "msp")),
        rule="mean",
    ),
    Claim(
        "beats-vanilla-energy",
        "U of α-β detects shift better than the energy of a vanilla model.",
        "Table 1",
        evidence.contrast_by_set(_ALL, _U, ("vanilla", "energy")),
        rule="mean",
    ),
    Claim(
        "beta-helps-far",
        "Far images shift in style too, so α-β with U detects them better than α with h.",
        "Sec. 5.1.1; Table 1, SVHN",
        evidence.contrast_by_set(("both",), _U, ("alpha", "h")),
        rule="mean",
    ),
    Claim(
        "beats-beta-motion-blur",
        "α-β beats β alone on motion blur, both with U.",
        "Sec. 5.1.2; Fig. 3b (no table)",
        evidence.contrast_by_ladder("covariate", _U, ("beta", "u"), only=("motion_blur",)),
    ),
    Claim(
        "beats-alpha-vanilla-corrupted",
        "On corrupted images U of α-β is above U of α and U of vanilla.",
        "Sec. 5.1.2; Fig. 3b; Tables 5–7",
        evidence.mean_contrast_on_corruptions(_U, (("alpha", "u"), ("vanilla", "u"))),
    ),
    Claim(
        "h-best-of-alpha",
        "Of g, h and U the best score of the α model is h.",
        "Sec. 5.1.1; Table 1",
        evidence.mean_contrast_over_sets(("alpha", "h"), (("alpha", "g"), ("alpha", "u"))),
    ),
    Claim(
        "u-best-of-alpha-beta",
        "Of g, h and U the best score of the α-β model is U.",
        "Sec. 5.1.1; Table 1",
        evidence.mean_contrast_over_sets(_U, (_G, _H)),
    ),
    Claim(
        "variants-beat-vanilla-splits",
        "On the splits all three variants, α-β, α and β, beat vanilla, all with U.",
        "Sec. 5.1.3; Fig. 4b; Table 8",
        evidence.contrast_on_splits((_U, ("alpha", "u"), ("beta", "u")), ("vanilla", "u")),
    ),
    Claim(
        "noise-lowers-norm",
        "Corrupted images have shorter features than clean ones.",
        "Sec. 4.2; Appendix, Fig. 5",
        evidence.norm_reduction,
        "share",
        "mean",
    ),
    Claim(
        "pixel-histograms",
        "The near set has a pixel histogram like that of the training data, the far set (SVHN) has not. (Our measure: "
        "it is more than twice as far.)",
        "Appendix, Fig. 5c",
        evidence.histogram_distance,
        "distance",
        "mean",
    ),
    Claim(
        "calibration-keeps-predictions",
        "Calibrating α and β changes no prediction.",
        "Sec. 4.4",
        evidence.share_changed("predictions_changed"),
        "share",
        "zero",
    ),
    Claim(
        "calibration-keeps-scores",
        "Calibrating α and β changes no score: g, h and U are the same to the bit.",
        "Sec. 4.4",
        evidence.share_changed("scores_changed"),
        "share",
        "zero",
    ),
    Claim(
        "clean-ece",
        "On clean data α-β, calibrated, has no larger ECE than vanilla with temperature scaling.",
        "Sec. 5.2; Tables 2, 3",
        evidence.reduction("ece", "clean", ("alpha-beta", "alpha-beta"), ("vanilla", "temperature")),
        "ECE",
        margin=0.002,
    ),
    *(
        Claim(
            f"corrupted-ece-{rival}",
            f"On corrupted data α-β, calibrated, has no larger ECE than vanilla with {word}.",
            "Sec. 5.2; Tables 2, 3",
            evidence.reduction("ece", "corrupted", ("alpha-beta", "alpha-beta"), ("vanilla", rival)),
            "ECE",
            margin=0.002,
        )
        for rival, word in (
            ("temperature", "temperature scaling"),
            ("matrix", "matrix scaling"),
            ("dirichlet", "Dirichlet scaling"),
        )
    ),
    Claim(
        "training-time",
        "α-β takes no longer to train than vanilla.",
        "Sec. 2; Sec. 4.3",
        evidence.time_saved,
        "share",
        margin=0.05,
    ),
)
"""Each of the paper's claims, in its order."""
