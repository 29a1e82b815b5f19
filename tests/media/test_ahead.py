import threading

import pytest

from phys_pipeline.media.ahead import made_ahead


@pytest.mark.parametrize("most", [1, 3, 50])
def test_the_same_items_in_the_same_order(most):
    assert list(made_ahead(iter(range(20)), most)) == list(range(20))
    assert list(made_ahead(iter(()), most)) == []


def test_items_are_made_elsewhere_and_no_more_than_allowed():
    made, threads = [], set()

    def items():
        for number in range(100):
            made.append(number)
            threads.add(threading.current_thread())
            yield number

    coming = made_ahead(items(), 4)
    assert next(coming) == 0
    assert len(made) <= 6
    coming.close()
    assert len(made) <= 6
    assert threading.current_thread() not in threads and not any(thread.is_alive() for thread in threads)


def test_an_error_comes_at_its_place():
    def items():
        yield 1
        yield 2
        raise KeyError("broken")

    coming = made_ahead(items(), 8)
    assert [next(coming), next(coming)] == [1, 2]
    with pytest.raises(KeyError, match="broken"):
        next(coming)
