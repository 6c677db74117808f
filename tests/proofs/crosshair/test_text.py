"""The text of a manager becomes a class, unmodified or with one change."""

import ast
from pathlib import Path

import pytest

from cacheproof.proofs.crosshair import mutants, text
from cacheproof.proofs.crosshair.text import ManagerText, Unloadable
from cacheproof.reference.encoder_cache import EncoderCacheManager

MODULE = """
from collections import OrderedDict
from vllm.logger import init_logger
from vllm.v1.request import Request

logger = init_logger(__name__)


class EncoderCacheManager:
    def __init__(self, cache_size: int) -> None:
        self.num_free_slots = cache_size
        self.freeable: OrderedDict[str, int] = OrderedDict()

    def allocate(self, request: Request, input_id: int) -> None:
        self.num_free_slots -= 1
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / text.MODULE_OF_RELEASES
    path.parent.mkdir(parents=True)
    path.write_text(MODULE)
    return tmp_path


def release(tree: Path) -> ManagerText:
    found = text.of_release("9.9.9", tree, text.ENCODER_CACHE)
    assert found is not None
    return found


def test_a_class_of_a_release_is_loaded_without_the_release(tree: Path) -> None:
    manager = release(tree).load()(3)
    manager.allocate(None, 0)
    assert manager.num_free_slots == 2


def test_a_change_is_made_to_what_is_loaded_and_to_nothing_else(tree: Path) -> None:
    of_release = release(tree)
    changed = of_release.load(mutants.without_update("num_free_slots", ast.Sub))(3)
    changed.allocate(None, 0)
    assert changed.num_free_slots == 3
    test_a_class_of_a_release_is_loaded_without_the_release(tree)


def test_a_change_that_finds_nothing_is_an_error(tree: Path) -> None:
    with pytest.raises(ValueError, match="nothing of that kind"):
        release(tree).load(mutants.without_update("num_freeable_slots", ast.Sub))
    with pytest.raises(ValueError, match="no method free"):
        release(tree).load(mutants.beginning("free", "return"))


def test_a_method_that_needs_what_is_not_loaded_is_refused(tree: Path) -> None:
    path = tree / text.MODULE_OF_RELEASES
    path.write_text(MODULE + "        logger.info('allocated')\n")
    with pytest.raises(Unloadable, match="needs logger, which is not loaded"):
        release(tree).load()


def test_a_release_without_the_class_has_no_text_of_it(tree: Path) -> None:
    assert text.of_release("9.9.9", tree, text.ENCODER_DECODER_CACHE) is None


def test_a_missing_class_names_the_file(tree: Path) -> None:
    found = release(tree)
    (tree / text.MODULE_OF_RELEASES).write_text("")
    with pytest.raises(Unloadable, match=r"encoder_cache_manager\.py: no class"):
        found.load()


def test_the_digest_is_of_the_class_and_not_of_what_stands_beside_it(tree: Path) -> None:
    digest = release(tree).digest()
    path = tree / text.MODULE_OF_RELEASES
    path.write_text(MODULE + "\n\ndef beside() -> None: ...\n")
    assert release(tree).digest() == digest
    path.write_text(MODULE.replace("-= 1", "-= 2"))
    assert release(tree).digest() != digest


def test_the_reference_is_loaded_from_its_own_file() -> None:
    loaded = text.of_reference(text.ENCODER_CACHE).load()
    assert loaded is not EncoderCacheManager
    assert vars(loaded(3)).keys() == vars(EncoderCacheManager(3)).keys()


@pytest.mark.parametrize("subject", [text.ENCODER_CACHE, text.ENCODER_DECODER_CACHE])
def test_every_mutant_fits_the_reference(subject: str) -> None:
    of_subject = {
        text.ENCODER_CACHE: mutants.OF_ENCODER_CACHE,
        text.ENCODER_DECODER_CACHE: mutants.OF_ENCODER_DECODER_CACHE,
    }
    for mutant in of_subject[subject]:
        text.of_reference(subject).load(mutant.change)
