"""The paper's numbers, to stand beside ours (Wang et al., Modeling Mask Uncertainty in
Hyperspectral Image Reconstruction).

Conventions: PSNR is "PSNR paper" (per band, peak = maximum of the true cube) and SSIM the
zero-padded one of the paper's code; ten KAIST scenes. In one-to-many and many-to-many a number is
mean ± std over 100 masks. Read three things with care:

- the ± of SRN + GST's *averages* (0.01 dB) is that of running means, which shrinks with every
  trial, and GSM's looks alike; the ± of single scenes is the spread from mask to mask;
- the test masks come from both instruments at once, which this project keeps apart;
- nine of the printed averages are not the mean of the rows above them, by up to 0.09 dB. Both are
  kept as printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

OURS = "SRN + GST"
"""What the paper calls "Ours"."""
SCENES = tuple(f"scene{number:02d}" for number in range(1, 11))
METRICS = PSNR, SSIM = "psnr_paper", "ssim"
"""The metrics of `evaluation.metrics.METRICS` that the paper's numbers are in."""


@dataclass(frozen=True)
class Number:
    """One published number; `std` where the paper gives a spread."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class PublishedCost:
    """Size and time of a method; multiply-adds at 256×256×28, one RTX 3090."""

    parameters_million: float
    multiply_adds_billion: float
    training_days: float | None
    seconds_per_sample: float


# Scenes 1 to 10, then the average: PSNR[±std]/SSIM[±std].
_ONE_TO_ONE = {
    "λ-net": (
        "30.82/.8492 26.30/.8054 29.42/.8696 37.37/.9338 27.84/.8166 30.69/.8527 24.20/.8062 "
        "28.86/.8307 29.32/.8258 27.66/.8163 29.25/.8406"
    ),
    "HSSP": (
        "31.07/.8577 26.30/.8422 29.00/.8231 38.24/.9018 27.98/.8084 29.16/.8766 24.11/.8236 "
        "27.94/.8811 29.14/.8676 26.44/.8416 28.93/.8524"
    ),
    "TSA-Net": (
        "31.26/.8920 26.88/.8583 30.03/.9145 39.90/.9528 28.89/.8835 31.30/.9076 25.16/.8782 "
        "29.69/.8884 30.03/.8901 28.32/.8740 30.24/.8939"
    ),
    "GSM": (
        "32.38/.9152 27.56/.8977 29.02/.9251 36.37/.9636 28.56/.8820 32.49/.9372 25.19/.8860 "
        "31.06/.9234 29.40/.9110 30.74/.9247 30.28/.9166"
    ),
    "PnP-DIP": (
        "31.99/.8633 26.56/.7603 30.06/.8596 38.99/.9303 29.09/.8490 29.68/.8481 27.68/.8639 "
        "29.01/.8412 33.35/.8802 27.98/.8327 30.44/.8529"
    ),
    "SRN": (
        "34.13/.9260 30.60/.8985 32.87/.9221 41.27/.9687 31.66/.9376 35.14/.9561 27.93/.8638 "
        "33.14/.9488 33.49/.9326 31.43/.9338 33.17/.9288"
    ),
    "SRN + GST": (
        "34.19/.9292 31.04/.9014 32.93/.9224 40.71/.9672 31.83/.9415 35.14/.9543 28.08/.8628 "
        "33.18/.9486 33.50/.9332 31.59/.9311 33.22/.9292"
    ),
}
_ONE_TO_MANY = {
    "TSA-Net": (
        "28.49±.58/.8520±.0081 24.96±.51/.8332±.0064 26.14±.76/.8829±.0108 35.67±.47/.9427±.0028 "
        "25.40±.59/.8280±.0108 29.32±.60/.8796±.0047 22.80±.65/.8461±.0101 28.09±.43/.8738±.0043 "
        "27.75±.55/.8865±.0054 26.05±.48/.8114±.0072 27.47±.46/.8636±.0060"
    ),
    "GSM": (
        "28.20±.95/.8553±.0185 24.46±.96/.8330±.0189 23.71±1.18/.8077±.0221 31.55±.75/.9385±.0074 "
        "24.44±.96/.7744±.0291 28.28±.92/.9026±.0094 21.45±.79/.8147±.0162 28.08±.76/.9024±.0089 "
        "26.80±.78/.8773±.0144 26.40±.77/.8771±.0124 26.34±.06/.8582±.0012"
    ),
    "PnP-DIP": (
        "29.24±.98/.7964±.0532 25.73±.54/.7558±.0117 29.61±.45/.8541±.0125 38.21±.66/.9280±.0078 "
        "28.59±.79/.8481±.0183 29.70±.51/.8484±.0186 27.13±.31/.8666±.0079 28.38±.35/.8325±.0203 "
        "33.63±.26/.8779±.0073 27.24±.43/.7957±.0226 29.66±.38/.8375±.0093"
    ),
    "SRN": (
        "31.24±.77/.8878±.0117 27.87±.82/.8535±.0131 28.31±.88/.8415±.0213 37.93±.72/.9476±.0057 "
        "27.99±.79/.8680±.0194 32.13±.87/.9344±.0061 24.84±.73/.7973±.0150 31.32±.59/.9324±.0043 "
        "31.06±.66/.8997±.0091 29.01±.61/.9028±.0092 30.17±.63/.8865±.0108"
    ),
    "SRN + GST": (
        "31.72±.76/.8939±.0119 28.22±.85/.8552±.0144 28.77±1.13/.8405±.0257 37.60±.81/.9447±.0071 "
        "28.58±.79/.8746±.0208 32.72±.79/.9339±.0061 25.15±.76/.7935±.0173 31.84±.56/.9323±.0042 "
        "31.11±.72/.8988±.0104 29.50±.68/.9030±.0098 30.60±.08/.8881±.0013"
    ),
}
_MANY_TO_MANY = {
    "TSA-Net": (
        "23.45±.29/.6569±.0051 18.52±.12/.5511±.0049 18.42±.30/.5929±.0127 30.44±.15/.8940±.0043 "
        "20.89±.23/.5648±.0077 23.04±.19/.6099±.0060 15.97±.14/.6260±.0042 22.64±.18/.6366±.0066 "
        "18.91±.11/.5946±.0083 21.90±.18/.5249±.0110 21.42±.07/.6162±.0030"
    ),
    "GSM": (
        "31.38±.20/.8826±.0032 25.94±.22/.8570±.0041 26.11±.20/.8874±.0034 34.72±.35/.9473±.0023 "
        "26.15±.24/.8256±.0061 30.97±.29/.9224±.0025 22.58±.24/.8459±.0054 29.76±.22/.9059±.0021 "
        "27.23±.11/.8899±.0021 28.05±.21/.8877±.0055 28.20±.01/.8852±.0001"
    ),
    "PnP-DIP": (
        "29.24±.98/.7964±.0532 25.73±.54/.7558±.0117 29.61±.45/.8541±.0125 38.21±.66/.9280±.0078 "
        "28.59±.79/.8481±.0183 29.70±.51/.8484±.0186 27.13±.31/.8666±.0079 28.38±.35/.8325±.0203 "
        "33.63±.26/.8779±.0073 27.24±.43/.7957±.0226 29.66±.38/.8375±.0093"
    ),
    "SRN": (
        "33.26±.16/.9104±.0018 29.86±.23/.8809±.0029 31.69±.20/.9093±.0020 39.90±.22/.9469±.0012 "
        "30.86±.16/.9232±.0019 34.20±.23/.9405±.0014 27.27±.16/.8515±.0026 32.35±.22/.9320±.0015 "
        "32.83±.13/.9205±.0016 30.25±.14/.9053±.0019 32.24±.10/.9121±.0010"
    ),
    "SRN + GST": (
        "33.99±.14/.9258±.0013 30.49±.17/.9002±.0022 32.63±.16/.9212±.0013 41.04±.23/.9667±.0014 "
        "31.49±.17/.9379±.0017 34.89±.29/.9545±.0009 27.63±.16/.8658±.0024 33.02±.26/.9471±.0013 "
        "33.45±.13/.9317±.0013 31.49±.15/.9345±.0015 33.02±.01/.9285±.0001"
    ),
}


PROTOCOLS = ("one-to-one", "one-to-many", "many-to-many")

Scores = Mapping[str, Mapping[str, Number]]
"""Metric → scene, or `average` as it is printed → number."""


def _pair(text: str) -> dict[str, Number]:
    """`33.17±.10/.9288±.0010`: PSNR and SSIM by metric."""
    found = {}
    for metric, number in zip((PSNR, SSIM), text.split("/"), strict=True):
        mean, _, std = number.partition("±")
        found[metric] = Number(float(mean), float(std) if std else None)
    return found


def _scores(text: str) -> Scores:
    pairs = dict(zip((*SCENES, "average"), map(_pair, text.split()), strict=True))
    return {metric: {scene: pair[metric] for scene, pair in pairs.items()} for metric in METRICS}


SCORES: Mapping[str, dict[str, Scores]] = {
    protocol: {name: _scores(text) for name, text in methods.items()}
    for protocol, methods in zip(PROTOCOLS, (_ONE_TO_ONE, _ONE_TO_MANY, _MANY_TO_MANY), strict=True)
}
"""Scenario → method → scores."""

_AVERAGES = {
    "w/o GST": ("33.17/.9288", "30.17±.63/.8865±.0108", "32.24±.10/.9121±.0010"),
    "w/o Bi-Opt": ("32.73/.9193", "30.30±.06/.8843±.0011", "32.43±.02/.9206±.0001"),
    "w/o GCN": ("33.23/.9286", "30.13±.07/.8849±.0011", "32.82±.01/.9262±.0001"),
    "full": ("33.22/.9292", "30.60±.08/.8881±.0013", "33.02±.01/.9285±.0001"),
    "SRN": ("", "", "32.24±.10/.9121±.0010"),
    "Spectral ViT": ("", "", "31.62±.09/.9282±.0010"),
    "SwinIR": ("", "", "33.49±.10/.9501±.0010"),
    "SRN + GST": ("", "", "33.02±.01/.9285±.0001"),
    "Spectral ViT + GST": ("", "", "32.15±.01/.9330±.0001"),
    "SwinIR + GST": ("", "", "34.15±.01/.9548±.0001"),
}
ROWS: Mapping[str, Mapping[str, Mapping[str, Number]]] = {
    row: {one: _pair(text) for one, text in zip(PROTOCOLS, texts, strict=True) if text}
    for row, texts in _AVERAGES.items()
}
"""Averages of the ablated models ("full" is SRN + GST) and of backbones: row → scenario → metric →
number."""

COSTS: MappingProxyType[str, PublishedCost] = MappingProxyType(
    {
        "TSA-Net": PublishedCost(44.25, 110.06, 1.23, 0.068),
        "GSM": PublishedCost(3.76, 646.35, 6.05, 0.084),
        "PnP-DIP": PublishedCost(33.85, 64.26, None, 482.78),
        "w/o GST": PublishedCost(1.25, 81.84, 1.14, 0.061),
        "w/o Bi-Opt": PublishedCost(1.27, 82.87, 1.83, 0.061),
        "w/o GCN": PublishedCost(1.27, 82.78, 1.63, 0.062),
        "full": PublishedCost(1.27, 82.87, 2.56, 0.062),
    }
)
"""Many-to-many models; PnP-DIP trains nothing and needs its time for every snapshot."""

OTHER_BACKBONES = MappingProxyType({"spectral-vit": "Spectral ViT", "swinir": "SwinIR"})
"""What the paper calls those of our backbones that it has in `ROWS` besides SRN."""

SPECTRAL_CORRELATIONS: MappingProxyType[str, tuple[float, ...]] = MappingProxyType(
    {
        "GSM": (0.9903, 0.9674, 0.9751, 0.9435, 0.9891, 0.9904, 0.9951, 0.9700, 0.9870, 0.8926),
        "SRN": (0.9910, 0.9701, 0.9753, 0.9429, 0.9898, 0.9910, 0.9959, 0.9865, 0.9870, 0.9000),
        "SRN + GST": (
            0.9956, 0.9910, 0.9921, 0.9458, 0.9925, 0.9982, 0.9969, 0.9867, 0.9903, 0.9004,
        ),
    }
)  # fmt: skip
"""Spectral correlation averaged over five patches of each of `SCENES`. The paper's patches were
picked by eye and are not published; ours follow a rule, so the two columns differ in more than the
method."""
SPECTRAL_CORRELATION_AVERAGES = MappingProxyType({"GSM": 0.9701, "SRN": 0.9730, OURS: 0.9790})

FIXED_VARIANCE = "fixed variance reaches at most 32 dB, best at 0.005; self-tuned at least 32.5 dB"
"""Many-to-many, PSNR paper; the paper shows the curve as a figure without numbers."""


def row_of(name: str, posterior_kind: str | None, backbone: str) -> str | None:
    """The paper's row to compare a model of ours with, from its record.

    The paper ablated SRN alone; of two other backbones it prints one number with GST and one
    without. name: what the training configuration was called; posterior_kind: gst, conv, fixed or
    none; backbone: a name of `models.registry`.
    """
    kind = posterior_kind or ""
    joint = re.search(r"without-bilevel|w/o bi-?opt|joint", name, re.IGNORECASE) is not None
    if backbone == "srn":
        rows = {"none": "w/o GST", "conv": "w/o GCN", "gst": "full"}
        return "w/o Bi-Opt" if joint else rows.get(kind)
    title = OTHER_BACKBONES.get(backbone)
    if title is None or joint:
        return None
    return {"none": title, "gst": f"{title} + GST"}.get(kind)


def row_number(row: str | None, protocol: str, metric: str) -> Number | None:
    """The average of a row of `row_of`; None where the paper has none."""
    return ROWS.get(row or "", {}).get(protocol, {}).get(metric)
