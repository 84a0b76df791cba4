"""Part 2: a long path with known delay and loss, against what the record says of the network."""

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

import trustme

from proxy.record import Record
from tests.lab import netns, plan
from tests.lab.client import Ask, Plan
from tests.lab.link import LinkReport
from tests.lab.netns import FAR, Namespaces, namespaces
from tests.lab.processes import ask, served, upstream
from tests.lab.report import Goal, Part, table
from tests.lab.stats import quantile
from tests.lab.upstream import Witnessed

Key = TypeVar("Key")
TITLE = "2. A long path"
PROTOCOLS = ("tcp", "tls 1.3", "tls 1.2")
RTTS_MS = (10.0, 40.0, 150.0)
BODIES_KB = (4, 120, 1000)
LOSSES = (0.005, 0.02)
LOSSY_RTT_MS = 40.0
THINKING_MS = 60.0
"""The server's own time, before the first token."""
WITHIN = 0.10
SLACK_MS = 2.0
"""What a busy machine adds to a handshake of a few milliseconds."""
TLS_SLACK_MS = 6.0
"""The same for TLS, where both sides compute."""
TLS_TRIPS = {"tcp": 0, "tls 1.3": 1, "tls 1.2": 2}


@dataclass(frozen=True, slots=True)
class Crossing:
    """One request over the link: the record, and the truth about it (ms)."""

    protocol: str
    rtt_ms: float
    loss: float
    body_kb: int
    early_head: bool
    record: Record
    server_ms: float
    """From the read that completed the request to the hand-over of the first token."""

    @property
    def network_ms(self) -> float:
        """What the record says."""
        return self.record.segments_ms["network_latency"] or 0.0

    @property
    def truth_ms(self) -> float:
        """All of TTFT that was neither the server's nor the proxy's."""
        proxy = self.record.segments_ms["proxy_time"] or 0.0
        return (self.record.ttft_ms or 0.0) - proxy - self.server_ms

    @property
    def error_ms(self) -> float:
        """Recorded minus true; below zero when network time was left unattributed."""
        return self.network_ms - self.truth_ms

    @property
    def right(self) -> bool:
        """Within a tenth of a round trip, or two milliseconds."""
        return abs(self.error_ms) <= max(SLACK_MS, WITHIN * self.rtt_ms)


@dataclass(frozen=True, slots=True)
class Series:
    """What one configuration of the link gave."""

    crossings: Sequence[Crossing]
    link: LinkReport


def run(folder: Path, rounds: int, rtts_ms: Sequence[float] = RTTS_MS) -> Part:
    """The part; each case is asked `rounds` times on a new connection and twice as often reused.

    An even number of rounds gives every case early and late heads.
    """
    reason = netns.why_not()
    if reason is not None:
        return Part(TITLE, skipped=reason)
    cases = [(rtt, 0.0) for rtt in rtts_ms] + [(LOSSY_RTT_MS, loss) for loss in LOSSES]
    series = []
    with namespaces() as spaces:
        for (rtt_ms, loss), protocol in itertools.product(cases, PROTOCOLS):
            with _certificate(folder, protocol) as tls:
                series.append(_series(folder, spaces, protocol, tls, rtt_ms, loss, rounds))
    return judge(series)


@contextmanager
def _certificate(folder: Path, protocol: str) -> Iterator[list[str]]:
    """Certificate, key and version for the server; the authority is `ca.pem` beside them."""
    if protocol == "tcp":
        yield []
        return
    authority = trustme.CA()
    issued = authority.issue_cert(FAR)
    where = folder / "tls"
    where.mkdir()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.cert_chain_pems[0].write_to_path(where / "cert.pem")
    issued.private_key_pem.write_to_path(where / "key.pem")
    yield [str(where / "cert.pem"), str(where / "key.pem"), protocol.removeprefix("tls ")]
    shutil.rmtree(where)


def _series(
    folder: Path,
    spaces: Namespaces,
    protocol: str,
    tls: Sequence[str],
    rtt_ms: float,
    loss: float,
    rounds: int,
) -> Series:
    scheme, flags = ("https", ["--ca-file", str(folder / "ca.pem")]) if tls else ("http", [])
    with (
        upstream(folder, host=FAR, prefix=spaces.far, tls=tls) as api,
        spaces.link(rtt_ms=rtt_ms, loss=loss, seed=int(rtt_ms + 1000 * loss)) as link,
        served(folder, f"{scheme}://{FAR}:{api.port}", prefix=spaces.near, flags=flags) as proxy,
    ):
        asks, cases = _asks(proxy.host, proxy.port, rounds)
        # Long enough for the answers to the last bytes of one request not to meet the next one.
        steps = [[one] for one in asks]
        ask(folder, Plan(steps=steps, pause_ms=2 * rtt_ms + 50), prefix=spaces.near)
        records = proxy.wait_records(len(asks))
    assert link.report is not None
    return Series(
        [
            Crossing(protocol, rtt_ms, loss, *case, record, _server_ms(api.seen[record.trace_id]))
            for record in records
            if record.trace_id is not None and (case := cases[record.trace_id])
        ],
        link.report,
    )


