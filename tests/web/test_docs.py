"""What docs/web.md shows runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "web.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_channel_of_the_page() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS[0]], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["32", "32", "32", "4"]
