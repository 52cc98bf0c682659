"""Records from nginx, which delays, refuses and cuts replies (by Lua)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.ports import reserved_ports
from tests.remote.conftest import accepts, started

pytestmark = pytest.mark.remote

FAULTY = 9
"""Of so many requests, one each is refused with 503, refused with 429, and cut; the others are delayed."""

PACKAGES = ("nginx-light", "libnginx-mod-http-lua")

CONFIGURATION = """
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
{user}
worker_processes 1; daemon off; master_process off; pid nginx.pid; error_log error.log warn;
events {{ worker_connections 1024; }}
http {{
  lua_package_path "{lua}/?.lua;;";
  lua_shared_dict counts 64k;
  log_format short "$status $body_bytes_sent $sent_http_content_length";
  access_log requests.log short; sendfile off; output_buffers 1 8k;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server {{
    listen 127.0.0.1:{port}; root data;
    access_by_lua_block {{
      local place = ngx.shared.counts:incr("requests", 1, 0) % {faulty}
      ngx.ctx.cut = place == 3
      if place == 1 then return ngx.exit(503) end
      if place == 5 then ngx.header["Retry-After"] = "0"; return ngx.exit(429) end
      ngx.sleep(0.005)
    }}
    body_filter_by_lua_block {{
      if ngx.ctx.cut and ngx.ctx.begun then return ngx.ERROR end
      ngx.ctx.begun = true
    }}
  }}
}}
"""


def installed() -> Path:
    """Return where nginx is; where it is not, it is installed from the system's packages."""
    if shutil.which("nginx") is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            pytest.skip("install nginx with its Lua module")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # it is not started as a service
        for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            subprocess.run(["apt-get", "-q", *command], env=quiet, check=True, stdout=subprocess.DEVNULL)
    program = shutil.which("nginx")
    assert program is not None
    return Path(program)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of nginx over `data`."""
    pytest.importorskip("obstore")
    program = installed()
    system = program.resolve().parents[1]
    (tmp_path / "data").mkdir()
    with reserved_ports(1) as (port,):
        content = CONFIGURATION.format(
            modules=system / "lib/nginx/modules",
            lua=system / "share/lua/5.1",
            user="user root;" if os.geteuid() == 0 else "",
            port=port,
            faulty=FAULTY,
        )
        (tmp_path / "nginx.conf").write_text(content)
        with started([str(program), "-p", str(tmp_path), "-c", "nginx.conf"], port, accepts):
            yield f"http://127.0.0.1:{port}"


def test_records_are_exact_though_requests_are_refused_delayed_and_cut(served: str, tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, (6, 50, 5000), np.uint8)
    names = [f"{served}/{number}.tfrecord" for number in range(6)]
    for number, some in enumerate(records):
        with ad.TFRecordWriter(tmp_path / "data" / f"{number}.tfrecord") as writer:
            for record in some:
                writer.write(record.tobytes())

    def build() -> ad.Dataset[bytes]:
        return ad.TFRecordDataset(names, num_parallel_reads=3)

    expected = sorted(record.tobytes() for record in records.reshape(300, 5000))
    for _ in range(3):
        assert sorted(build()) == expected
    check_resumes(build, places=6)
    replies = [line.split() for line in (tmp_path / "requests.log").read_text().splitlines()]
    assert {"429", "503"} <= {status for status, _, _ in replies}
    assert any(int(sent) < int(length) for status, sent, length in replies if status in ("200", "206"))
