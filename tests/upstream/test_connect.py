"""Opening a connection: its steps, several addresses, TLS, and the words for what fails."""

import asyncio
import contextlib
import datetime as dt
import errno
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.account import Mark, Phase
from proxy.upstream.client import Blame, Upstream, UpstreamFault
from proxy.upstream.connect import tls_context
from tests.support import Peer, run
from tests.upstream.calls import (
    OK,
    SECOND,
    always,
    ask,
    black_hole,
    clock,
    closed_port,
    has_ipv6,
    listening,
    new_trace,
    resolve_to,
    tls_server,
    to,
)

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    """A private certificate authority."""
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its certificate, as a file."""
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return str(path)


async def fails(upstream: Upstream) -> tuple[UpstreamFault, Phase]:
    """The fault of a call, and the phase in which it ended."""
    trace = new_trace()
    with pytest.raises(UpstreamFault) as caught:
        await ask(upstream, trace=trace)
    assert Mark.UPSTREAM_TX_START not in trace.marks
    return caught.value, trace.phase


# -- steps


def test_dns_tcp_and_tls_are_steps_of_their_own(ca: trustme.CA, ca_file: str) -> None:
    """Resolve, connect, shake hands, send: each stamped once, in this order."""

    async def story() -> None:
        tls = tls_server(ca.issue_cert("api.test"))
        async with listening(always(OK), tls=tls) as server:
            resolve_to(("127.0.0.1", server.port))
            async with to(1, scheme="https", host="api.test", ca_file=ca_file) as upstream:
                marks = (await ask(upstream)).trace.marks
        steps = [
            Mark.POOL_READY,
            Mark.DNS_END,
            Mark.CONNECT_END,
            Mark.TLS_END,
            Mark.UPSTREAM_TX_START,
            Mark.UPSTREAM_TX_END,
            Mark.RESPONSE_HEADERS,
        ]
        assert [mark for mark in Mark if mark in marks and mark in steps] == steps
        assert sorted(steps, key=lambda step: marks[step]) == steps

    run(story())


def test_a_step_that_did_not_happen_has_no_mark() -> None:
    """An address needs no DNS, plain HTTP no TLS, a reused connection neither."""

    async def story() -> None:
        async with listening(always(OK)) as server, to(server.port) as upstream:
            opened = (await ask(upstream)).trace.marks
            reused = (await ask(upstream)).trace.marks
        assert Mark.CONNECT_END in opened
        assert Mark.DNS_END not in opened
        assert Mark.TLS_END not in opened
        assert not {Mark.DNS_END, Mark.CONNECT_END, Mark.TLS_END} & set(reused)

    run(story())


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "not known"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "Temporary"),
        (None, "it is not a host name"),
    ],
)
def test_a_name_that_does_not_resolve_failed_in_dns(failure: OSError | None, words: str) -> None:
    """Unknown, no resolver, or no host name at all: refused before TCP, in words."""

    async def story() -> None:
        async def resolver(*_args: Any, **_options: Any) -> list[Any]:
            assert failure is not None
            raise failure

        if failure is not None:
            asyncio.get_running_loop().getaddrinfo = resolver  # type: ignore[method-assign]
        async with to(1, host="a" * 64 + ".test") as upstream:
            fault, phase = await fails(upstream)
        assert (fault.blame, phase) == (Blame.UNREACHABLE, Phase.DNS)
        assert fault.detail.startswith("name not resolved: ")
        assert words in fault.detail

    run(story())


@pytest.mark.parametrize("hosts", [("127.0.0.1",), ("127.0.0.1", "127.0.0.2")])
def test_a_refused_connection_is_told_without_its_address(hosts: tuple[str, ...]) -> None:
    """One address or several: the words are the system's, and name nothing that is configured."""

    async def story() -> None:
        port = closed_port()
        resolve_to(*((host, port) for host in hosts))
        async with to(port, host="api.test") as upstream:
            fault, phase = await fails(upstream)
        assert (fault.blame, phase) == (Blame.UNREACHABLE, Phase.TCP)
        assert fault.error.startswith("ConnectError(")
        assert fault.detail == "Connection refused"

    run(story())


