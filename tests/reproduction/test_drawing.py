"""The papers' figures: what stands above an axis stands above its place."""

import pytest

from tutelage.reproduction import drawing

COSTS = {0.05: "866", 0.2: "70", 1.2: "4.6"}


@pytest.mark.parametrize("scale", [{"linear": 0.05}, {"xscale": "log"}, {}], ids=["linear, then log", "log", "linear"])
def test_a_price_stands_above_its_noise(scale: dict) -> None:
    """A secondary axis does not: above one that is linear at first, then logarithmic, it is linear all along."""
    figure = drawing.curves([({"PCA": ([0.01, 0.05, 0.2, 1.2], [0.9, 0.8, 0.5, 0.1])}, {"epsilons": COSTS, **scale})])
    figure.draw_without_rendering()
    below, above = figure.axes
    for tick in above.get_xticks():
        assert above.transData.transform((tick, 0))[0] == pytest.approx(below.transData.transform((tick, 0))[0], abs=1e-6)
    assert [label.get_text() for label in above.get_xticklabels()] == list(COSTS.values())
    assert list(above.get_xticks()) == pytest.approx(list(COSTS))


@pytest.mark.parametrize("many", [False, True])
def test_many_names_stand_beside_their_curves(many: bool) -> None:
    count = drawing.MANY + many
    figure = drawing.curves([({str(number): ([1, 2], [number, number]) for number in range(count)}, {})])
    figure.draw_without_rendering()
    [axes] = figure.axes
    box, legend = axes.get_window_extent(), axes.get_legend().get_window_extent()
    assert (legend.x0 >= box.x1) == many
    assert legend.x1 <= figure.bbox.x1 + 1
