"""Side decoders: incremental, bounded, and silent after a fault."""

import gzip
import itertools
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import cache

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.serve.decode import CORRUPT, TOO_LARGE, Decoder, make_decoder

TEXT = 'data: {"delta":"grüß dich"}\n\n'.encode() * 3


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


ENCODERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"x-gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"br": brotli.compress,
    b"zstd": zstandard.compress,
}
CODINGS = pytest.mark.parametrize("coding", ENCODERS, ids=bytes.decode)


def decoder(coding: bytes, limit: int = 1 << 20, *, whole: bool = True) -> Decoder:
    made = make_decoder(coding, limit, whole=whole)
    assert made is not None
    return made


@cache
def bomb(coding: bytes, size: int = 128 << 20) -> bytes:
    """`size` zeros, compressed piece by piece."""
    zeros = bytes(1 << 20)
    if coding == b"br":
        packer = brotli.Compressor(quality=1)
        pieces = [packer.process(zeros) for _ in range(size >> 20)]
        return b"".join([*pieces, packer.finish()])
    if coding == b"zstd":
        writer = zstandard.ZstdCompressor(level=1).compressobj()
        return b"".join(writer.compress(zeros) for _ in range(size >> 20)) + writer.flush()
    squeezer = zlib.compressobj(1, wbits=15 if coding == b"deflate" else 31)
    return b"".join(squeezer.compress(zeros) for _ in range(size >> 20)) + squeezer.flush()


@CODINGS
def test_whole_body(coding: bytes) -> None:
    """Names in any case."""
    packed = ENCODERS[coding](TEXT)

    assert decoder(coding).feed(packed) == TEXT
    assert decoder(coding.upper() + b" ").feed(packed) == TEXT


@CODINGS
@given(places=st.lists(st.integers(0, 200), max_size=8))
def test_any_chunking_same_text(coding: bytes, places: list[int]) -> None:
    """Also one byte per read."""
    packed = ENCODERS[coding](TEXT)
    cuts = [0, *sorted(min(place, len(packed)) for place in places), len(packed)]
    undo, bytewise = decoder(coding), decoder(coding)

    assert b"".join(undo.feed(packed[a:b]) for a, b in itertools.pairwise(cuts)) == TEXT
    assert b"".join(bytewise.feed(bytes([byte])) for byte in packed) == TEXT


def flushed_pieces(coding: bytes, pieces: list[bytes]) -> Iterator[bytes]:
    """Each piece compressed and flushed on its own, as servers do for streams."""
    if coding == b"br":
        packer = brotli.Compressor()
        for piece in pieces:
            yield packer.process(piece) + packer.flush()
    elif coding == b"zstd":
        writer = zstandard.ZstdCompressor().compressobj()
        for piece in pieces:
            yield writer.compress(piece) + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    else:
        squeezer = zlib.compressobj(wbits=15 if coding == b"deflate" else 31)
        for piece in pieces:
            yield squeezer.compress(piece) + squeezer.flush(zlib.Z_SYNC_FLUSH)


@CODINGS
def test_each_flushed_event_comes_out_with_its_read(coding: bytes) -> None:
    """Otherwise a stamp would belong to a later event."""
    pieces = ["data: grü".encode()[:-1], "ü\n\n".encode()[1:], b"data: 2\n\n", b"data: 3\n\n"]
    undo = decoder(coding, whole=False)

    assert pieces == [undo.feed(packed) for packed in flushed_pieces(coding, pieces)]


def test_raw_deflate() -> None:
    """Some servers leave the zlib wrapper out; the first two bytes tell."""
    packed = raw_deflate(TEXT)
    undo = decoder(b"deflate")

    assert decoder(b"deflate").feed(packed) == TEXT
    assert undo.feed(packed[:1]) + undo.feed(packed[1:]) == TEXT


def test_stacked_codings() -> None:
    """Listed in the order of application, so undone from the last one."""
    packed = zstandard.compress(gzip.compress(TEXT))

    assert decoder(b"gzip, zstd").feed(packed) == TEXT
    assert decoder(b"gzip,identity , zstd").feed(packed) == TEXT


def test_several_members_are_one_body() -> None:
    """gzip members and zstd frames that follow one another; zeros behind gzip are padding."""
    members = gzip.compress(b"a") + gzip.compress(b"b") + bytes(9)

    assert decoder(b"gzip").feed(members) == b"ab"
    bytewise = decoder(b"gzip")
    assert b"".join(bytewise.feed(bytes([byte])) for byte in members) == b"ab"
    assert decoder(b"zstd").feed(zstandard.compress(b"a") + zstandard.compress(b"b")) == b"ab"


@pytest.mark.parametrize("coding", [b"", b"identity"])
def test_nothing_to_undo(coding: bytes) -> None:
    """The bytes themselves."""
    assert decoder(coding).feed(TEXT) == TEXT


@pytest.mark.parametrize(
    "coding", [b"compress", b"gzip, aws-chunked", b"gzip,gzip,gzip,gzip", b"\xff"]
)
def test_unsupported(coding: bytes) -> None:
    """Unknown names, and stacks that nobody sends."""
    assert make_decoder(coding, 100) is None


@CODINGS
def test_corrupt_input_is_the_end(coding: bytes) -> None:
    """A fault is kept; later input gives nothing, and no exception comes out."""
    undo = decoder(coding)
    undo.feed(b"\xffnot compressed at all" * 9)

    assert undo.fault == CORRUPT
    assert undo.feed(ENCODERS[coding](TEXT)) == b""


@CODINGS
def test_a_cut_body_gives_what_there_is(coding: bytes) -> None:
    """A missing end is no fault."""
    body = bytes(range(256)) * 64
    undo = decoder(coding)
    given_out = undo.feed(ENCODERS[coding](body)[:-9])

    assert undo.fault is None
    assert body.startswith(given_out)


@CODINGS
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "per read"])
def test_a_bomb_stays_small(coding: bytes, whole: bool) -> None:
    """128 MB of zeros in one read: nothing comes out, and nothing near that size is made."""
    packed = bomb(coding)
    undo = decoder(coding, limit=1 << 20, whole=whole)

    tracemalloc.start()
    try:
        assert undo.feed(packed) == b""
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert undo.fault == TOO_LARGE


def test_the_bound_is_exact_and_over_all_reads() -> None:
    """Of the whole output, unless the body is a stream."""
    packed = [gzip.compress(b"x" * 600), gzip.compress(b"y" * 600)]
    whole, stream = decoder(b"gzip", 1000), decoder(b"gzip", 1000, whole=False)

    assert [len(whole.feed(piece)) for piece in packed] == [600, 0]
    assert whole.fault == TOO_LARGE
    assert [len(stream.feed(piece)) for piece in packed] == [600, 600]
    assert len(decoder(b"gzip", 600).feed(packed[0])) == 600


@CODINGS
@given(garbage=st.lists(st.binary(max_size=40), max_size=5))
def test_garbage_never_raises(coding: bytes, garbage: list[bytes]) -> None:
    """Alone and behind a good beginning."""
    for start in (b"", ENCODERS[coding](TEXT)[:20]):
        undo = decoder(coding, 500)
        for piece in (start, *garbage):
            assert len(undo.feed(piece)) <= 500
