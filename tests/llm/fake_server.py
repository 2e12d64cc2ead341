"""A server on loopback that speaks OpenAI's protocol and behaves as badly as it is told, for each request anew."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeServer:
    """Runs `behaviours` in order, the last one for every further request; remembers what was asked.

    A behaviour is a function of the handler and of the request's number (from 0) and body.
    """

    def __init__(self, *behaviours: Callable[[Handler, int, dict[str, Any]], None]) -> None:
        self.behaviours = behaviours
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.lock = threading.Lock()
        self.released = threading.Event()
        owner = self

        class Bound(Handler):
            fake = owner

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def __enter__(self) -> FakeServer:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.released.set()
        self.http.shutdown()
        self.http.server_close()


class Handler(BaseHTTPRequestHandler):
    """Reads one request and lets the server's behaviour answer it."""

    fake: FakeServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake = self.fake
        with fake.lock:
            number = len(fake.bodies)
            fake.bodies.append(body)
            fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            fake.paths.append(self.path)
        fake.behaviours[min(number, len(fake.behaviours) - 1)](self, number, body)

    def reply(
        self, status: int, value: object, headers: dict[str, str] | None = None, cut_at: int | None = None
    ) -> None:
        data = json.dumps(value).encode() if not isinstance(value, str) else value.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if not isinstance(value, str) else "text/html")
        self.send_header("Content-Length", str(len(data)))
        for name, content in (headers or {}).items():
            self.send_header(name, content)
        self.end_headers()
        self.wfile.write(data[:cut_at])
        self.wfile.flush()
        if cut_at is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


Behaviour = Callable[[Handler, int, dict[str, Any]], None]


def completion(
    texts: list[str | None], prompt_tokens: int = 100, completion_tokens: int = 10, finish_reason: str = "stop"
) -> dict[str, Any]:
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
        for i, text in enumerate(texts)
    ]
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens * len(texts),
        "total_tokens": prompt_tokens + completion_tokens * len(texts),
    }
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}


def ok(handler: Handler, number: int, body: dict[str, Any]) -> None:
    """All answers that were asked for, each different."""
    handler.reply(200, completion([f"answer {number}.{i}" for i in range(body.get("n") or 1)]))


def only_one(handler: Handler, number: int, body: dict[str, Any]) -> None:
    """One answer, whatever `n` says; its text names the seed."""
    handler.reply(200, completion([f"seed {body.get('seed')}"]))


def answer(text: str | None, finish_reason: str = "stop") -> Behaviour:
    return lambda handler, number, body: handler.reply(200, completion([text], finish_reason=finish_reason))


def without_usage(handler: Handler, number: int, body: dict[str, Any]) -> None:
    reply = completion(["uncounted"])
    del reply["usage"]
    handler.reply(200, reply)


def no_choices(handler: Handler, number: int, body: dict[str, Any]) -> None:
    handler.reply(200, completion([]))


def fault(
    status: int,
    message: str = "something is wrong",
    code: str | None = None,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> Behaviour:
    error = {"error": {"message": message, "type": "error", "code": code, "param": param}}
    return lambda handler, number, body: handler.reply(status, error, headers)


def cut(handler: Handler, number: int, body: dict[str, Any]) -> None:
    """Half of an answer, then the connection is gone."""
    handler.reply(200, completion(["x" * 200]), cut_at=120)


def hang(handler: Handler, number: int, body: dict[str, Any]) -> None:
    """No answer while the test lasts."""
    handler.fake.released.wait(60.0)
    handler.close_connection = True


def slow(seconds: float, then: Behaviour) -> Behaviour:
    def behave(handler: Handler, number: int, body: dict[str, Any]) -> None:
        time.sleep(seconds)
        then(handler, number, body)

    return behave


def page(handler: Handler, number: int, body: dict[str, Any]) -> None:
    """A web page: the address is not the protocol's."""
    handler.reply(200, "<html>hello</html>")


def refuses(name: str, message: str) -> Behaviour:
    """Refuses requests with this parameter, as OpenAI does; answers the others."""

    def behave(handler: Handler, number: int, body: dict[str, Any]) -> None:
        if name in body:
            fault(400, message, "unsupported_parameter", name)(handler, number, body)
        else:
            ok(handler, number, body)

    return behave