def _server_ms(seen: Witnessed) -> float:
    return (dict(reversed(seen.timeline))["token"] - seen.complete_at) / 1e6


def _asks(host: str, port: int, rounds: int) -> tuple[list[Ask], dict[str, tuple[int, bool]]]:
    """For every body size and round: one request on a new connection, two on the same again."""
    asks: list[Ask] = []
    cases: dict[str, tuple[int, bool]] = {}
    for body_kb, turn, use in itertools.product(BODIES_KB, range(rounds), range(3)):
        early = (turn + use) % 2 == 0
        script: dict[str, object] = {
            "prefill": THINKING_MS,
            "tokens": 3,
            "gap": 5,
            "headers": "early" if early else "late",
            "close": use == 2,
        }
        trace = plan.trace_id(len(asks), "path")
        messages = [{"role": "user", "content": "x" * (body_kb * 1000)}]
        body = {"model": "sim", "stream": True, "messages": messages}
        request = plan.request(f"{host}:{port}", plan.PATHS["openai_chat"], trace, body, script)
        asks.append(Ask(trace=trace, lane="path", host=host, port=port, request=request))
        cases[trace] = (body_kb, early)
    return asks, cases


def judge(series: Sequence[Series]) -> Part:
    """Tables and goals."""
    all_of_it = [one for some in series for one in some.crossings]
    clean = [one for one in all_of_it if not one.loss]
    fresh = [one for one in clean if not one.record.connection_reused]
    late = ", ".join(f"{some.link.late_p50_ms:.2f}/{some.link.late_p99_ms:.2f}" for some in series)
    return Part(
        TITLE,
        (
            (
                f"{len(all_of_it)} requests; {THINKING_MS:.0f} ms of server time before the first "
                "token. `trips` is the true network time in round trips: TTFT minus the server's "
                "own time (the simulator's witness) minus `proxy_time`. The other columns are "
                "`network_latency` minus the truth in ms, the largest by amount, for heads sent at "
                "once and heads sent with the first token. Above zero the network was blamed for "
                "server time; below zero network time was left unattributed. Congestion control: "
                f"{_congestion_control()}."
            ),
            "Without loss:",
            _handshakes(fresh),
            _network(clean),
            (
                f"With loss, {LOSSY_RTT_MS:.0f} ms round trip (a lost packet of the answer cannot "
                "be seen in the proxy's own socket):"
            ),
            _lossy(series),
        ),
        _goals(clean, fresh, series),
        notes=(f"The forwarder was late by (p50/p99 of each series, ms, per direction): {late}.",),
    )


