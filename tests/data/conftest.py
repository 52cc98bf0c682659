from __future__ import annotations

collect_ignore = ["write_golden.py"]  # needs TensorFlow
