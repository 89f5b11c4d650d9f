"""Whether OpenAPI tells the truth: schemathesis asks everything that it describes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_web

SECONDS = 120

CONFIG = """
# Whether bytes are a snapshot is nothing that a schema could say.
[[operations]]
include-name = ["POST /api/jobs", "POST /api/results/{{key}}/again"]
checks.positive_data_acceptance.enabled = false

# Whether a band, a region or a pair of limits fits depends on the cube.
[[operations]]
include-path-regex = "/api/results/.*/(layers|beside|spect)"
checks.positive_data_acceptance.enabled = false

# Only asked of results: a job that is there would be called off.
[[operations]]
include-path-regex = "/api/results/"
parameters = {{ "path.key" = "{key}", "path.other" = "{key}" }}
"""


@pytest.mark.slow
def test_every_answer_is_as_described(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    program = Path(sys.executable).with_name("schemathesis")
    found = shutil.which(str(program)) or shutil.which("schemathesis")
    assert found is not None
    tiny_web.write_snapshot(tmp_path)
    with tiny_web.running(tmp_path, "serve", "--queue", "2") as (client, _):
        job = tiny_web.submit(client, tmp_path, method="gap-tv", iterations=1).json()["id"]
        key = tiny_web.wait_for(client, job)["result"]
        (tmp_path / "schemathesis.toml").write_text(CONFIG.format(key=key))
        done = subprocess.run(
            [
                found, "--config-file", str(tmp_path / "schemathesis.toml"),
                "run", f"{client.base_url}api/openapi.json",
                "--header", f"Authorization: {client.headers['authorization']}",
                "--max-examples", "12", "--seed", "1", "--no-color",
            ],
            capture_output=True, text=True, check=False, timeout=SECONDS, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "Traceback" not in (tmp_path / "server.log").read_text()