def _congestion_control() -> str:
    """BBR spaces packets out, the others send what the window holds at once."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return "unknown"


def _handshakes(fresh: Sequence[Crossing]) -> str:
    rows = []
    for (protocol, rtt_ms), some in _grouped(fresh, lambda one: (one.protocol, one.rtt_ms)).items():
        row = [protocol, f"{rtt_ms:.0f}", str(len(some))]
        for value in ("tcp", "tls"):
            steps = [one.record.network_ms.get(value, 0.0) / rtt_ms for one in some]
            row.append(f"{median(steps):.3f}")
        row.append(f"{median(one.record.min_rtt_ms or 0 for one in some) / rtt_ms:.3f}")
        row.append(f"{median(one.record.rtt_ms or 0 for one in some) / rtt_ms:.3f}")
        rows.append(row)
    head = ("", "RTT ms", "new", "connect/RTT", "TLS/RTT", "min_rtt/RTT", "rtt/RTT")
    return table(head, rows)


def _network(clean: Sequence[Crossing]) -> str:
    rows = []
    for (protocol, rtt_ms, body), some in _grouped(
        clean, lambda one: (one.protocol, one.rtt_ms, one.body_kb)
    ).items():
        row = [protocol, f"{rtt_ms:.0f}", f"{body:,}"]
        for reused in (False, True):
            mine = [one for one in some if one.record.connection_reused is reused]
            row.append(f"{median(one.truth_ms / one.rtt_ms for one in mine):.2f}" if mine else "-")
            row += [
                _worst([one for one in mine if one.early_head is early]) for early in (True, False)
            ]
        rows.append(row)
    columns = ("trips", "early head", "late head")
    return table(
        (
            "",
            "RTT ms",
            "body kB",
            *(f"{use}: {one}" for use in ("new", "reused") for one in columns),
        ),
        rows,
    )


def _worst(some: Sequence[Crossing]) -> str:
    return f"{max((one.error_ms for one in some), key=abs):.1f}" if some else "-"


def _lossy(series: Sequence[Series]) -> str:
    rows = []
    for some in series:
        first = some.crossings[0]
        if not first.loss:
            continue
        counted, seen = _retransmits(some)
        errors = [one.error_ms for one in some.crossings]
        rows.append(
            (
                first.protocol,
                f"{100 * first.loss:.1f}%",
                str(len(some.crossings)),
                str(sum(some.link.dropped)),
                str(seen),
                str(counted),
                f"{median(errors):.2f}",
                f"{quantile(errors, 0.1):.2f}",
                f"{quantile(errors, 0.9):.2f}",
            )
        )
    head = (
        "",
        "loss",
        "requests",
        "lost packets",
        "sent again, seen on the link",
        "`retransmits` of all records",
        "error p50",
        "p10",
        "p90",
    )
    return table(head, rows)


def _retransmits(some: Series) -> tuple[int, int]:
    """Summed over records, and seen on the link for the same ports."""
    ports = {one.record.local_port for one in some.crossings}
    counted = sum(one.record.retransmits or 0 for one in some.crossings)
    return counted, sum(count for port, count in some.link.resent.items() if port in ports)


def _goals(
    clean: Sequence[Crossing], fresh: Sequence[Crossing], series: Sequence[Series]
) -> list[Goal]:
    def share(name: str, wanted: str, held: Sequence[bool]) -> Goal:
        return Goal(name, wanted, f"{sum(held)} of {len(held)}", all(held))

    counted, seen = (sum(each) for each in zip(*map(_retransmits, series), strict=True))
    large_new = [one for one in clean if one.body_kb > 4]
    return [
        share(
            "connect is one round trip",
            f"within {WITHIN:.0%} or {SLACK_MS:.0f} ms",
            [_near(one.record.network_ms.get("tcp", 0), one.rtt_ms) for one in fresh],
        ),
        share(
            "TLS 1.3 is one, TLS 1.2 two",
            f"within {WITHIN:.0%} or {TLS_SLACK_MS:.0f} ms",
            [
                _near(
                    one.record.network_ms.get("tls", 0),
                    TLS_TRIPS[one.protocol] * one.rtt_ms,
                    own_ms=TLS_SLACK_MS,
                )
                for one in fresh
                if one.protocol != "tcp"
            ],
        ),
        share(
            "`min_rtt_ms`",
            f"within {WITHIN:.0%} or {SLACK_MS:.0f} ms",
            [_near(one.record.min_rtt_ms or 0, one.rtt_ms) for one in clean],
        ),
        share(
            "`rtt_ms`, 4 kB (larger ones fill the forwarder's queue)",
            "the same",
            [
                _near(one.record.rtt_ms or 0, one.rtt_ms)
                for one in clean
                if one.body_kb == BODIES_KB[0]
            ],
        ),
        share(
            "`network_latency`, 4 kB",
            f"within {WITHIN:.0%} of a round trip or {SLACK_MS:.0f} ms",
            [one.right for one in clean if one.body_kb == BODIES_KB[0]],
        ),
        share("`network_latency`, larger bodies", "the same", [one.right for one in large_new]),
        share(
            "the truth lies within the bounds given",
            "always",
            [_bounded(one) for one in clean],
        ),
        share(
            "nothing in queue_delay",
            "null",
            [one.record.segments_ms["queue_delay"] is None for one in clean],
        ),
        Goal(
            "retransmits counted",
            f"the link saw {seen}",
            str(counted),
            abs(counted - seen) <= max(2, WITHIN * seen),
        ),
    ]


def _near(value: float, wanted: float, own_ms: float = SLACK_MS) -> bool:
    return abs(value - wanted) <= max(own_ms, WITHIN * wanted)


def _bounded(one: Crossing) -> bool:
    bounds = one.record.bounds_ms.get("network_latency", {})
    low, high = bounds.get("lower"), bounds.get("upper")
    if low is None or high is None:
        return False
    return low - SLACK_MS <= one.truth_ms <= high + SLACK_MS


def _grouped(
    items: Iterable[Crossing], key: Callable[[Crossing], Key]
) -> dict[Key, list[Crossing]]:
    groups: dict[Key, list[Crossing]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
