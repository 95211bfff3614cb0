"""Choose tokens and an estimator, see which layer resembles which."""

from collections.abc import Sequence

import ipywidgets
import plotly.graph_objects as go
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from engram_lab.figures.cka import cka_heatmap
from engram_lab.probes.cka import layer_features
from engram_lab.probes.cka_alignment import alignment_frame
from engram_lab.probes.cka_layers import layer_similarity
from engram_lab.probes.cka_sums import ESTIMATORS
from engram_lab.widgets.base import Board, Picture, redraw

ALL = "all tokens"


def cka_explorer(
    model_a: nn.Module,
    model_b: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    *,
    classes: Tensor | None = None,
    class_names: Sequence[str] = (),
) -> ipywidgets.VBox:
    """Menus of token class and estimator and a range of positions over the CKA map of two models.

    Both models read once. Each call makes widgets of its own and leaves earlier ones alone.

    Without controls: `cka_heatmap(cka_frame(model_a, model_b, token_ids, keep=classes == 0))`.

    Args:
        model_a: the plain one, down the map.
        model_b: the one beside it, across.
        token_ids: what both read; features of all of them stay in memory.
        classes: class of every token, batch seq; None for no choice.
        class_names: what the classes 0, 1, ... are called.

    Raises:
        ValueError: as `compare_models`, for the first picture; later ones show it in words.
    """
    _check(classes, token_ids)
    features = [layer_features(model, token_ids) for model in (model_a, model_b)]
    named = () if classes is None else class_names
    kind, estimator, span = _controls(named, token_ids.shape[1])
    message = ipywidgets.HTML()

    def drawn() -> go.Figure:
        keep = _chosen(token_ids, span.value, classes, kind.value)
        kept = [part[:, keep.flatten().to(part.device)] for part in features]
        cka = layer_similarity(*kept, estimator=estimator.value)
        return cka_heatmap(cka.frame(), alignment=alignment_frame(cka))

    picture = Picture(drawn())

    def show(change: dict) -> None:
        try:
            new = drawn()
        except ValueError as error:
            message.value = f"<i>{error}</i>"
            return
        message.value = ""
        redraw(picture, new)

    for control in (kind, estimator, span):
        control.observe(show, names="value")
    return Board([ipywidgets.HBox([kind, estimator, span]), message, picture])


def _controls(
    class_names: Sequence[str], seq: int
) -> tuple[ipywidgets.Dropdown, ipywidgets.Dropdown, ipywidgets.IntRangeSlider]:
    options = [(ALL, None), *((name, index) for index, name in enumerate(class_names))]
    kind = ipywidgets.Dropdown(options=options, value=None, description="tokens")
    estimator = ipywidgets.Dropdown(options=ESTIMATORS, description="estimator")
    span = ipywidgets.IntRangeSlider(
        value=(0, seq - 1), min=0, max=seq - 1, description="positions", continuous_update=False
    )
    return kind, estimator, span


def _chosen(
    token_ids: Tensor, span: tuple[int, int], classes: Tensor | None, kind: int | None
) -> Tensor:
    """Which positions the controls leave, batch seq."""
    positions = torch.arange(token_ids.shape[1]).expand_as(token_ids)
    chosen = (positions >= span[0]) & (positions <= span[1])
    return chosen if classes is None or kind is None else chosen & (classes.cpu() == kind)


def _check(classes: Tensor | None, token_ids: Tensor) -> None:
    if classes is not None and classes.shape != token_ids.shape:
        raise ValueError(
            f"classes must have the shape of the ids, {tuple(token_ids.shape)}; got "
            f"{tuple(classes.shape)}"
        )
