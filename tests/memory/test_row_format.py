"""Packed rows: golden bytes both ways, error bounds, refusals."""

import pytest
import torch

from engram_lab.memory.row_format import pack_rows, unpack_rows
from tests.memory import golden

CASE = golden.load("module_v41")["row_quant"]


def test_bytes_of_the_golden_rows():
    payload, scales = pack_rows(golden.tensor(CASE["source"]))
    assert payload.tolist() == CASE["payload_bytes"]
    assert scales.tolist() == CASE["scale_bytes"]


@pytest.mark.parametrize(
    ("dtype", "column"),
    [(torch.float32, "dequant_f32"), (torch.bfloat16, "dequant_bf16_as_f32")],
)
def test_rows_of_the_golden_bytes(dtype, column):
    bytes_of = [
        torch.tensor(CASE[f"{name}_bytes"], dtype=torch.uint8) for name in ("payload", "scale")
    ]
    rows = unpack_rows(*bytes_of, dtype=dtype)
    assert rows.dtype == dtype
    assert torch.equal(rows.float(), golden.tensor(CASE[column]))


def test_the_error_is_a_sixteenth_of_a_number_or_the_smallest_step_of_its_block():
    rows = torch.randn(50, 64) * torch.logspace(-6, 6, 50)[:, None]
    payload, scales = pack_rows(rows)
    found = unpack_rows(payload, scales)
    step = torch.exp2(scales.float() - 127).repeat_interleave(32, dim=1) * 2.0**-9
    assert ((found - rows).abs() <= torch.maximum(rows.abs() / 16, step)).all()


def test_packing_what_was_unpacked_changes_nothing():
    payload, scales = pack_rows(torch.randn(20, 96))
    again = unpack_rows(*pack_rows(unpack_rows(payload, scales)))
    assert torch.equal(again, unpack_rows(payload, scales))


def test_a_row_of_zeros_stays_zero():
    assert torch.equal(unpack_rows(*pack_rows(torch.zeros(2, 32))), torch.zeros(2, 32))


def test_widths_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="multiple of 32; got 48"):
        pack_rows(torch.zeros(1, 48))
    with pytest.raises(ValueError, match="64 numbers need 2 scales, one per 32; got 1"):
        unpack_rows(torch.zeros(1, 64, dtype=torch.uint8), torch.zeros(1, 1, dtype=torch.uint8))
