#!/usr/bin/env bash
# Each event loop of uvloop 0.19 to 0.22 asks the kernel for two io_uring rings when it is made, though uvloop itself
# never reads a file through them; with uvloop 0.23 it is one. They are most of
# what making a loop costs: programs that make a loop for each job (a pipeline, a test, a thread) pay some milliseconds of
# system time for each on some machines. UV_USE_IO_URING=0 in the environment, set before the first loop, makes none up to
# 0.22, and changes nothing in 0.23. Where the kernel or a container forbids io_uring there are none, and nothing can be
# shown.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/program.py" <<'PROGRAM'
import os
import time

import uvloop


def rings():
    with os.scandir("/proc/self/fd") as entries:  # one of which is that of the listing
        return sum(os.readlink(entry.path) == "anon_inode:[io_uring]" for entry in entries)


uvloop.new_event_loop().close()  # what libuv opens once for all loops
before = rings()
loops = [uvloop.new_event_loop() for _ in range(10)]
print((rings() - before) / len(loops), end=" ")
begin = time.process_time()
for _ in range(300):
    uvloop.new_event_loop().close()
print(f"{(time.process_time() - begin) / 300 * 1e6:.0f} microseconds of processor time a loop")
PROGRAM
for version in 0.22.1 0.23.0; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/pip" install -q "uvloop==$version"
    found=$("$folder/$version/bin/python" "$folder/program.py")
    without=$(UV_USE_IO_URING=0 "$folder/$version/bin/python" "$folder/program.py")
    echo "uvloop $version: $found; with UV_USE_IO_URING=0: $without"
    case "$version $found; $without" in
    "0.22.1 2.0 "*"; 0.0 "* | "0.23.0 1.0 "*"; 1.0 "*) ;;
    *" 0.0 "*"; 0.0 "*) echo "no rings here: nothing can be shown" && exit 0 ;;
    *) exit 1 ;;
    esac
done
# Seen: 0.22.1: 2.0 rings a loop, 1,381 microseconds; without rings 25. 0.23.0: 1.0 ring, 61 microseconds, with both.
