"""Stop strings end a text at the same place, however it is cut into pieces."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal.server.stop_strings import StopFilter


def first_stop(text: str, stops: list[str]) -> int | None:
    """Return where the text ends: at the stop string that is complete in the shortest beginning of the text."""
    for end in range(1, len(text) + 1):
        begins = [end - len(s) for s in stops if text[:end].endswith(s)]
        if begins:
            return min(begins)
    return None


@settings(max_examples=60, deadline=None)
@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_pieces_do_not_matter(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    filtered = StopFilter(stops)
    found = ""
    for piece in pieces:
        found += filtered.push(piece)
        assert text.startswith(found)
    found += filtered.finish()
    end = first_stop(text, stops)
    assert found == text[:end]
    assert filtered.stopped is (end is not None)
