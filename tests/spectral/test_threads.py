import threading

import pytest
import torch

from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import analyze
from phys_pipeline.spectral.threads import one_torch_thread


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_one_thread_meanwhile_and_the_former_number_afterwards(two_threads):
    with one_torch_thread():
        assert torch.get_num_threads() == 1
        with one_torch_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1  # leaving the inner one gives nothing back yet
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyError), one_torch_thread():
        raise KeyError
    assert torch.get_num_threads() == 2


def test_a_report_leaves_the_number_as_it_was(two_threads):
    analyze(textured_clip(velocity=(1.0, 0.0)).video, 8)
    assert torch.get_num_threads() == 2


def test_several_at_once_leave_the_number_as_it_was(two_threads):
    inside, leave, found = threading.Event(), threading.Event(), []

    def other() -> None:
        with one_torch_thread():
            found.append(torch.get_num_threads())
            inside.set()
            leave.wait(10)
        found.append(torch.get_num_threads())

    with one_torch_thread():
        second = threading.Thread(target=other)
        second.start()
        assert inside.wait(10)
    assert torch.get_num_threads() == 2
    leave.set()
    second.join(10)
    assert found == [1, 2]
    assert torch.get_num_threads() == 2
