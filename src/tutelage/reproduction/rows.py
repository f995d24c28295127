"""The rows of the PATE papers, and ours: which recipe, what was published, and the accuracy below which a row has failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from tutelage.privacy.errors import RecipeError
from tutelage.recipes.recipe import Recipe
from tutelage.recipes.run import embedded
from tutelage.recipes.sections import unknown


@final
@dataclass(frozen=True, kw_only=True)
class Published:
    """What a paper printed; its ε is data-dependent and was not sanitised."""

    accuracy: float
    epsilon: float
    non_private: float | None = None
    answered: int | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: a carried recipe, what it is compared with, and its bar."""

    name: str  # of the recipe, below recipes/pate
    title: str
    published: Published | None = None
    bar: float | None = None  # student's accuracy; None where no claim is made yet
    small: bool = False  # for two CPU cores

    def recipe(self, seed: int = 0) -> Recipe:
        """Read the row's recipe, with another seed where one is given."""
        recipe = embedded(f"pate/{self.name}")
        return recipe.model_copy(update={"seed": recipe.seed + seed})


# 2017: Papernot et al., as in 001's tables (Adult: as the 2018 paper repeats it). 2018: Papernot et al., Table 1.
ROWS = (
    Row(name="mnist-lnmax-100", title="MNIST, LNMax, 100 queries (2017)", bar=0.96,
        published=Published(accuracy=0.98, epsilon=2.04, non_private=0.9918, answered=100)),
    Row(name="mnist-lnmax-1000", title="MNIST, LNMax, 1,000 queries (2017)", bar=0.97,
        published=Published(accuracy=0.981, epsilon=8.03, non_private=0.9918, answered=1000)),
    Row(name="mnist-confident", title="MNIST, Confident-GNMax, T 200, σ 150/40 (2018)", bar=0.97,
        published=Published(accuracy=0.985, epsilon=1.97, non_private=0.992, answered=286)),
    Row(name="mnist-interactive", title="MNIST, Interactive-GNMax, ours", bar=0.98),
    Row(name="mnist-ours-votes", title="MNIST, ours, pool test[:9000]", bar=0.99),
    Row(name="mnist-ours", title="MNIST, ours, pool test[:5000]", bar=0.99),
    Row(name="mnist-ours-paper", title="MNIST, ours, pool test[:1000] as in the papers"),
    Row(name="mnist-heir-paper", title="MNIST, every record a teacher, with an heir, ours, pool test[:1000] as in the papers"),
    Row(name="mnist-records", title="MNIST, every record a teacher, ours", bar=0.98),
    Row(name="mnist-heir-votes", title="MNIST, every record a teacher, with an heir, ours, pool test[:9000]", bar=0.99),
    Row(name="mnist-heir", title="MNIST, every record a teacher, with an heir, ours", bar=0.99),
    Row(name="fashion-mnist-ours", title="Fashion-MNIST, every record a teacher, ours", bar=0.88),
    Row(name="fashion-mnist-votes", title="Fashion-MNIST, 250 networks, ours"),
    Row(name="svhn-lnmax-500", title="SVHN, LNMax, 500 queries (2017)", bar=0.82,
        published=Published(accuracy=0.8272, epsilon=5.04, non_private=0.928, answered=500)),
    Row(name="svhn-lnmax-1000", title="SVHN, LNMax, 1,000 queries (2017)", bar=0.88,
        published=Published(accuracy=0.9066, epsilon=8.19, non_private=0.928, answered=1000)),
    Row(name="svhn-confident", title="SVHN, Confident-GNMax, T 300, σ 200/40 (2018)", bar=0.88,
        published=Published(accuracy=0.916, epsilon=4.96, non_private=0.928, answered=3098)),
    Row(name="cifar-10-ours", title="CIFAR-10 from scratch, ours"),
    Row(name="cifar-10-features", title="CIFAR-10, features of the public pool, ours"),
    Row(name="cifar-10-records", title="CIFAR-10, every record a teacher, ours"),
    Row(name="adult-lnmax", title="Adult, LNMax, 500 queries (2017)", bar=0.81,
        published=Published(accuracy=0.83, epsilon=2.66, non_private=0.85, answered=500)),
    Row(name="adult-confident", title="Adult, Confident-GNMax, T 300, σ 200/40 (2018)", bar=0.82,
        published=Published(accuracy=0.837, epsilon=1.90, non_private=0.85, answered=524)),
    Row(name="adult-ours", title="Adult, every record a teacher, ours", bar=0.84),
    Row(name="adult-shares", title="Adult, 400 forests, shares, ours"),
    Row(name="diabetes-lnmax", title="Diabetes, LNMax, 500 queries (2017; prepared otherwise)",
        published=Published(accuracy=0.9394, epsilon=1.44, non_private=0.9381)),
    Row(name="diabetes-30-days", title="Diabetes, within 30 days, every patient a teacher, ours"),
    Row(name="diabetes-ours", title="Diabetes, at all, every patient a teacher, ours"),
    Row(name="digits-small", title="8x8 digits, ours, small", bar=0.85, small=True),
    Row(name="mnist-small", title="MNIST, ours, small", bar=0.96, small=True),
    Row(name="fashion-mnist-small", title="Fashion-MNIST, ours, small", bar=0.86, small=True),
    Row(name="cifar-10-small", title="CIFAR-10 from scratch, ours, small", small=True),
    Row(name="adult-small", title="Adult, ours, small", bar=0.80, small=True),
    Row(name="diabetes-small", title="Diabetes by patient, ours, small", small=True),
)  # fmt: skip


def chosen(only: tuple[str, ...] = (), *, small: bool = False) -> list[Row]:
    """Pick the rows of some data sets, or some rows by their names; full size or small."""
    sets = {row.name: _common(row.recipe().data.set) for row in ROWS}
    known = tuple(dict.fromkeys([*sets.values(), *sets]))
    for word in only:
        if word not in known:
            raise unknown("only", word, known)
    large = [row.name for row in ROWS if row.name in only and not row.small] if small else []
    picked = [row for row in ROWS if row.small == small or row.name in only]
    picked = [row for row in picked if not only or row.name in only or sets[row.name] in only]
    if large or not picked:
        size = "small" if small else "full-size"
        raise RecipeError(f"`only` must name {size} rows, or data sets with one ({'leave out' if small else 'add'} --small?). "
                          f"Got {', '.join(large or only)} instead.")  # fmt: skip
    return picked


def _common(name: str) -> str:
    """Name what a set and its variants (more records, another target) have in common."""
    return name.removesuffix("-extra").removesuffix("-at-all")
