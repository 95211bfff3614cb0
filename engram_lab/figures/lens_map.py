"""A text under the lens: layers up, positions across, in every cell the token predicted there."""

import html

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.gates import TICKS, visible_token
from engram_lab.figures.lens import MADE_BY, TITLES
from engram_lab.figures.style import AMOUNTS, COLOURS, INK, MONO, Room, require, titled

LEFT, RIGHT, WIDTH = 88, 104, 980
CHARACTER = 6.6  # pixels of a character in a cell
LEAST_CHARACTERS = 3  # narrower cells show no text
LAYER_PIXELS, STRIP_PIXELS = 23, 110
TICK_CHARACTERS = 16  # of a token below the map, which stands at 60 degrees
PLAIN = "#FFFFFF"


def lens_map(
    frame: pd.DataFrame, *, measure: str = "kl_nats", layer: int | None = None
) -> go.Figure:
    """Every layer's prediction at every position of one text.

    Args:
        frame: rows of `probes.lens.logit_lens` for one sequence.
        measure: what colours the cells: kl_nats, reverse_kl_nats, entropy_nats or target_rank
            (logarithmic).
        layer: a layer to frame, and to draw position by position below; None for none. Negative
            ones count from the end.

    Raises:
        ValueError: if columns are missing, `measure` is no measure, the frame holds several
            sequences or runs, or lacks the layer.
    """
    if measure not in TITLES:
        raise ValueError(f"measure must be one of {', '.join(TITLES)}; got {measure!r}")
    require(frame, "layer", "position", "token", measure, "top_token", made_by=MADE_BY)
    if frame.duplicated(["layer", "position"]).any():
        raise ValueError(
            "lens_map draws one text; the frame has several rows for one layer and position. Pick "
            "one run: frame[frame['sequence'] == 0]."
        )
    values = frame.pivot(index="layer", columns="position", values=measure)
    tops = frame.pivot(index="layer", columns="position", values="top_token")
    chosen = None if layer is None else _chosen(values, layer)
    tokens = frame.drop_duplicates("position").set_index("position")["token"]
    tokens = tokens.reindex(values.columns)
    figure = make_subplots(
        rows=1 if chosen is None else 2,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.0 if chosen is None else 12 / _height(values, chosen),
        row_heights=None if chosen is None else [len(values) * LAYER_PIXELS, STRIP_PIXELS],
    )
    figure.add_trace(_cells(values, tops, tokens, measure), row=1, col=1)
    if chosen is not None:
        figure.add_trace(_bars(values, tops, tokens, measure, chosen), row=2, col=1)
        _frame_row(figure, values, chosen, measure)
    _axes(figure, values, tokens, rows=1 if chosen is None else 2)
    figure.update_layout(coloraxis=_colours(values, measure))
    return titled(
        figure,
        title="A text under the lens",
        note=_note(values, measure, chosen, written=figure.data[0].text is not None),
        room=_room(_height(values, chosen), tokens),
    )


def layer_names(layers: list[int]) -> list[str]:
    """What stands beside each row: the number, and for the last that it is the output."""
    return [f"{layer} (out)" if layer == layers[-1] else str(layer) for layer in layers]


def _chosen(values: pd.DataFrame, layer: int) -> int:
    layers = list(values.index)
    wanted = layers[-1] + 1 + layer if layer < 0 else layer
    if wanted not in layers:
        raise ValueError(f"layer must lie in {layers[0]}..{layers[-1]}; got {layer}")
    return wanted


def _height(values: pd.DataFrame, chosen: int | None) -> int:
    cells = max(90, len(values) * LAYER_PIXELS)
    return cells if chosen is None else cells + STRIP_PIXELS + 12


def _tick(token: str) -> str:
    return token if len(token) <= TICK_CHARACTERS else token[: TICK_CHARACTERS - 1] + "…"


def _room(height: int, tokens: pd.Series) -> Room:
    """Room for the tokens below the map, whatever their length, and the title of their axis."""
    longest = max(len(_tick(token)) for token in tokens)
    axis = max(92, 40 + round(CHARACTER * longest))
    return Room(width=WIDTH, height=height, left=LEFT, right=RIGHT, head=10, axis=axis)


def _cells(values: pd.DataFrame, tops: pd.DataFrame, tokens: pd.Series, measure: str) -> go.Heatmap:
    following = _following(tokens)
    right = tops.eq(following, axis="columns")
    fits = int((WIDTH - LEFT - RIGHT) / max(len(tokens), 1) / CHARACTER)
    shown = tops.map(lambda token: _short(token, fits)) if fits >= LEAST_CHARACTERS else None
    if shown is not None:
        shown = shown.where(~right, "<b>" + shown + "</b>")
    return go.Heatmap(
        x=list(values.columns),
        y=list(values.index),
        z=_scaled(values, measure),
        text=None if shown is None else shown.to_numpy(),
        texttemplate=None if shown is None else "%{text}",
        textfont={"family": MONO, "size": 9},
        customdata=_details(values, tops, tokens, following),
        coloraxis="coloraxis",
        xgap=1,
        ygap=1,
        hovertemplate=(
            "layer %{y}, position %{x}<br>reads %{customdata[1]}<br>predicts %{customdata[0]}, "
            f"next is %{{customdata[2]}}<br>{TITLES[measure]} %{{customdata[3]:.4g}}"
            "<extra></extra>"
        ),
        name=measure,
    )


