"""A bounded number of generations at once; the others really wait, first come first served."""

from collections import deque
from collections.abc import Callable


class Slots:
    """`limit` slots; None is as many as are asked for. `changed` is called at every change."""

    def __init__(
        self, limit: int | None = None, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.limit = limit
        self._changed = changed
        self.busy = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def take(self, later: Callable[[], None]) -> bool:
        """Whether a slot was free; if none was, `later` is called when it is ours."""
        if self.limit is None or self.busy < self.limit:
            self.busy += 1
            self._changed()
            return True
        self._waiting.append(later)
        self._changed()
        return False

    def give_up(self, later: Callable[[], None]) -> None:
        """Wait no longer."""
        self._waiting.remove(later)
        self._changed()

    def release(self) -> None:
        """Hand a slot back; it goes to whoever waits longest."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self.busy -= 1
        self._changed()
