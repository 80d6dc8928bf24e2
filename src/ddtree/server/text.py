"""Text out of token ids, as they come: no broken character, no stop string."""

from collections.abc import Sequence
from typing import Final, Protocol

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class Decoder(Protocol):
    """What this module needs of a transformers tokenizer."""

    def decode(self, token_ids: Sequence[int], **kwargs: object) -> str:
        """Text of `token_ids`."""
        ...


class Detokenizer:
    """Turns token ids into text piece by piece; a character comes out when it is complete.

    Special tokens give no text. An incomplete character at the very end is never emitted: the
    ids carry it.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._window: list[int] = []
        self._known = 0

    def push(self, token: int) -> str:
        """Text that `token` completes, often empty within a multi-token character."""
        self._window.append(token)
        known = self._decode(self._window[: self._known])
        text = self._decode(self._window)
        if text.endswith(REPLACEMENT) or len(text) <= len(known):
            return ""
        # The last emitted piece stays in the window: some tokenizers drop a leading space,
        # so a piece has its true text only after another one.
        self._window = self._window[self._known :]
        self._known = len(self._window)
        return text[len(known) :]

    def _decode(self, tokens: Sequence[int]) -> str:
        return self._decoder.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


class OutputText:
    """Visible text of one answer: cut before the first stop string, which is never shown.

    While the answer grows, an end that may still become a stop string is held back.
    """

    def __init__(self, decoder: Decoder, stops: Sequence[str] = ()) -> None:
        self._detokenizer = Detokenizer(decoder)
        self._stops = tuple(stops)
        self._text = ""
        self._shown = 0

    def push(self, token: int) -> str | None:
        """Add `token`; return the stop string that its text completes, if any."""
        piece = self._detokenizer.push(token)
        if not piece:
            return None
        searched = self._shown
        self._text += piece
        found = [(self._text.find(stop, searched), stop) for stop in self._stops]
        hits = [(at, stop) for at, stop in found if at >= 0]
        if hits:
            at, stop = min(hits)
            self._text = self._text[:at]
            self._shown = at
            return stop
        self._shown = len(self._text) - self._held()
        return None

    def visible(self, finished: bool) -> str:
        """Text to show; when `finished`, what was held back comes too."""
        return self._text if finished else self._text[: self._shown]

    def _held(self) -> int:
        """Length of the longest end of the text that starts a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._text)), 0, -1):
            if any(stop.startswith(self._text[-length:]) for stop in self._stops):
                return length
        return 0
