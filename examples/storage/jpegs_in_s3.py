"""A folder of JPEGs in S3: list, read, decode, batch, stop, and resume in the middle of an epoch.

    pip install 'asyncdata[remote-test]' && python examples/storage/jpegs_in_s3.py

This program starts and ends the S3 server, SeaweedFS. For your own bucket change only OPTIONS and FOLDER.
"""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sysconfig
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import boto3
import numpy as np
from botocore.exceptions import BotoCoreError, ClientError
from PIL import Image

import asyncdata as ad

OPTIONS = {"region": "us-east-1", "access_key_id": "example", "secret_access_key": "example-secret"}
FOLDER = "s3://pictures/train"


def reserved_ports(stack, count):
    """Return ports that nobody but a server (SO_REUSEADDR) is given until the stack is left."""
    sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
    for one in sockets:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
    return [one.getsockname()[1] for one in sockets]


@contextmanager
def s3_server(folder):
    """Run SeaweedFS within the block, and yield its endpoint."""
    keys = [{"accessKey": OPTIONS["access_key_id"], "secretKey": OPTIONS["secret_access_key"]}]
    identity = {"name": "example", "credentials": keys, "actions": ["Admin", "Read", "Write", "List"]}
    Path(folder, "s3.json").write_text(json.dumps({"identities": [identity]}))
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc"]
    names += ["filer.port", "filer.port.grpc", "s3.port.grpc", "s3.port"]
    command = [str(Path(sysconfig.get_path("scripts"), "weed")), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-dir={folder}", "-filer", "-s3", f"-s3.config={folder}/s3.json", "-volume.max=20"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    with ExitStack() as stack, open(f"{folder}/log", "wb") as log:
        ports = reserved_ports(stack, len(names))
        command += [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
        server = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log))
        try:
            yield f"http://127.0.0.1:{ports[-1]}"
        finally:
            server.kill()


def upload(endpoint, count):
    """Make pictures, and upload them as soon as the server is ready."""
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=OPTIONS["region"],
        aws_access_key_id=OPTIONS["access_key_id"],
        aws_secret_access_key=OPTIONS["secret_access_key"],
    )
    for _ in range(100):
        try:
            client.create_bucket(Bucket="pictures")
            break
        except (BotoCoreError, ClientError):  # the server is not ready yet
            time.sleep(0.2)
    rng = np.random.default_rng(0)
    for number in range(count):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (48, 64, 3), np.uint8)).save(file, "JPEG")
        client.put_object(Bucket="pictures", Key=f"train/{number:04}.jpeg", Body=file.getvalue())


def decode(content):
    with Image.open(io.BytesIO(content)) as picture:
        return np.asarray(picture.resize((32, 32)), np.uint8)


def pipeline(options):
    async def read(url):
        return await ad.read_file(url, storage_options=options)

    return (
        ad.Dataset.list_files(f"{FOLDER}/*.jpeg", seed=0, storage_options=options)
        .map(read, num_parallel_calls=16)
        .map(decode, num_parallel_calls=ad.AUTOTUNE)
        .batch(8)
    )


def main():
    with tempfile.TemporaryDirectory() as folder, s3_server(folder) as endpoint:
        options = {**OPTIONS, "endpoint": endpoint}
        upload(endpoint, 60)

        whole = list(pipeline(options))
        print("batches", len(whole), "of", whole[0].shape, whole[0].dtype)

        with pipeline(options).iterate() as batches:  # stop after three batches
            first = [next(batches) for _ in range(3)]
            state = json.dumps(batches.state_dict())
        print("size of the state:", len(state) < 2000)

        rest = list(pipeline(options).iterate(state=json.loads(state)))  # in another process, say
        same = all(np.array_equal(one, other) for one, other in zip([*first, *rest], whole, strict=True))
        print("as if nothing had happened:", same)


if __name__ == "__main__":
    main()
