"""A made-up service: how long a request takes depends on two constants."""

WORKERS = 4
BATCH = 64


def latency_ms(load: float) -> float:
    return 20.0 + 8.0 * abs(WORKERS - 11) + 0.1 * abs(BATCH - 40) + load
