"""The random numbers of tensor/philox.h, of arrays of counters, from which synthetic data are made."""
import numpy as np


def philox(key, c0, c1, c2, c3):
    """Four arrays of 32-bit words, each as uint64. Counters broadcast to each other."""
    shape = np.broadcast(c0, c1, c2, c3).shape
    c = [np.broadcast_to(np.asarray(x, np.uint64), shape).copy() for x in (c0, c1, c2, c3)]
    k0, k1, low = key & 0xFFFFFFFF, key >> 32, np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def key_of(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001B3 % 2**64
    return h


def below(bits, n):
    """Words as integers below n (random_below)."""
    return ((bits * np.uint64(n)) >> np.uint64(32)).astype(np.int64)
