"""Primes: an exact test below 3.1e23 and the next prime above a number."""

_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def is_prime(number: int) -> bool:
    """Whether `number` is prime.

    Miller-Rabin with the first twelve primes as bases, which no composite below 3.1e23 survives.
    """
    if number < 2:
        return False
    for base in _BASES:
        if number % base == 0:
            return number == base
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, base, odd, twos) for base in _BASES)


def next_prime(number: int) -> int:
    """Smallest prime above `number`."""
    candidate = max(number, 1) + 1
    while not is_prime(candidate):
        candidate += 1
    return candidate


def _passes(number: int, base: int, odd: int, twos: int) -> bool:
    """Whether `base` fails to prove that `number` is composite."""
    power = pow(base, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
