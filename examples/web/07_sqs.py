"""Messages of Amazon SQS, each trained on once, though the queue delivers each at least once.

    pip install asyncdata boto3 'moto[server]' && python examples/web/07_sqs.py

A receiver stores each message in a channel on disk, with the message's ID as its key, and deletes it from the queue
when `send` has returned. If it is killed in between, the queue delivers the message again, and the channel knows its
key. A trainer reads the channel's folder, and saves its position together with the model. Here a server of moto takes
the place of Amazon's, and receiver and trainer are killed again and again where it hurts most: after the work, before
they could say so.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import boto3

import asyncdata as ad

MESSAGES = 100


def connect(endpoint):
    """Return a client; of Amazon's own servers it needs none of these arguments."""
    account = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    return boto3.client("sqs", endpoint_url=endpoint, **account)


async def store(channel, message):
    """Return when a message is on the disk: `False` if it was there already. Wait while the channel is full."""
    while True:
        try:
            return await channel.send(message["Body"].encode(), key=message["MessageId"])
        except ad.ChannelFull:  # until the trainer has read and trimmed some; what comes again meanwhile is known
            await asyncio.sleep(1)


async def receive(sqs, queue, channel):
    """Move messages from the queue into the channel, until none has come for some seconds; a service would go on."""
    how = {"QueueUrl": queue, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 5}
    while messages := (await asyncio.to_thread(sqs.receive_message, **how)).get("Messages"):
        new = await asyncio.gather(*[store(channel, message) for message in messages])
        print(new.count(False), "came again", flush=True)
        entries = [{"Id": one["MessageId"], "ReceiptHandle": one["ReceiptHandle"]} for one in messages]
        await asyncio.to_thread(sqs.delete_message_batch, QueueUrl=queue, Entries=entries)


def train(spool, load, save):
    """Train in name only: count and sum what comes, and save that with the position of the reader."""
    model = load()
    batches = ad.Dataset.from_channel(spool).map(json.loads).batch(10, within=0.2).iterate(state=model["state"])
    with batches:
        while model["count"] < MESSAGES:
            numbers = next(batches)["x"]
            model["count"] += len(numbers)
            model["total"] += int(numbers.sum())
            save({**model, "state": batches.state_dict()})
            ad.web.trim(spool, batches.state_dict())


class Saved:
    """A file in which the model and the position are replaced together."""

    def __init__(self, path):
        self.path = path

    def load(self):
        """Return what was saved, or the model to begin with."""
        return json.loads(self.path.read_text()) if self.path.exists() else {"count": 0, "total": 0, "state": None}

    def save(self, model):
        """Replace it."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(model))
        os.replace(part, self.path)


def killed_in_third(method):
    """Return a method in whose third call the process is killed instead."""
    calls = iter(range(2))

    def call(*arguments, **options):
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*arguments, **options)

    return call


async def run_receiver(folder, endpoint, queue):
    """Run a receiver that is killed after it has stored messages, before it deletes them."""
    sqs = connect(endpoint)
    sqs.delete_message_batch = killed_in_third(sqs.delete_message_batch)
    async with ad.DurableChannel(folder / "spool") as channel:
        await receive(sqs, queue, channel)


def run_trainer(folder):
    """Run a trainer that is killed after it has trained, before it saves that."""
    saved = Saved(folder / "model.json")
    train(folder / "spool", saved.load, killed_in_third(saved.save))


async def run_to_end(*arguments):
    """Start a program again as long as it is killed; return how often that was, and what it printed."""
    kills, printed = 0, b""
    while True:
        program = await asyncio.create_subprocess_exec(sys.executable, __file__, *arguments, stdout=subprocess.PIPE)
        printed += (await program.communicate())[0]
        if program.returncode != -signal.SIGKILL:
            return kills, printed.decode()
        kills += 1


def start_moto():
    """Start a server that answers as SQS does; return it and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "-W", "ignore", "-m", "moto.server", "-p", str(port)]
    server = subprocess.Popen(program, stderr=subprocess.PIPE)
    while b"Running on" not in server.stderr.readline():
        pass
    return server, f"http://127.0.0.1:{port}"


async def main(folder):
    """Send messages, and run a receiver and a trainer until all are trained on."""
    server, endpoint = start_moto()
    try:
        sqs = connect(endpoint)
        queue = sqs.create_queue(QueueName="samples", Attributes={"VisibilityTimeout": "2"})["QueueUrl"]
        for number in range(MESSAGES):
            sqs.send_message(QueueUrl=queue, MessageBody=json.dumps({"x": number}))
        async with ad.DurableChannel(folder / "spool"):
            pass  # it is there now, whichever of the two is first
        receiver, trainer = await asyncio.gather(
            run_to_end("receive", folder, endpoint, queue), run_to_end("train", folder)
        )
    finally:
        server.kill()
        server.communicate()
    again = sum(int(line.split()[0]) for line in receiver[1].splitlines())
    model = Saved(folder / "model.json").load()
    print(f"the receiver was killed: {receiver[0] > 2}, the trainer: {trainer[0] > 2}; came again: {again > 0}")
    print(f"{model['count']} messages, each once: {model['total'] == sum(range(MESSAGES))}")


if __name__ == "__main__":
    role, *rest = sys.argv[1:] or ["main", os.environ.get("FOLDER") or tempfile.mkdtemp()]
    path = Path(rest.pop(0))
    if role == "train":
        run_trainer(path)
    else:
        asyncio.run(main(path) if role == "main" else run_receiver(path, *rest))
