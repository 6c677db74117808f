"""Processed media in shared memory, as they are to be and as releases have them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheproof.reference.processor_cache import Processed
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.front_end import FrontEndSemantics
from cacheproof.reference.shared_media import Handle, Moved, NoRoom, Ring, SentShared, SharedMedia

CHUNK = 20
"""Bytes of a chunk with an item of eight."""


def of(release: str) -> FrontEndSemantics:
    return Semantics.of_vllm(release).front_end


def store(release: str | None, workers: int = 1, chunks: int = 1) -> SharedMedia:
    return SharedMedia(
        CHUNK * chunks, CHUNK, workers, FrontEndSemantics() if release is None else of(release)
    )


def send(to: SharedMedia, *names: str) -> list[SentShared]:
    return to.send(names, lambda at: Processed(names[at], 8))


class TestRing:
    def test_chunks_are_written_in_one_piece_behind_each_other_and_from_the_start_again(
        self,
    ) -> None:
        ring = Ring(30)
        assert ring.write(b"abcd") == Handle(0, 0)
        assert ring.write(b"efgh") == Handle(12, 1)
        with pytest.raises(NoRoom):
            ring.write(b"ijkl")
        assert ring.give_back(lambda chunk: True, 1) == [0]
        assert ring.write(b"ijkl") == Handle(30, 2)
        assert ring.read(Handle(12, 1)) == b"efgh"
        with pytest.raises(Moved):
            ring.read(Handle(0, 0))

    def test_none_behind_one_that_is_not_free_is_given_back(self) -> None:
        ring = Ring(100)
        for data in (b"a", b"b", b"c"):
            ring.write(data)
        assert ring.give_back(lambda chunk: chunk != 1, 100) == [0]
        assert list(ring.chunks) == [1, 2]

    @pytest.mark.parametrize(("numbers_on", "found"), [(True, None), (False, b"efgh")])
    def test_a_number_that_is_given_again_passes_for_the_first(
        self, numbers_on: bool, found: bytes | None
    ) -> None:
        ring = Ring(30, numbers_on=numbers_on)
        handle = ring.write(b"abcd")
        ring.clear()
        ring.write(b"efgh")
        if found is None:
            with pytest.raises(Moved):
                ring.read(handle)
        else:
            assert ring.read(handle) == found


@given(
    st.lists(st.lists(st.sampled_from("vwxyz"), min_size=1, max_size=3), max_size=12),
    st.integers(1, 3),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_in_whatever_order_workers_read_each_finds_its_own_and_all_is_given_back(
    requests: list[list[str]], workers: int, chunks: int, random: object
) -> None:
    media = store(None, workers, chunks)
    sent = [(names, send(media, *names)) for names in requests]
    reads = [one for one in sent for _ in range(workers)]
    random.shuffle(reads)  # type: ignore[attr-defined]
    for names, message in reads:
        assert media.receive(message) == names
    assert all(read == due for _, read, due in media.chunks())


def test_a_reset_leaves_what_is_to_be_read() -> None:
    media = store(None)
    late = send(media, "x")
    media.clear()
    assert send(media, "y")[0].handle is None
    assert media.receive(late) == ["x"]
    assert send(media, "z")[0].handle is not None


@pytest.mark.parametrize(("release", "says"), [("0.31.0", ["y"]), ("0.32.0", None)])
def test_after_a_reset_of_a_release(release: str, says: list[str] | None) -> None:
    media = store(release)
    late = send(media, "x")
    media.clear()
    send(media, "y")
    if says is None:
        with pytest.raises(Moved):
            media.receive(late)
    else:
        assert media.receive(late) == says


@pytest.mark.parametrize(("release", "read"), [("0.11.2", 4), ("0.31.0", 6), ("0.32.0", 4)])
def test_an_item_that_a_request_has_twice_is_read_twice_by_each_of_two_workers(
    release: str, read: int
) -> None:
    media = store(release, workers=2)
    message = send(media, "x", "x")
    for _ in range(2):
        assert media.receive(message) == ["x", "x"]
    assert media.chunks() == [("x", read, 4)]


@pytest.mark.parametrize("release", [None, "0.33.0"])
def test_a_message_that_is_withdrawn(release: str | None) -> None:
    media = store(release)
    media.withdraw(send(media, "x"))
    assert (send(media, "y")[0].handle is not None) is (release is None)


@pytest.mark.parametrize("release", [one for one in MODELLED if one not in ("0.10.2",)])
def test_only_0_11_0_counts_the_last_chunk_that_is_given_back_as_in_use(release: str) -> None:
    media = store(release, chunks=3)
    for name in "xyz":
        media.receive(send(media, name))
    media.receive(send(media, "v"))
    in_use = sum(CHUNK for _ in media.ring.chunks)
    assert (media.ring.end - media.ring.start == in_use) is (release != "0.11.0")
