import pytest
import torch

from phys_pipeline.errors import ModelError
from phys_pipeline.evaluation.metrics.chunks import in_chunks


def test_order_is_kept_and_out_of_memory_halves_the_chunk():
    sizes = []

    def double(items):
        sizes.append(len(items))
        if len(items) > 3:
            raise torch.cuda.OutOfMemoryError("full")
        return [2 * item for item in items]

    assert in_chunks(double, list(range(10)), 8) == [2 * item for item in range(10)]
    assert sizes == [8, 4, 2, 2, 2, 2, 2]


def test_one_item_that_does_not_fit_is_an_error():
    def full(items):
        raise torch.cuda.OutOfMemoryError("full")

    with pytest.raises(ModelError, match="out of memory with one item"):
        in_chunks(full, [1, 2], 2)


def test_nothing_gives_nothing():
    assert in_chunks(lambda items: items, [], 4) == []
