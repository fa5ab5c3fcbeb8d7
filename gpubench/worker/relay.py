"""Forwards connections from other machines to the store on node 0's loopback address, after checking a secret.

Other machines can reach only the relay's port and those of Gloo and NCCL. The relay runs on node 0, in the child of
`nodes.Nodes`. Both ends prove that they know the secret (GPUBENCH_SECRET) before a byte is forwarded.
"""

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable

GREETING = b"gpubench 1\n"
NONCE_BYTES = PROOF_BYTES = 32
HANDSHAKE_SECONDS = 5.0
"""Seconds in which the other end must prove that it knows the secret."""
RETRY_SECONDS = 0.2
CHUNK_BYTES = 1 << 16
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Stream]]
"""Given the streams of a client, returns the streams to which it is forwarded; an error refuses the client."""


class SecretError(Exception):
    """The other end has another secret."""


def forward_clients(listener: socket.socket, port: int, secret: bytes) -> None:
    """Forward to `port` of this machine, in a thread, the clients of `listener` that know the secret."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Stream:
        await asyncio.wait_for(_check_client(reader, writer, secret), HANDSHAKE_SECONDS)
        return await asyncio.open_connection("127.0.0.1", port)

    _serve(listener, connect)


def open_forwarder(host: str, port: int, secret: bytes, limit_seconds: float) -> int:
    """Open a port on this machine's loopback address that forwards to the relay at `host`; return the port.

    Tries for `limit_seconds` to reach the relay. Raises SecretError if the relay has another secret, and OSError if
    there is no relay.
    """
    deadline = time.monotonic() + limit_seconds

    async def try_once() -> None:
        _, writer = await _connect(host, port, secret)
        writer.close()

    while True:
        try:
            asyncio.run(try_once())
            break
        except (OSError, EOFError, TimeoutError):
            if time.monotonic() > deadline:
                raise OSError(f"{host}:{port} is no gpubench relay, or runs another version") from None
            time.sleep(RETRY_SECONDS)

    listener = socket.create_server(("127.0.0.1", 0))
    _serve(listener, lambda reader, writer: _connect(host, port, secret))
    return int(listener.getsockname()[1])


def _serve(listener: socket.socket, connect: Connect) -> None:
    """Forward each client of `listener` to the streams that `connect` returns. The thread ends with the process."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A refused or lost connection does not affect the others.
        with contextlib.suppress(OSError, EOFError, TimeoutError, SecretError):
            there_reader, there_writer = await connect(reader, writer)
            await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(handle, sock=listener)
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of `reader`, then close `writer`."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def _check_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
    """Check the client's proof that it knows the secret, then send the server's. Raises SecretError."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    writer.write(GREETING + nonce)
    peer_nonce = await reader.readexactly(NONCE_BYTES)
    proof = await reader.readexactly(PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(secret, b"client", nonce, peer_nonce)):
        raise SecretError
    writer.write(_proof(secret, b"server", nonce, peer_nonce))


async def _connect(host: str, port: int, secret: bytes) -> Stream:
    """Return a connection to the relay at `host`, after both ends have proved that they know the secret."""
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            if await reader.readexactly(len(GREETING)) != GREETING:
                raise ConnectionError("this is not gpubench")
            peer_nonce, nonce = await reader.readexactly(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
            writer.write(nonce + _proof(secret, b"client", peer_nonce, nonce))
            try:
                proof = await reader.readexactly(PROOF_BYTES)
            except (EOFError, ConnectionError):
                raise SecretError from None
            if not hmac.compare_digest(proof, _proof(secret, b"server", peer_nonce, nonce)):
                raise SecretError
        except BaseException:
            writer.close()
            raise
    return reader, writer


def _proof(secret: bytes, side: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return a proof of knowing the secret. Client and server have different proofs, so a proof cannot be sent back."""
    return hmac.digest(secret, side + server_nonce + client_nonce, hashlib.sha256)