def test_the_connect_limit_covers_every_step(ca_file: str) -> None:
    """A resolver, a host or a TLS server that says nothing: a timeout, in that step."""

    async def silent(peer: Peer) -> None:
        await peer.rest()

    async def story() -> None:
        limit: dict[str, Any] = {"connect_timeout": 0.15}
        with black_hole() as hole:
            async with listening(silent) as server:
                async with to(hole, **limit) as upstream:
                    tcp = await fails(upstream)
                async with to(server.port, scheme="https", ca_file=ca_file, **limit) as upstream:
                    tls = await fails(upstream)

                async def resolver(*_args: Any, **_options: Any) -> list[Any]:
                    await asyncio.sleep(60)
                    return []

                asyncio.get_running_loop().getaddrinfo = resolver  # type: ignore[method-assign]
                async with to(1, host="api.test", **limit) as upstream:
                    dns = await fails(upstream)
        assert [phase for _, phase in (dns, tcp, tls)] == [Phase.DNS, Phase.TCP, Phase.TLS]
        for fault, _ in (dns, tcp, tls):
            assert (fault.blame, fault.error) == (Blame.CONNECT_TIMEOUT, "ConnectTimeout")
            assert fault.detail == "not connected within 0.15 s"

    run(story())


@pytest.mark.parametrize("limit", [None, 10.0])
def test_the_kernels_own_timeout_is_not_our_limit(limit: float | None) -> None:
    """ETIMEDOUT arrives as an error of the system, with and without a limit of ours."""

    async def story() -> None:
        async def gives_up(*_args: Any) -> None:
            raise OSError(errno.ETIMEDOUT, "Connect call failed ('192.0.2.1', 443)")

        asyncio.get_running_loop().sock_connect = gives_up  # type: ignore[assignment, method-assign]
        async with to(1, connect_timeout=limit) as upstream:
            fault, phase = await fails(upstream)
        assert (fault.blame, phase) == (Blame.UNREACHABLE, Phase.TCP)
        assert (fault.error, fault.detail) == ("ConnectError(TimeoutError)", "Connection timed out")

    run(story())


# -- several addresses


def test_a_silent_first_address_costs_a_quarter_of_a_second() -> None:
    """The next one is tried beside it (B73)."""

    async def story() -> None:
        async with listening(always(OK)) as server:
            with black_hole("127.0.0.2") as hole:
                resolve_to(("127.0.0.2", hole), ("127.0.0.1", server.port))
                async with to(1, host="api.test") as upstream:
                    answer = await ask(upstream)
        marks = answer.trace.marks
        assert marks[Mark.CONNECT_END] - marks[Mark.DNS_END] < SECOND
        assert answer.facts.address == f"127.0.0.1:{server.port}"

    run(story())


@needs_ipv6
def test_localhost_that_only_listens_on_ipv4_is_reached_at_once() -> None:
    """::1 refuses, 127.0.0.1 answers: the family in use is recorded (B73)."""

    async def story() -> None:
        async with listening(always(OK)) as server:
            resolve_to(("::1", closed_port("::1")), ("127.0.0.1", server.port))
            async with to(1, host="localhost") as upstream:
                answer = await ask(upstream)
        assert answer.facts.family == "ipv4"
        assert answer.payload == b"ok"

    run(story())


@needs_ipv6
def test_an_ipv6_literal_is_connected_to(ca: trustme.CA, ca_file: str) -> None:
    """Plain and with a certificate for the address."""

    async def story() -> None:
        async with (
            listening(always(OK), host="::1") as server,
            to(server.port, host="::1") as upstream,
        ):
            plain = await ask(upstream)
        tls = tls_server(ca.issue_cert("::1"))
        async with (
            listening(always(OK), host="::1", tls=tls) as server,
            to(server.port, host="::1", scheme="https", ca_file=ca_file) as upstream,
        ):
            secure = await ask(upstream)
        for answer in (plain, secure):
            assert answer.facts.family == "ipv6"
            assert str(answer.facts.address).startswith("[::1]:")
            assert Mark.DNS_END not in answer.trace.marks

    run(story())


# -- TLS


def test_the_server_name_is_the_host(ca: trustme.CA, ca_file: str) -> None:
    """SNI carries upstream's own name (B19); an address has none (RFC 6066, section 3)."""

    async def story() -> None:
        names: list[str | None] = []
        tls = tls_server(ca.issue_cert("api.test", "127.0.0.1"))
        tls.sni_callback = lambda _ssl, name, _context: names.append(name)
        async with listening(always(OK), tls=tls) as server:
            resolve_to(("127.0.0.1", server.port))
            for host in ("api.test", "127.0.0.1"):
                port = server.port
                async with to(port, scheme="https", host=host, ca_file=ca_file) as upstream:
                    await ask(upstream)
        assert names == ["api.test", None]

    run(story())


