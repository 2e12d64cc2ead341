"""What stands between the trainer and a hostile process: messages with a deadline, memory that cannot shrink."""

import contextlib
import fcntl
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from sandboxes.isolation.buffer import MAX_COMPONENTS, InputSpec, Layout, SharedBuffer
from sandboxes.isolation.channel import (
    Channel,
    ChannelClosed,
    ChannelMalformed,
    ChannelTimeout,
    channel_pair,
)

PATIENT_S = 30.0


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    channel, other = channel_pair()
    yield channel, other
    channel.close()
    other.close()


def framed(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def open_descriptors() -> set[tuple[str, str]]:
    """Each open descriptor with what it leads to. Threads of other tests may close theirs meanwhile: compare sets."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own, closed since
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
    return found


# --- messages


@pytest.mark.parametrize(
    "message",
    [{}, {"op": "load", "source": "ä\n\0\u2028"}, {"deep": [[[{"x": None}]]], "n": 1e-9}, {"long": "x" * 60_000}],
    ids=["empty", "odd characters", "nested", "long"],
)
def test_messages_arrive_as_they_were_sent(pair: tuple[Channel, socket.socket], message: dict):
    ours, theirs = pair[0], Channel(pair[1])
    ours.send(message)
    assert theirs.receive(PATIENT_S) == message
    ours.send(message)
    assert theirs.receive(PATIENT_S) == message
    ours.send({"second": 2})
    assert theirs.receive(PATIENT_S) == {"second": 2}


def test_a_message_larger_than_the_sockets_buffer_arrives(pair: tuple[Channel, socket.socket]):
    ours, theirs = pair[0], Channel(pair[1])
    message = {"data": "y" * (8 << 20)}
    sender = threading.Thread(target=ours.send, args=(message,))
    sender.start()
    received = theirs.receive(PATIENT_S, max_bytes=16 << 20)
    sender.join()
    assert received == message


def test_a_torn_message_is_put_together(pair: tuple[Channel, socket.socket]):
    ours, theirs = pair
    data = framed(b'{"answer": 42}')

    def dribble() -> None:
        for byte in data:
            theirs.send(bytes([byte]))
            time.sleep(0.001)

    sender = threading.Thread(target=dribble)
    sender.start()
    assert ours.receive(PATIENT_S) == {"answer": 42}
    sender.join()


@pytest.mark.parametrize("sent", [b"", b"\0\0", framed(b'{"half": 1')[:-4]], ids=["nothing", "half a header", "half"])
def test_silence_and_unfinished_messages_run_into_the_deadline(pair: tuple[Channel, socket.socket], sent: bytes):
    ours, theirs = pair
    theirs.send(sent)
    with pytest.raises(ChannelTimeout):
        ours.receive(0.05)


def test_a_sender_that_never_finishes_cannot_stretch_the_deadline(pair: tuple[Channel, socket.socket]):
    """One byte every now and then must not start the clock again."""
    ours, theirs = pair
    stop = threading.Event()

    def dribble() -> None:
        theirs.send(struct.pack("!I", 60_000))
        while not stop.wait(0.02):
            theirs.send(b" ")

    sender = threading.Thread(target=dribble)
    sender.start()
    try:
        with pytest.raises(ChannelTimeout):
            ours.receive(0.3)
    finally:
        stop.set()
        sender.join()


def test_a_receiver_that_does_not_read_cannot_block_the_sender(pair: tuple[Channel, socket.socket]):
    with pytest.raises(ChannelTimeout):
        pair[0].send({"data": "z" * (8 << 20)}, timeout_s=0.1)


@pytest.mark.parametrize("sent", [b"", b"\0\0", framed(b"{}")[:-1]], ids=["between messages", "in a header", "in one"])
def test_a_closed_connection_is_told_from_silence(pair: tuple[Channel, socket.socket], sent: bytes):
    ours, theirs = pair
    theirs.send(sent)
    assert not ours.hung_up()
    theirs.close()
    assert ours.hung_up()
    with pytest.raises(ChannelClosed):
        ours.receive(PATIENT_S)
    with pytest.raises(ChannelClosed):
        ours.send({"data": "x"})


def test_what_was_sent_before_the_end_can_still_be_read(pair: tuple[Channel, socket.socket]):
    ours, theirs = pair
    theirs.send(framed(b'{"last": "words"}'))
    theirs.close()
    assert ours.receive(PATIENT_S) == {"last": "words"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[1, 2]",
        b'"text"',
        b"17",
        b"null",
        b'{"a": 1} trailing',
        b'{"a": "\xff\xfe"}',
        b"[" * 50_000,
        b'{"a":' * 10_000,
        json.dumps({"a": 1}).encode("utf-16"),
    ],
    ids=["empty", "words", "list", "string", "number", "null", "trailing", "bytes", "deep list", "deep", "utf-16"],
)
def test_malformed_messages_are_refused(pair: tuple[Channel, socket.socket], data: bytes):
    ours, theirs = pair
    theirs.send(framed(data))
    with pytest.raises(ChannelMalformed):
        ours.receive(PATIENT_S)


@pytest.mark.parametrize("length", [(1 << 16) + 1, 2**32 - 1])
def test_an_oversized_message_is_refused_before_it_is_read(pair: tuple[Channel, socket.socket], length: int):
    ours, theirs = pair
    theirs.send(struct.pack("!I", length) + b"x" * 100)
    with pytest.raises(ChannelMalformed, match=str(length)):
        ours.receive(PATIENT_S)
    assert len(ours.sock.recv(1000)) == 100


# --- descriptors


def test_descriptors_travel_with_a_message(pair: tuple[Channel, socket.socket]):
    ours, theirs = pair[0], Channel(pair[1], accept_fds=True)
    read, write = os.pipe()
    ours.send({"op": "here"}, fds=(write,))
    os.close(write)
    assert theirs.receive(PATIENT_S) == {"op": "here"}
    (taken,) = theirs.take_fds()
    assert theirs.take_fds() == []
    os.write(taken, b"hello")
    os.close(taken)
    assert os.read(read, 10) == b"hello"
    os.close(read)


def test_unwanted_descriptors_are_dropped(pair: tuple[Channel, socket.socket]):
    """A worker could otherwise fill the trainer's descriptor table, one message at a time."""
    ours, theirs = pair[0], Channel(pair[1])
    before = open_descriptors()
    for _ in range(50):
        theirs.send({"op": "flood"}, fds=(0, 0, 0, 0))
        assert ours.receive(PATIENT_S) == {"op": "flood"}
    assert ours.take_fds() == []
    assert open_descriptors() <= before


def test_descriptors_nobody_took_are_closed_with_the_channel():
    before = open_descriptors()
    ours, theirs = channel_pair()
    receiver = Channel(theirs, accept_fds=True)
    ours.send({}, fds=(0, 1))
    receiver.receive(PATIENT_S)
    ours.close()
    receiver.close()
    assert open_descriptors() <= before


# --- shared memory

LAYOUT = Layout(
    (InputSpec("angle", (), "float32"), InputSpec("position", (3,), "float32"), InputSpec("contact", (2,), "bool")), 37
)


def test_a_layout_survives_the_wire():
    message = json.loads(json.dumps(LAYOUT.as_message()))
    assert Layout.from_message(message) == LAYOUT


def test_parts_of_the_buffer_do_not_overlap_and_are_aligned():
    starts, outputs, size = LAYOUT.offsets()
    ends = [start + spec.bytes_per_row * LAYOUT.rows for start, spec in zip(starts, LAYOUT.inputs, strict=True)]
    assert all(start % 64 == 0 for start in [*starts, outputs])
    assert all(end <= start for end, start in zip(ends, [*starts[1:], outputs], strict=True))
    assert size == outputs + 4 * LAYOUT.rows * (1 + MAX_COMPONENTS)


def test_both_sides_see_the_same_memory():
    ours = SharedBuffer(LAYOUT)
    theirs = SharedBuffer(Layout.from_message(LAYOUT.as_message()), os.dup(ours.fd))
    generator = torch.Generator().manual_seed(1)
    assert {n: (tuple(t.shape), t.dtype) for n, t in theirs.inputs.items()} == {
        "angle": ((37,), torch.float32),
        "position": ((37, 3), torch.float32),
        "contact": ((37, 2), torch.bool),
    }
    written = {}
    for name, tensor in ours.inputs.items():
        noise = torch.rand(tensor.shape, generator=generator)
        written[name] = noise > 0.5 if tensor.dtype == torch.bool else noise
        tensor.copy_(written[name])
    for name, tensor in theirs.inputs.items():
        assert torch.equal(tensor, written[name])
    theirs.outputs.copy_(torch.rand(theirs.outputs.shape, generator=generator))
    assert torch.equal(ours.outputs, theirs.outputs)
    assert ours.outputs.shape == (1 + MAX_COMPONENTS, 37)
    for name, tensor in ours.inputs.items():
        assert torch.equal(tensor, written[name])
    ours.close()
    theirs.close()


@pytest.mark.parametrize("size", [0, 1, 1 << 20], ids=["to nothing", "smaller", "larger"])
def test_the_memory_cannot_be_resized(size: int):
    """The trainer would die of SIGBUS at its next read."""
    buffer = SharedBuffer(LAYOUT)
    other = os.dup(buffer.fd)
    with pytest.raises(PermissionError):
        os.ftruncate(other, size)
    with pytest.raises(PermissionError):  # nor can the seals be lifted or added to
        fcntl.fcntl(other, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(other)
    buffer.close()
    assert float(buffer.outputs.sum()) == 0.0  # the mapping outlives its descriptor


def test_closing_gives_back_every_descriptor():
    before = open_descriptors()
    for _ in range(20):
        buffer = SharedBuffer(LAYOUT)
        other = SharedBuffer(LAYOUT, os.dup(buffer.fd))
        other.close()
        buffer.close()
        del other, buffer
    assert open_descriptors() <= before
