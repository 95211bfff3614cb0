"""Figures of serving: a line a policy, published budgets hollow behind, bounds told apart."""

import itertools

import pandas as pd
import pytest

from engram_lab.figures.serving import budget_curve, serving_pareto
from engram_lab.figures.serving_regret import regret_bars
from engram_lab.published import load_published
from tests.figures.frames import footer, traces

SPEEDS = {"plain decoding": 50.0, "MTP-1": 80.0, "early stop": 120.0, "oracle": 130.0}


def serving_rows(costs=("affine", "staircase"), users=(1, 8, 64), seeds=(0, 1, 2)) -> pd.DataFrame:
    """A user's speed falls with the square root of concurrency; seeds differ by 1 %."""
    rows = [
        {
            "costs": cost,
            "domain": "chat",
            "seed": seed,
            "policy": policy,
            "concurrency": n,
            "causal": policy != "oracle",
            "tokens_per_s_user": speed * (1 + 0.01 * (seed - 1)) / n**0.5,
            "tokens_per_s": speed * (1 + 0.01 * (seed - 1)) * n**0.5,
            "verified_tokens": {"MTP-1": 2.0, "plain decoding": 1.0}.get(policy, 6.0 - n / 32),
            "regret": 1 - speed / SPEEDS["oracle"],
            "rounds": 5_000,
        }
        for cost, n, seed in itertools.product(costs, users, seeds)
        for policy, speed in SPEEDS.items()
    ]
    return pd.DataFrame(rows)


def test_each_policy_is_a_line_through_the_means_of_its_seeds():
    figure = serving_pareto(serving_rows())
    lines = traces(figure, "early stop")
    assert len(lines) == 2 and [line.showlegend for line in lines] == [True, False]
    assert list(lines[0].x) == pytest.approx([120, 120 / 8**0.5, 15])
    assert list(lines[0].y) == pytest.approx([120, 120 * 8**0.5, 960])


def test_bounds_are_dashed_and_causal_policies_are_not():
    figure = serving_pareto(serving_rows())
    assert traces(figure, "oracle")[0].line.dash == "dash"
    assert traces(figure, "early stop")[0].line.dash == "solid"
    assert "no lossless engine" in footer(figure)


def test_concurrencies_stand_at_the_fast_end_of_their_lines():
    figure = serving_pareto(serving_rows(costs=("affine",)))
    (ray,) = traces(figure, "64 users")
    assert ray.text[-1] == "64" and ray.x[-1] == max(ray.x)
    share = [y / x for x, y in zip(ray.x, ray.y, strict=True)]
    assert share == pytest.approx([64] * len(share))


def test_published_budgets_are_hollow_and_the_constant_one_is_left_out():
    figure = budget_curve(serving_rows(), published=load_published("dspark_fig8_budget"))
    flash = traces(figure, "V4-Flash, published (approx)")
    assert len(flash) == 2 and flash[0].marker.symbol == "diamond-open"
    assert list(flash[0].y) == [4.95, 4.6, 4.1, 3.75, 3.5]
    assert not [trace for trace in figure.data if "MTP-1, published" in trace.name]
    assert not traces(figure, "oracle")  # it has no budget to speak of
    assert list(traces(figure, "early stop")[0].y) == pytest.approx([6 - 1 / 32, 5.75, 4])


def test_regret_has_a_bar_for_each_policy_but_the_oracle():
    figure = regret_bars(serving_rows())
    assert [bar.name for bar in figure.data] == 2 * ["1 user", "8 users", "64 users"]
    bar = figure.data[0]
    assert set(bar.y) == {"plain decoding", "MTP-1", "early stop"}
    assert dict(zip(bar.y, bar.x, strict=True))["MTP-1"] == pytest.approx(1 - 80 / 130)
    (chosen,) = regret_bars(serving_rows(costs=("affine",)), concurrencies=[8]).data
    assert chosen.name == "8 users"


def test_the_verdict_is_the_subtitle_and_the_footer_tells_seeds():
    figure = serving_pareto(serving_rows(), verdict=["A: supported.", "B: undecided."])
    assert "A: supported." in figure.layout.title.text
    assert "mean of 3 seeds" in footer(figure) and "5,000 request-rounds" in footer(figure)


def test_a_frame_without_cost_curves_has_one_panel():
    assert len(traces(budget_curve(serving_rows().drop(columns="costs")), "MTP-1")) == 1


def test_mixed_domains_and_unknown_concurrencies_are_refused():
    both = pd.concat([serving_rows(), serving_rows().assign(domain="code")])
    with pytest.raises(ValueError, match="shows one domain; the frame has .'chat', 'code'."):
        budget_curve(both)
    assert len(traces(budget_curve(both, by="domain"), "MTP-1")) == 2
    with pytest.raises(ValueError, match=r"no rows for concurrency \[3\]"):
        regret_bars(serving_rows(), concurrencies=[3])
    with pytest.raises(ValueError, match="regret_bars needs columns .*missing: regret"):
        regret_bars(serving_rows().drop(columns="regret"))
