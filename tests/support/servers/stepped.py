"""A replay server whose page a test chooses."""

import threading

from llm_serving_simulator.replay import Recording, ReplayServer


class _Stepped:
    """Pages as a test chooses them, as recorded. With `advance`, every GET shows the next page, the last one stays."""

    def __init__(self, recording: Recording, advance: bool = False) -> None:
        self._recording = recording
        self._numbers = tuple(recording.pages)
        self._advance = advance
        self._index = 0
        self._lock = threading.Lock()

    def show(self, number: int) -> None:
        """Show page `number` from the next GET on. Raises KeyError where the recording has no such page."""
        if number not in self._recording.pages:
            raise KeyError(number)
        with self._lock:
            self._index = self._numbers.index(number)

    def body(self) -> bytes:
        """The page chosen; then one further, where it advances."""
        with self._lock:
            number = self._numbers[self._index]
            if self._advance:
                self._index = min(self._index + 1, len(self._numbers) - 1)
        return self._recording.pages[number]


class SteppedServer(ReplayServer):
    """A replay server whose page the test chooses: `show(n)`; with `advance`, every GET moves one page on."""

    def __init__(self, recording: Recording, advance: bool = False, host: str = "127.0.0.1", port: int = 0) -> None:
        self._stepped = _Stepped(recording, advance)
        super().__init__(self._stepped, recording, host, port)

    def show(self, number: int) -> None:
        """Show page `number` from the next GET on. Raises KeyError where the recording has no such page."""
        self._stepped.show(number)