def _bars(
    values: pd.DataFrame, tops: pd.DataFrame, tokens: pd.Series, measure: str, chosen: int
) -> go.Bar:
    """The chosen layer, position by position."""
    row = values.loc[[chosen]]
    return go.Bar(
        x=list(values.columns),
        y=values.loc[chosen].to_numpy(float),
        customdata=_details(row, tops.loc[[chosen]], tokens, _following(tokens))[0],
        marker={"color": COLOURS["engram"]},
        hovertemplate=(
            "position %{x}<br>reads %{customdata[1]}<br>predicts %{customdata[0]}, next is "
            f"%{{customdata[2]}}<br>{TITLES[measure]} %{{y:.4g}}<extra></extra>"
        ),
        name=f"layer {chosen}",
        showlegend=False,
    )


def _details(
    values: pd.DataFrame, tops: pd.DataFrame, tokens: pd.Series, following: pd.Series
) -> np.ndarray:
    """For the hover text of each cell: predicted, read and next token, and the value."""
    shape = values.shape
    read = np.broadcast_to(tokens.map(visible_token).to_numpy(object), shape)
    after = np.broadcast_to(following.fillna("unknown").map(visible_token).to_numpy(object), shape)
    said = tops.map(visible_token).to_numpy(object)
    return np.stack([said, read, after, values.to_numpy(object)], axis=-1)


def _following(tokens: pd.Series) -> pd.Series:
    """The token behind each position; missing behind the last."""
    return tokens.shift(-1)


def _short(token: str, characters: int) -> str:
    """A token cut to so many characters, its spaces visible only where they are all there is."""
    text = token.strip() or token.replace("\n", "⏎").replace(" ", "␣")
    cut = text if len(text) <= characters else text[: characters - 1] + "…"
    return html.escape(cut, quote=False)


def _scaled(values: pd.DataFrame, measure: str) -> np.ndarray:
    numbers = values.to_numpy(float)
    return np.log10(numbers) if measure == "target_rank" else numbers


def _colours(values: pd.DataFrame, measure: str) -> dict[str, object]:
    """White where the answer is there, dark where it is far."""
    numbers = _scaled(values, measure)
    finite = numbers[np.isfinite(numbers)]
    most = max(float(finite.max()) if finite.size else 0.0, 1e-9)
    steps = [(i / len(AMOUNTS), shade) for i, shade in enumerate((PLAIN, *AMOUNTS))]
    title = {"text": TITLES[measure].replace(", ", ",<br>"), "side": "top", "font": {"size": 12}}
    bar = {"title": title, "lenmode": "pixels", "len": 150, "y": 1, "yanchor": "top"}
    if measure == "target_rank":
        powers = list(range(int(most) + 1))
        bar |= {"tickvals": powers, "ticktext": [f"{10**power:,}" for power in powers]}
    return {"cmin": 0, "cmax": most, "colorscale": steps, "colorbar": bar}


def _frame_row(figure: go.Figure, values: pd.DataFrame, chosen: int, measure: str) -> None:
    figure.add_shape(
        type="rect",
        x0=values.columns[0] - 0.5,
        x1=values.columns[-1] + 0.5,
        y0=chosen - 0.5,
        y1=chosen + 0.5,
        line={"color": INK, "width": 2},
        row=1,
        col=1,
    )
    axis: dict[str, object] = {"title_text": f"layer {chosen}", "rangemode": "tozero", "nticks": 4}
    if measure == "target_rank":
        most = float(np.nanmax(values.loc[chosen], initial=1.0))
        powers = list(range(int(np.log10(most)) + 1))
        axis |= {
            "type": "log",
            "range": [0, max(np.log10(most) * 1.05, 0.3)],
            "tickvals": [10**power for power in powers],
            "ticktext": [f"{10**power:,}" for power in powers],
        }
    figure.update_yaxes(**axis, row=2, col=1)


def _axes(figure: go.Figure, values: pd.DataFrame, tokens: pd.Series, *, rows: int) -> None:
    layers = [int(layer) for layer in values.index]
    every = -(-len(tokens) // TICKS)
    named = tokens.iloc[::every]
    figure.update_yaxes(
        title_text="layer",
        tickvals=layers,
        ticktext=layer_names(layers),
        range=[layers[0] - 0.5, layers[-1] + 0.5],
        showgrid=False,
        ticks="",
        row=1,
        col=1,
    )
    figure.update_xaxes(range=[tokens.index[0] - 0.5, tokens.index[-1] + 0.5], ticks="")
    figure.update_xaxes(
        title_text="token read" if every == 1 else f"token read (one in {every} named)",
        tickvals=list(named.index),
        ticktext=[visible_token(_tick(token)) for token in named],
        tickangle=-60,
        tickfont={"family": MONO, "size": 11},
        row=rows,
        col=1,
    )


def _note(values: pd.DataFrame, measure: str, chosen: int | None, *, written: bool) -> str:
    layers, positions = values.shape
    text = (
        f"{positions} tokens, {layers - 1} blocks. Layer: the block about to read the stream; "
        "(out): behind the last. "
    )
    if written:
        text += "In each cell the token predicted next, bold where it is the one that comes. "
    if measure == "target_rank":
        text += "White: rank 1. "
    elif "kl" in measure:
        text += "White: as at the end. "
    return text + ("" if chosen is None else f"Framed and below: layer {chosen}.")
