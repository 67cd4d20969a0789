"""Trains a GPT with a PyTorch loop of your own; attention stays inside each document of a row.

python examples/own_pytorch_loop/run.py shards --steps=100
python examples/own_pytorch_loop/run.py shards --attention=flex --device=cuda  (a GPU)

`shards` is a dataset of `build_shards --task=clm`. The first lines show that the loss of packed
rows equals the loss of each document alone.

Legend: B rows, L tokens a row, H heads, D values a head.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from textmill.trainers.reader import Batch, ShardSet

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # query, key, value: [B, H, L, D] each


def attend_by_mask(segments_BxL: Tensor) -> Attend:
    """Attention by a mask of booleans [B, 1, L, L]: earlier tokens of the same document."""
    same = segments_BxL[:, None, :, None] == segments_BxL[:, None, None, :]
    mask = same.tril()
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def blockwise_attention(segments_BxL: Tensor) -> Attend:
    """The same by FlexAttention, which skips blocks that are masked as a whole.

    On a CPU PyTorch computes only its forward pass, so it trains only on GPUs.
    """
    B, L = segments_BxL.shape

    def is_visible(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (segments_BxL[b, query] == segments_BxL[b, key]) & (query >= key)

    blocks = create_block_mask(is_visible, B, None, L, L, device=str(segments_BxL.device))
    flex = torch.compile(flex_attention) if segments_BxL.is_cuda else flex_attention
    return lambda q, k, v: flex(q, k, v, block_mask=blocks)  # pyright: ignore


ATTENTION = {"mask": attend_by_mask, "flex": blockwise_attention}


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a LayerNorm."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """[B, L, width] -> the same shape."""
        qkv = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1))
        x = x + self.out(attend(*qkv.permute(2, 0, 3, 1, 4)).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    """A decoder with learned positions."""

    def __init__(self, vocab_size: int, length: int, width: int = 128, layers: int = 2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads=width // 64) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab_size)

    def forward(self, ids_BxL: Tensor, positions_BxL: Tensor, attend: Attend) -> Tensor:
        """Logits [B, L, vocab_size]."""
        x = self.tokens(ids_BxL) + self.positions(positions_BxL)
        for block in self.blocks:
            x = block(x, attend)
        return self.head(self.norm(x))


def to_tensors(batch: Batch, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ids, segments, positions and weights of a batch, int64 [B, L] each.

    The dataset stores ids as uint16 or uint32 and segments as uint8 or uint16; embeddings take
    int64.
    """
    ids, segments, weights = (
        torch.from_numpy(batch[name].astype("int64")).to(device)
        for name in ("input_ids", "segment_ids", "loss_weights")
    )
    index = torch.arange(ids.shape[1], device=device).expand_as(ids)
    begins = torch.ones_like(segments, dtype=torch.bool)  # the first token of each segment
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    positions = index - torch.where(begins, index, 0).cummax(dim=1).values
    return ids, segments, positions, weights


def sum_losses(model: Gpt, batch: Batch, attend_in: Callable, device: str) -> tuple[Tensor, Tensor]:
    """The sum of the losses, and the number of tokens that count.

    The logits at i - 1 predict token i, and loss_weights[i] belongs to token i. It is 0 for the
    first token of a document, so no document predicts the start of the next one.
    """
    ids, segments, positions, weights = to_tensors(batch, device)
    logits = model(ids, positions, attend_in(segments))
    losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    return (losses * weights[:, 1:]).sum(), weights[:, 1:].sum()


def loss_of_each_alone(model: Gpt, batch: Batch, device: str) -> float:
    """The mean loss where every document is computed by itself, without rows and masks."""
    total, count = 0.0, 0
    for ids, segments in zip(batch["input_ids"], batch["segment_ids"], strict=True):
        for segment in range(1, int(segments.max()) + 1):
            document = ids[segments == segment][None]
            weights = np.ones(document.shape, np.uint8)
            weights[:, 0] = 0
            alone = {"input_ids": document, "segment_ids": weights | 1, "loss_weights": weights}
            with torch.no_grad():
                loss, tokens = sum_losses(model, alone, attend_by_mask, device)
            total, count = total + float(loss), count + int(tokens)
    return total / count


def train(
    model: Gpt, shards: ShardSet, *, steps: int, batch_size: int, attention: str, device: str
) -> Iterator[float]:
    """Yields the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    # `batches` never ends. To resume at step N, load the weights and give start_step=N.
    batches = shards.batches("train", batch_size=batch_size, seed=0, start_step=0)
    for _, batch in zip(range(steps), batches, strict=False):
        losses, tokens = sum_losses(model, batch, ATTENTION[attention], device)
        loss = losses / tokens
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield loss.item()


def main() -> None:
    """Compares the losses of one batch, then trains."""
    parser = argparse.ArgumentParser(prog="python examples/own_pytorch_loop/run.py")
    parser.add_argument("shards", help="dataset of build_shards --task=clm")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--attention", choices=sorted(ATTENTION), default="mask")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    torch.manual_seed(0)
    shards = ShardSet(options.shards)
    model = Gpt(shards.schema.vocab_size, shards.schema.max_length).to(options.device)
    batch = next(iter(shards.batches("train", batch_size=options.batch_size, seed=0)))
    with torch.no_grad():
        losses, tokens = sum_losses(model, batch, ATTENTION[options.attention], options.device)
    print(f"loss of packed rows         {float(losses / tokens):.6f}")
    print(f"loss of each document alone {loss_of_each_alone(model, batch, options.device):.6f}")
    settings = {name: getattr(options, name) for name in ("steps", "batch_size", "attention")}
    for step, loss in enumerate(train(model, shards, device=options.device, **settings), 1):
        if step == 1 or step % 10 == 0:
            print(f"step {step:4}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
