"""The demo's page: one HTML file with its pictures inside, for a desk or a phone, light or dark."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from string import Template

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Prismask demo: one snapshot, $bands bands</title>
<style>
:root { color-scheme: light dark; --page: #f6f7f9; --card: #ffffff; --ink: #1f2430;
  --faint: #5a6172; --line: #d9dde5; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --page: #14171d; --card: #1d222b; --ink: #e8eaf0;
  --faint: #a5acbb; --line: #343b48; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.6rem; }
p { max-width: 44rem; }
.row { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 0.75rem; }
figure img { display: block; width: 100%; height: auto; border-radius: 4px; }
figure img.pixels { image-rendering: pixelated; }
figure img.plot { background: #fff; padding: 0.25rem; }
figcaption { color: var(--faint); font-size: 0.9rem; margin-top: 0.5rem; }
figcaption b { color: var(--ink); }
.compare { position: relative; }
.compare img + img { position: absolute; inset: 0; clip-path: inset(0 0 0 50%); }
input[type=range] { width: 100%; accent-color: var(--accent); margin: 0.6rem 0 0; }
.ends { display: flex; justify-content: space-between; color: var(--faint); font-size: 0.85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.92rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
th, td { text-align: left; padding: 0.4rem 0.7rem; border-top: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; }
tr:first-child > * { border-top: 0; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre { font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace;
  font-size: 0.88em; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 0.8rem; overflow-x: auto; }
</style>
</head>
<body>
<main>
<h1>One snapshot, $bands bands</h1>
<p>A CASSI camera takes a single black-and-white picture. A mask of small open and closed cells
codes the scene, a prism shifts every wavelength by a different distance, and the sensor adds it
all up. From that one picture, and from knowing the mask, the whole spectrum of every pixel is
computed back. Here the scene is synthetic, so the truth is known and every error can be shown.</p>

<h2>What the camera recorded, and what was computed from it</h2>
<div class="row">
<figure><img class="pixels" src="$snapshot" alt="Grey, smeared snapshot with mask texture">
<figcaption><b>Snapshot.</b> All the data there is: $snapshot_size numbers for $cube_size unknowns.
The smear to the side is the prism, the fine grain is the mask, and noise is on top
($sensor).</figcaption></figure>
<figure><div class="compare"><img class="pixels" src="$reconstruction"
alt="Reconstruction in colour"><img class="pixels" id="truth" src="$truth"
alt="True scene in colour"></div>
<input type="range" min="0" max="100" value="50" aria-label="Share of the reconstruction shown"
oninput="document.getElementById('truth').style.clipPath='inset(0 0 0 '+this.value+'%)'">
<div class="ends"><span>reconstruction</span><span>truth</span></div>
<figcaption><b>Reconstruction (left) against truth (right).</b> Move the slider. Both are rendered
from their spectra with the same exposure.</figcaption></figure>
</div>

<h2>Where it is wrong</h2>
<div class="row">
<figure><img class="plot" src="$error" alt="Map of the error of each pixel with a colour bar">
<figcaption><b>Error map.</b> Root mean square error over the $bands bands of each pixel, in
percent of full scale. Dark is good.</figcaption></figure>
<div><p>$what_one_sees</p></div>
</div>

<h2>Spectra</h2>
<figure><img class="plot" src="$spectra" alt="Spectra of six colour patches against the truth">
<figcaption><b>Six ColorChecker patches.</b> Their reflectances are measured, so the dark line is
what a spectrometer would say. The blue points are computed from the snapshot; the band around them
$band_words.</figcaption></figure>

<h2>Bands</h2>
<figure><img class="plot" src="$bands_picture" alt="Five bands of truth and reconstruction">
<figcaption><b>Five of the $bands bands</b>, each in its own colour: truth above, reconstruction
below.</figcaption></figure>

<h2>Scores</h2>
<p>A score means something only together with its convention, so each is named.</p>
<div class="wide"><table>$scores</table></div>

<h2>Do it with your own snapshot</h2>
<pre>prismask reconstruct snapshot.mat --mask mask.mat --bands 28 --step 2 -o cube.nc
prismask render cube.nc -o cube.png
prismask info cube.nc</pre>

<h2>How this page was made</h2>
<div class="wide"><table>$provenance</table></div>
<p>Beside this page: $files. The <code>.nc</code> files are NetCDF-4 and open in xarray, MATLAB and
Panoply.</p>
</main>
</body>
</html>
""")


@dataclass(frozen=True)
class PageContent:
    """Everything the page shows."""

    pictures: Mapping[str, bytes]
    """PNG bytes: snapshot, truth, reconstruction, error, spectra, bands_picture."""
    scores: Sequence[tuple[str, str, str]]
    """Name, value and convention of each score."""
    provenance: Sequence[tuple[str, str]]
    """What was used, in pairs."""
    files: Sequence[str]
    """Names of the files beside the page."""
    facts: Mapping[str, str]
    """bands, snapshot_size, cube_size, sensor, band_words."""
    what_one_sees: str
    """A paragraph that explains the error map."""


def build_page(content: PageContent) -> str:
    """The page as HTML that needs no other file and no network."""
    inlined = {name: data_address(png) for name, png in content.pictures.items()}
    scores = "".join(
        f'<tr><th>{escape(name)}</th><td class="number">{escape(value)}</td>'
        f"<td>{escape(convention)}</td></tr>"
        for name, value, convention in content.scores
    )
    provenance = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in content.provenance
    )
    return PAGE.substitute(
        inlined,
        **{name: escape(text) for name, text in content.facts.items()},
        what_one_sees=escape(content.what_one_sees),
        scores=scores,
        provenance=provenance,
        files=", ".join(f"<code>{escape(name)}</code>" for name in content.files),
    )


def data_address(png: bytes) -> str:
    """A PNG as the text that an `img` takes in place of an address."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
