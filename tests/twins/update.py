"""The memory's update position by position, in float64 and plain NumPy loops."""

import numpy as np


def update(hidden, memory, weights, *, kernel, dilation, eps, conv_eps):
    """Gated value plus convolution of one sequence.

    hidden [seq, branch, width]; memory [seq, mem]; weights: key [branch, width, mem], value [width,
    mem], gain and conv_gain [branch, width], taps [branch, width, kernel]; no bias, no mask.
    """
    seq, branches, width = hidden.shape
    gated = np.zeros_like(hidden)
    for t in range(seq):
        value = weights["value"] @ memory[t]
        for b in range(branches):
            key = weights["key"][b] @ memory[t]
            score = np.sum(rms(hidden[t, b], eps) * rms(key, eps) * weights["gain"][b]) / width**0.5
            root = np.sign(score) * max(abs(score), 1e-6) ** 0.5
            gated[t, b] = value / (1 + np.exp(-root))
    result = gated.copy()
    for t in range(seq):
        for b in range(branches):
            total = np.zeros(width)
            for tap in range(kernel):
                at = t - (kernel - 1 - tap) * dilation
                if at >= 0:
                    normed = rms(gated[at, b], conv_eps) * weights["conv_gain"][b]
                    total += weights["taps"][b, :, tap] * normed
            result[t, b] += total / (1 + np.exp(-total))
    return result


def rms(values, eps):
    return values / np.sqrt(np.mean(values**2) + eps)
