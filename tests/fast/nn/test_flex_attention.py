"""Masks of flex_attention by blocks."""

import pytest

import wisp
from wisp.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention


def window(b, h, q, kv):
    return (q >= kv) & (q - kv < 5)


def test_blocks_say_what_is_seen_in_part_and_whole():
    mask = create_block_mask(lambda b, h, q, kv: q >= kv, 2, None, 10, 12, BLOCK_SIZE=(4, 2))
    assert mask.shape == (2, 1, 10, 12) and mask.numel() == 240
    assert mask.kv_num_blocks.tolist() == [[[2, 2, 5]]] * 2 and mask.full_kv_num_blocks.tolist() == [[[0, 2, 0]]] * 2
    assert mask.to_dense()[0, 0].tolist() == [[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]]
    assert mask.kv_indices[0, 0, 1].tolist() == [2, 3, 0, 1, 4, 5] and mask.kv_indices.dtype == wisp.int32
    assert mask.q_num_blocks[0, 0].tolist() == [2, 2, 2, 2, 1, 0] and mask.full_q_num_blocks[0, 0].tolist() == [1, 1, 0, 0, 0, 0]
    assert mask.sparsity() == pytest.approx(100 * (1 - 22 * 8 / 240))
    assert "BLOCK_SIZE=(4, 2)" in repr(mask) and len(mask.as_tuple()) == 17
    assert str(mask).endswith(
        "sparsity=26.67%, \n(0, 0)\n████        \n████████    \n██████████  \n\n(1, 0)\n████        \n████████    \n██████████\n)"
    )


def test_masks_are_sliced_and_cropped():
    mask = create_block_mask(window, 2, 3, 16, 16, BLOCK_SIZE=4)
    part = mask[-1, :, 1:3]
    assert part.kv_num_blocks.shape == (1, 3, 2) and wisp.equal(part.kv_indices, mask.kv_indices[1:, :, 1:3])
    assert mask._adjust(8, 8).shape == (2, 3, 8, 8) and mask._adjust(8, 8).to_dense()[0, 0].tolist() == [[1, 0], [1, 1]]
    x = wisp.rand(1, 3, 16, 4)
    with pytest.raises(RuntimeError, match="sliced BlockMask"):
        flex_attention(x, x, x, block_mask=mask[0])
    with pytest.raises(ValueError, match="smaller length than you're using it for"):
        flex_attention(x, x, x, block_mask=create_block_mask(window, None, None, 8, 8))
    with pytest.raises(ValueError, match="larger length than you're using it for"):
        flex_attention(x, x, x, block_mask=create_block_mask(window, None, None, 32, 32))


def test_a_mask_made_of_blocks_hides_the_others():
    x = wisp.randn(1, 1, 6, 4)
    counts, columns = wisp.tensor([[[1, 2, 1]]]).int(), wisp.tensor([[[[0, 1, 2], [0, 1, 2], [2, 0, 1]]]]).int()
    mask = BlockMask.from_kv_blocks(counts, columns, BLOCK_SIZE=2)
    seen = wisp.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1]]).bool().repeat_interleave(2, 0).repeat_interleave(2, 1)
    wanted = wisp.nn.functional.scaled_dot_product_attention(x, x, x, seen)
    assert (flex_attention(x, x, x, block_mask=mask) - wanted).abs().max() < 1e-6
    # the function says more within the blocks that are seen in part, and nothing within those that are seen whole
    mask = BlockMask.from_kv_blocks(counts, columns, *[wisp.zeros_like(t) for t in (counts, columns)], 2, lambda b, h, q, kv: q >= kv)
    wanted = wisp.nn.functional.scaled_dot_product_attention(x, x, x, seen.tril())
    assert (flex_attention(x, x, x, block_mask=mask.to("cpu")) - wanted).abs().max() < 1e-6


def test_a_mask_of_a_function_that_changes_scores():
    mask = create_mask(lambda score, b, h, q, kv: wisp.where(q >= kv, score, -wisp.inf), 1, 1, 2, 2)
    assert mask.tolist() == [[[[True, False], [True, True]]]]
