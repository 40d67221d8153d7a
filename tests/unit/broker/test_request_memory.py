from functools import partial

from millstream.broker.request_memory import RequestMemory


def test_memory_is_lent_up_to_the_limit_and_not_one_byte_more() -> None:
    memory = RequestMemory(100)
    assert memory.take(60)
    assert memory.take(40)
    assert not memory.take(1)
    memory.give_back(40)
    assert memory.take(40)
    assert memory.used_bytes == 100


def test_a_request_larger_than_the_whole_is_let_in_alone() -> None:
    memory = RequestMemory(100)
    assert memory.take(500)
    assert not memory.take(1)
    memory.give_back(500)
    assert memory.take(1)
    assert not memory.take(500)


def test_whoever_waits_is_called_once_when_something_is_given_back() -> None:
    memory = RequestMemory(100)
    memory.take(100)
    calls: list[str] = []
    for name in "ab":
        memory.when_free(partial(calls.append, name))
    memory.give_back(10)
    memory.give_back(10)
    assert calls == ["a", "b"]


def test_one_that_finds_no_room_again_waits_for_the_next() -> None:
    memory = RequestMemory(100)
    memory.take(100)
    calls: list[bool] = []

    def retry() -> None:
        calls.append(memory.take(90))
        if not calls[-1]:
            memory.when_free(retry)

    memory.when_free(retry)
    memory.give_back(50)
    memory.give_back(50)
    assert calls == [False, True]
    assert memory.used_bytes == 90