PAST = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("trusted", "name", "expires", "words"),
    [
        (False, "api.test", None, "certificate not trusted: unable to get local issuer"),
        (False, "api.test", None, "(name a private CA with --ca-file)"),
        (True, "api.test", PAST, "certificate not trusted: certificate has expired"),
        (True, "other.test", None, "certificate not trusted: Hostname mismatch"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_told_in_words(
    ca: trustme.CA,
    ca_file: str,
    trusted: bool,
    name: str,
    expires: dt.datetime | None,
    words: str,
) -> None:
    """Unknown CA, expired, wrong host: phase TLS, the reason, and what to do (B66)."""

    async def story() -> None:
        not_before = None if expires is None else expires - dt.timedelta(days=1)
        cert = ca.issue_cert(name, not_before=not_before, not_after=expires)
        async with listening(always(OK), tls=tls_server(cert)) as server:
            resolve_to(("127.0.0.1", server.port))
            options = {"ca_file": ca_file if trusted else None}
            async with to(1, scheme="https", host="api.test", **options) as upstream:
                fault, phase = await fails(upstream)
        assert (fault.blame, phase) == (Blame.UNREACHABLE, Phase.TLS)
        assert fault.error == "ConnectError(SSLCertVerificationError)"
        assert words in fault.detail
        assert "api.test" not in fault.detail

    run(story())


@pytest.mark.parametrize("how", ["ca_file", "SSL_CERT_FILE", "insecure"])
def test_a_private_ca_is_accepted_when_asked_for(
    ca: trustme.CA, ca_file: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the option, by OpenSSL's own variable, or without any check."""
    if how == "SSL_CERT_FILE":
        monkeypatch.setenv("SSL_CERT_FILE", ca_file)
    options: dict[str, dict[str, Any]] = {
        "ca_file": {"ca_file": ca_file},
        "insecure": {"verify": False},
    }

    async def story() -> None:
        name = "127.0.0.1" if how != "insecure" else "other.test"
        async with (
            listening(always(OK), tls=tls_server(ca.issue_cert(name))) as server,
            to(server.port, scheme="https", **options.get(how, {})) as upstream,
        ):
            assert (await ask(upstream)).payload == b"ok"

    run(story())


def test_a_ca_file_adds_to_the_trusted_ones(ca: trustme.CA, ca_file: str) -> None:
    """What the system trusts stays trusted."""
    before = len(tls_context(None).get_ca_certs())
    assert len(tls_context(ca_file).get_ca_certs()) == before + 1


def test_a_ca_file_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    """Missing, or no certificate."""
    with pytest.raises(FileNotFoundError):
        tls_context(str(tmp_path / "missing.pem"))
    junk = tmp_path / "junk.pem"
    junk.write_text("not a certificate")
    with pytest.raises(ssl.SSLError):
        tls_context(str(junk))


def test_tls_to_a_server_that_speaks_plain_http_is_told(ca_file: str) -> None:
    """An https URL on an http port."""

    async def plain(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.rest()

    async def story() -> None:
        async with (
            listening(plain) as server,
            to(server.port, scheme="https", ca_file=ca_file) as upstream,
        ):
            fault, phase = await fails(upstream)
        assert phase is Phase.TLS
        assert fault.detail == "TLS failed: WRONG_VERSION_NUMBER"

    run(story())


def test_an_upstream_that_hangs_up_during_the_handshake_failed_in_tls(ca_file: str) -> None:
    """With words, not with an empty text."""

    async def leaves(_peer: Peer) -> None:
        return

    async def story() -> None:
        async with (
            listening(leaves) as server,
            to(server.port, scheme="https", ca_file=ca_file) as upstream,
        ):
            fault, phase = await fails(upstream)
        assert (fault.blame, phase) == (Blame.UNREACHABLE, Phase.TLS)
        assert fault.detail

    run(story())


# -- cancelling


def test_a_cancelled_connect_leaves_no_socket(ca_file: str) -> None:
    """In TCP, beside a second address, and in TLS."""

    async def silent(peer: Peer) -> None:
        await peer.rest()

    async def cancelled(upstream: Upstream) -> None:
        task = asyncio.create_task(ask(upstream))
        await asyncio.sleep(0.3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def story() -> None:
        with black_hole() as one, black_hole("127.0.0.2") as two:
            async with listening(silent) as server:
                resolve_to(("127.0.0.1", one), ("127.0.0.2", two))
                async with (
                    to(1, host="api.test") as tcp,
                    to(server.port, scheme="https", ca_file=ca_file) as tls,
                ):
                    await asyncio.sleep(0.05)
                    before = len(os.listdir("/dev/fd"))
                    await asyncio.gather(cancelled(tcp), cancelled(tls))
                    deadline = clock() + 5 * SECOND
                    while len(os.listdir("/dev/fd")) > before and clock() < deadline:
                        await asyncio.sleep(0.01)
                    assert len(os.listdir("/dev/fd")) <= before

    run(story())
