"""document_losses: weighted by tokens, each document alone, whatever the batch."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.corpus import Documents
from engram_lab.training.evaluate import document_losses, mean_losses
from tests.training.runs import small_run


def small_model(**engram) -> EngramLM:
    config = small_run(engram=engram).model
    return EngramLM(config, VocabCompression.identity(config.vocab_size))


def documents_of(*lengths: int) -> Documents:
    rng = np.random.default_rng(0)
    ids = [rng.integers(4, 1000, size=length) for length in lengths]
    classes = [np.arange(length) % 2 for length in lengths]
    return Documents.from_lists(
        ids, vocab_size=1012, classes=classes, class_names=("static", "computed", "filler")
    )


def by_hand(model: EngramLM, document: np.ndarray) -> torch.Tensor:
    ids = torch.from_numpy(document.astype(np.int64))[None]
    with torch.no_grad():
        return F.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:], reduction="none")


def test_each_document_has_its_own_mean_over_all_tokens_and_by_class():
    model, documents = small_model().eval(), documents_of(9, 5)
    frame = document_losses(model, documents, seq_len=16, batch_size=2)
    for index in range(2):
        losses = by_hand(model, documents[index])
        own = frame[frame["document"] == index].set_index("token_class")
        # token 0 is not predicted, so the first loss belongs to token 1, of class 1
        for name, part in {"all": losses, "static": losses[1::2], "computed": losses[0::2]}.items():
            assert own.loc[name, "loss_nats"] == pytest.approx(part.mean().item(), rel=1e-5)
            assert own.loc[name, "eval_tokens"] == len(part)
        assert "filler" not in own.index


def test_the_mean_is_weighted_by_tokens_with_a_smaller_last_batch():
    model, documents = (
        small_model().eval(),
        documents_of(*range(3, 13)),
    )  # 10 documents, batches of 3
    means = mean_losses(document_losses(model, documents, seq_len=16, batch_size=3))
    losses = torch.cat([by_hand(model, document) for document in documents])
    assert means["all"] == pytest.approx(losses.mean().item(), rel=1e-5)


def test_the_batch_size_does_not_matter():
    model, documents = small_model(), documents_of(9, 5, 12)
    frames = [document_losses(model, documents, seq_len=16, batch_size=size) for size in (1, 2, 8)]
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frames[0], frame, rtol=1e-5)


def test_every_token_of_a_long_document_but_the_first_is_predicted_once():
    frame = document_losses(small_model(), documents_of(40), seq_len=16)
    assert frame.set_index("token_class").loc["all", "eval_tokens"] == 39


def test_documents_without_classes_have_one_row_each():
    documents = Documents.from_lists([[5, 6, 7], [8, 9]], vocab_size=1012)
    frame = document_losses(small_model(), documents)
    assert frame["token_class"].tolist() == ["all", "all"]
    assert frame["eval_tokens"].tolist() == [2, 1]


def test_a_document_of_one_token_has_no_row_and_nothing_to_predict_is_an_error():
    documents = Documents.from_lists([[5], [8, 9]], vocab_size=1012)
    assert document_losses(small_model(), documents)["document"].tolist() == [1]
    with pytest.raises(ValueError, match="at least 2 tokens"):
        document_losses(small_model(), documents.select([0]))


@pytest.mark.parametrize("training", [True, False])
def test_mode_gradients_and_expert_load_are_left_as_found(training):
    model = small_model().train(training)
    document_losses(model, documents_of(9, 5))
    assert model.training is training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(block.moe.router.load.any() for block in model.blocks)


def test_mode_is_restored_after_an_error():
    model = small_model().train()
    strange = Documents.from_lists([[5, 6, 2000]], vocab_size=3000)
    with pytest.raises(ValueError, match="2000"):
        document_losses(model, strange)
    assert model.training


def test_a_bf16_model_gives_fp32_losses():
    model = small_model().to(torch.bfloat16)
    frame = document_losses(model, documents_of(9, 5))
    assert frame["loss_nats"].dtype == np.float64
    assert np.isfinite(frame["loss_nats"]).all()


def test_the_neighbour_control_gives_a_single_last_row_a_neighbour():
    model = small_model(addresses="neighbour").eval()
    torch.nn.init.normal_(model.memories[1].table.weight)  # rows that matter
    documents = documents_of(9, 5, 12)
    frame = document_losses(model, documents, seq_len=16, batch_size=2)
    assert frame.loc[frame["token_class"] == "all", "eval_tokens"].tolist() == [8, 4, 11]
    # the last document reads what the first addresses, as it would in a batch of the two
    pair = document_losses(model, documents.select([2, 0]), seq_len=16, batch_size=2)
    last = frame.query("document == 2 and token_class == 'all'")["loss_nats"].item()
    assert last == pytest.approx(pair.query("document == 0")["loss_nats"].iloc[0], rel=1e-5)


def test_the_neighbour_control_refuses_to_stand_alone():
    model = small_model(addresses="neighbour")
    with pytest.raises(ValueError, match="at least 2"):
        document_losses(model, documents_of(9, 5), batch_size=1)
    with pytest.raises(ValueError, match="got 1 document"):
        document_losses(model, documents_of(9))


def test_pieces_of_one_text_count_as_one_document():
    model, documents = small_model().eval(), documents_of(9, 5, 7)
    pieces = Documents.from_lists(
        [documents[0], documents[1], documents[2]], vocab_size=1012, sources=[4, 2, 4]
    )
    frame = document_losses(model, pieces, seq_len=16, batch_size=2)
    losses = torch.cat([by_hand(model, documents[0]), by_hand(model, documents[2])])
    assert list(frame["document"]) == [0, 1]
    assert frame["eval_tokens"].tolist() == [4, 14]
    assert frame["loss_nats"][1] == pytest.approx(losses.mean().item(), abs=1e-5)
