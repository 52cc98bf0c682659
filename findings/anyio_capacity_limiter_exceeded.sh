#!/usr/bin/env bash
# anyio up to 4.14: a CapacityLimiter of 2 lets three tasks in at once on asyncio: one that comes between a release and
# the moment at which the waiting task runs gets the same token. anyio 4.15 keeps to 2 (its issue 1170).
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
cat >"$folder/look.py" <<'PYTHON'
import asyncio
import sys
from importlib.metadata import version

import anyio


async def main() -> int:
    limiter, inside, most = anyio.CapacityLimiter(2), 0, 0

    async def use(times: int) -> None:
        nonlocal inside, most
        for _ in range(times):
            async with limiter:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(use, 5 * number + 5)
    return most


most = asyncio.run(main())
print("anyio", version("anyio"), "most inside at once:", most)
sys.exit(most != int(sys.argv[1]))
PYTHON
for pair in 4.0.0=3 4.14.1=3 4.15.0=2; do
    "$folder/venv/bin/pip" install -q "anyio==${pair%=*}"
    "$folder/venv/bin/python" "$folder/look.py" "${pair#*=}"
done
# seen: anyio 4.0.0 most inside at once: 3; 4.14.1: 3; 4.15.0: 2
