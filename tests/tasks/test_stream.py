"""The endless shuffled stream."""

from specrl.tasks.stream import shuffled_indices


def test_an_epoch_holds_every_index_once():
    assert sorted(shuffled_indices(7, 0, 0, 7)) == list(range(7))
    assert sorted(shuffled_indices(7, 0, 14, 7)) == list(range(7))


def test_the_stream_is_pure_in_the_cursor():
    whole = shuffled_indices(7, 3, 0, 40)
    parts = [i for start in range(0, 40, 5) for i in shuffled_indices(7, 3, start, 5)]
    assert parts == whole


def test_epochs_and_seeds_have_orders_of_their_own():
    assert shuffled_indices(50, 0, 0, 50) != shuffled_indices(50, 0, 50, 50)
    assert shuffled_indices(50, 0, 0, 50) != shuffled_indices(50, 1, 0, 50)
