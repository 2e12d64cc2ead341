"""Length-checked JSON messages over a Unix socket, with a deadline on every read and file descriptors in passing.

The far end may be hostile: nothing here unpickles, a message over its limit is refused before it is read, and a
peer that stops in the middle of a message runs into the deadline like one that never answers.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from typing import Any

_HEADER = struct.Struct("!I")
MAX_FDS = 4
_LONGEST_POLL_S = 1e6  # poll() counts milliseconds in 32 bits


class ChannelClosed(Exception):
    """The process at the other end is gone."""


class ChannelTimeout(Exception):
    """No whole message arrived before the deadline."""


class ChannelMalformed(Exception):
    """What arrived is not a message: over its limit, or not a JSON object."""


class Channel:
    """One end of a socket pair that carries JSON objects."""

    def __init__(self, sock: socket.socket, accept_fds: bool = False) -> None:
        """`accept_fds`: take descriptors that come along; else the kernel drops them, or a hostile sender's pile up."""
        sock.setblocking(False)
        self.sock, self.accept_fds = sock, accept_fds
        self._fds: list[int] = []

    def fileno(self) -> int:
        """The socket's descriptor, so that `select` takes a channel."""
        return self.sock.fileno()

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = (), timeout_s: float = 30.0) -> None:
        """Send one message; `fds` travel with its first byte."""
        data = json.dumps(message).encode()
        payload = memoryview(_HEADER.pack(len(data)) + data)
        deadline = time.monotonic() + timeout_s
        while payload:
            self._wait(write=True, deadline=deadline)
            try:
                sent = socket.send_fds(self.sock, [payload], list(fds)) if fds else self.sock.send(payload)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            payload, fds = payload[sent:], ()

    def receive(self, timeout_s: float, max_bytes: int = 1 << 16) -> dict[str, Any]:
        """The next message.

        Raises:
            ChannelTimeout, ChannelClosed, ChannelMalformed: see those.
        """
        deadline = time.monotonic() + timeout_s
        (length,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        if length > max_bytes:
            raise ChannelMalformed(f"a message of {length} bytes, over the limit of {max_bytes}")
        data = self._read(length, deadline)
        try:
            message = json.loads(data.decode())
        except (ValueError, RecursionError) as error:
            raise ChannelMalformed("a message that is not JSON") from error
        if not isinstance(message, dict):
            raise ChannelMalformed("a message that is not a JSON object")
        return message

    def take_fds(self) -> list[int]:
        """Descriptors that came with the messages received so far; the caller owns them."""
        fds, self._fds = self._fds, []
        return fds

    def hung_up(self) -> bool:
        """Whether the other end is closed; whatever it sent before can still be received."""
        poller = select.poll()
        poller.register(self.sock, select.POLLHUP)
        return bool(poller.poll(0))

    def close(self) -> None:
        """Close the socket and any descriptor nobody took."""
        for fd in self.take_fds():
            os.close(fd)
        self.sock.close()

    def _read(self, length: int, deadline: float) -> bytes:
        chunks = bytearray()
        while len(chunks) < length:
            self._wait(write=False, deadline=deadline)
            try:
                data = self._take(min(length - len(chunks), 1 << 20))
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not data:
                raise ChannelClosed("the other end closed the connection")
            chunks += data
        return bytes(chunks)

    def _take(self, length: int) -> bytes:
        if not self.accept_fds:
            return self.sock.recv(length)
        data, fds, _, _ = socket.recv_fds(self.sock, length, MAX_FDS)
        self._fds.extend(fds)
        return data

    def _wait(self, write: bool, deadline: float) -> None:
        left = deadline - time.monotonic()
        poller = select.poll()
        poller.register(self.sock, select.POLLOUT if write else select.POLLIN)
        if left <= 0 or not poller.poll(min(left, _LONGEST_POLL_S) * 1000.0):
            raise ChannelTimeout("no answer before the deadline")


def channel_pair() -> tuple[Channel, socket.socket]:
    """A channel for this process, which accepts no descriptors, and the socket to hand to another."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(ours), theirs
