"""Faults that others met in drafters: wrong previous token, training unlike decoding."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.target import Target
from engram_lab.training.draft_loss import DraftBatch, block_loss, dflash_loss
from tests.draft.tiny import golden_pair

WORDS = 12


class Successor(nn.Module):
    """A model that is nearly sure of the next token, which hangs on the last one alone."""

    def __init__(self):
        super().__init__()
        self.following = torch.randperm(WORDS, generator=torch.Generator().manual_seed(0))
        self.embed_tokens = nn.Embedding(WORDS, WORDS)
        self.embed_tokens.weight.data = torch.eye(WORDS)
        self.blocks = nn.ModuleList(nn.Identity() for _ in range(3))
        self.norm = nn.Identity()
        self.lm_head = nn.Linear(WORDS, WORDS, bias=False)
        self.lm_head.weight.data = 12 * torch.eye(WORDS)[self.following]

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> SimpleNamespace:
        hidden = self.embed_tokens(input_ids)
        for block in self.blocks:
            hidden = block(hidden)
        return SimpleNamespace(logits=self.lm_head(self.norm(hidden)))

    def chain(self, first: int, length: int) -> Tensor:
        tokens = [first]
        while len(tokens) < length:
            logits = self(torch.tensor([tokens[-1:]])).logits
            tokens.append(int(logits[0, -1].argmax()))
        return torch.tensor(tokens)


def test_a_markov_head_alone_learns_successors_at_every_position() -> None:
    """Fed with shifted previous tokens it would learn nothing at position 1."""
    torch.manual_seed(0)
    model = Successor().eval()
    target = Target(model, (0,))
    config = DraftConfig(
        vocab_size=WORDS,
        hidden_size=WORDS,
        target_depth=3,
        target_layer_ids=(0,),
        mask_token_id=WORDS - 1,
        block_size=3,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_size=4,
        intermediate_size=8,
        markov_rank=WORDS,
    )
    drafter = Drafter(config, target)
    for name, parameter in drafter.named_parameters():
        parameter.requires_grad_("markov" in name)
    optimizer = torch.optim.Adam([p for p in drafter.parameters() if p.requires_grad], lr=0.1)
    ids = torch.stack([model.chain(first, 20) for first in range(4)])
    batch = DraftBatch(token_ids=ids, loss_mask=torch.ones_like(ids, dtype=torch.bool))
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        loss = block_loss(drafter, target.read(ids), batch, generator, config=dflash_loss())
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    anchors = torch.tensor([[3, 8, 13]]).expand(4, -1)
    drafted = drafter(ids, target.read(ids).features, anchors, torch.ones_like(anchors).bool())
    wanted = ids.gather(1, (anchors[..., None] + torch.arange(1, 4)).flatten(1)).view(4, 3, 3)
    assert torch.equal(drafted.logits.argmax(-1), wanted)


def test_training_and_decoding_say_the_same_of_every_draft_that_was_reached() -> None:
    target, drafter, file = golden_pair()
    prompt = torch.tensor(file["greedy_decoding"][0]["prompt"])
    found = speculative_generate(
        target, drafter, [prompt], GenerationConfig(max_new_tokens=30, seed=3)
    )
    ids = torch.cat([prompt, found.token_ids[0]])[None]
    starts, place = [], len(prompt)
    for entry in found.rounds:
        starts.append(place)
        place += entry.emitted[0]
    starts = [start for start in starts if start + drafter.block_size < ids.shape[1]]
    anchors = torch.tensor([starts])
    read = target.read(ids)
    with torch.no_grad():
        drafted = drafter(ids, read.features, anchors, torch.ones_like(anchors).bool())
    draft = drafted.logits.softmax(-1)[0]
    rows = anchors[0, :, None] + torch.arange(drafter.block_size)
    expected = torch.minimum(draft, read.logits[0].softmax(-1)[rows]).sum(-1)
    compared = 0
    for number, entry in enumerate(found.rounds[: len(starts)]):
        reached = min(int(entry.accepted[0]) + 1, drafter.block_size)
        ours, theirs = entry.expected[0, :reached], expected[number, :reached]
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
        compared += reached
    assert compared > 15
