"""The cycle collector waits for the end of a cell."""

import gc

import pytest

from ddtree_bench.client.calm import no_collection


def test_nothing_is_collected_within_the_block():
    """The collector is off inside and on again after it, also after an error."""
    with no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), no_collection():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    """The block puts back what it found."""
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
