"""Plans by admission: when each request starts decides all, as nobody is evicted or paused."""
