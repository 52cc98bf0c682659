#!/usr/bin/env bash
# httpx 0.28.1 gives the first member of a gzip body only: RFC 1952 lets a gzip stream have several, and servers that
# compress logs or NDJSON part by part send such bodies. The rest is dropped without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q httpx==0.28.1
"$folder/venv/bin/python" - <<'PYTHON'
import gzip, threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx

BODY = gzip.compress(b"one\n") + gzip.compress(b"two\n")
assert gzip.decompress(BODY) == b"one\ntwo\n"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
found = httpx.get(f"http://127.0.0.1:{server.server_address[1]}/", trust_env=False).content
print("httpx", httpx.__version__, "gives", found, "of", gzip.decompress(BODY))
server.shutdown()
assert found == b"one\n", "the behaviour has changed"
PYTHON
