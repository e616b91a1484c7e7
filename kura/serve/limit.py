"""How many requests one caller may send to this process."""

import math
import time

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from kura.errors import TooManyRequests


class RateLimit:
    """So many requests a minute for each caller, counted in this process alone."""

    def __init__(self, a_minute: int) -> None:
        self._item = RateLimitItemPerMinute(a_minute)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    def count(self, caller: str) -> None:
        """Count a request.

        Raises:
            TooManyRequests: if it is one too many; that one does not count.
        """
        if not self._limiter.hit(self._item, caller):
            free_at = self._limiter.get_window_stats(self._item, caller).reset_time
            raise TooManyRequests(max(1, math.ceil(free_at - time.time())))
