"""Runs the program named on the command line as if TensorFlow were not installed."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any, cast

__all__ = ()

if __name__ == "__main__":
    cast("dict[str, Any]", sys.modules)["tensorflow"] = None
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
