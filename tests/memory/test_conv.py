"""The short convolution against `torch.nn.functional.conv1d` and across segments."""

import torch
import torch.nn.functional as F
from einops import rearrange

from engram_lab.memory.conv import rms_norm, short_conv


def test_equals_a_dilated_depthwise_conv1d():
    window, weight = torch.randn(2, 9 + 5, 2, 3), torch.randn(2, 3, 4)
    channels = rearrange(window, "b t m h -> b (m h) t")
    expected = F.conv1d(channels, weight.reshape(6, 1, 4), groups=6, dilation=3)
    found = rearrange(short_conv(window, weight, dilation=3), "b t m h -> b (m h) t")
    torch.testing.assert_close(found, expected)


def test_other_segments_count_as_zero():
    window, weight = torch.randn(1, 2 + 6, 1, 3), torch.randn(1, 3, 3)
    segments = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1]])
    found = short_conv(window, weight, dilation=1, segments=segments)
    alone = short_conv(torch.cat([torch.zeros(1, 2, 1, 3), window[:, 5:]], 1), weight, dilation=1)
    torch.testing.assert_close(found[:, 3:], alone)
    assert torch.equal(found[:, :3], short_conv(window, weight, dilation=1)[:, :3])


def test_one_tap_looks_nowhere():
    window, weight = torch.randn(1, 4, 1, 3), torch.randn(1, 3, 1)
    assert torch.equal(short_conv(window, weight, dilation=3), window * weight[..., 0])


def test_rms_norm_equals_that_of_torch():
    values, gain = torch.randn(2, 3, 8), torch.randn(8)
    torch.testing.assert_close(
        rms_norm(values, gain, eps=1e-5), F.rms_norm(values, (8,), gain, eps=1e-5)
    )
