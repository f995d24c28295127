"""Named models: the same every time, stored without pickle, and read only when they are what they say."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

import tutelage as tt
from tutelage.estimators import ESTIMATORS, REGRESSORS, Regressed, estimator, flat, grow, load, store
from tutelage.privacy.errors import DataError, RecipeError

INPUTS = np.random.default_rng(0).normal(size=(60, 4, 3)).astype(np.float32)
TARGETS = np.arange(60) % 3


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_models_come_back_as_they_were_stored(kind: str, tmp_path: Path) -> None:
    model = estimator(kind, seed=1).fit(flat(INPUTS), TARGETS)
    store(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    assert np.array_equal(again.predict(flat(INPUTS)), model.predict(flat(INPUTS)))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_seed_fixes_a_model(kind: str) -> None:
    one, two = (estimator(kind, seed=3).fit(flat(INPUTS), TARGETS).predict(flat(INPUTS) + 0.1) for _ in range(2))
    assert np.array_equal(one, two)


@pytest.mark.parametrize("kind", [kind for kind in ESTIMATORS if not kind.startswith("levelled")])
def test_a_model_that_tells_how_far_it_is_comes_out_the_same(kind: str) -> None:
    told: list[tuple[int, int]] = []
    slow = grow(estimator(kind, seed=3), flat(INPUTS), TARGETS, lambda *step: told.append(step))
    quick = estimator(kind, seed=3).fit(flat(INPUTS), TARGETS)
    assert slow.get_params() == quick.get_params()
    new = flat(INPUTS) + 0.1
    scores = [(getattr(model, "predict_proba", None) or model.predict)(new) for model in (slow, quick)]
    assert np.array_equal(*scores)
    assert told[-1][0] == told[-1][1]
    assert told[0][0] == 0
    assert len(told) == (1 + slow.n_estimators // 10 if hasattr(slow, "n_estimators") else 2)  # as begun and as done
    other = (TARGETS + 1) % 3  # fitted again, it knows nothing of before
    again = [grow(model, flat(INPUTS), other, lambda *_: None) for model in (slow, estimator(kind, seed=3))]
    assert np.array_equal(*(model.predict(new) for model in again))


def test_levels_and_regressions_tell_too() -> None:
    told: list[tuple[int, int]] = []
    estimator("levelled-bagged").fit(flat(INPUTS), TARGETS, progress=lambda *step: told.append(step))
    assert told == [(count, 50) for count in (0, 10, 20, 30, 40, 50)]
    told.clear()
    Regressed("linear").fit(flat(INPUTS), np.eye(3)[TARGETS], progress=lambda *step: told.append(step))
    assert list(dict.fromkeys(told)) == [(0, 3), (1, 3), (2, 3), (3, 3)]
    told.clear()
    Regressed("boosted").fit(flat(INPUTS), np.eye(3)[TARGETS], progress=lambda *step: told.append(step))
    assert told[0] == (0, 1200)
    assert told[-1] == (1200, 1200)
    assert told == sorted(told)
    assert len(set(told)) == 31  # ten words for every class


@pytest.mark.parametrize("seed", [6, 18, 31, 53])
def test_boosting_that_stops_where_a_part_ends_is_not_grown_further(seed: int) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    def unfitted() -> HistGradientBoostingClassifier:
        return HistGradientBoostingClassifier(early_stopping=True, learning_rate=0.15, max_leaf_nodes=4, random_state=0)

    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(150, 4))
    targets = (inputs[:, 0] + generator.normal(size=150) > 0).astype(int)
    slow, quick = grow(unfitted(), inputs, targets, lambda *_: None), unfitted().fit(inputs, targets)
    assert quick.n_iter_ % 10 == 0  # or these seeds test nothing
    assert slow.n_iter_ == quick.n_iter_
    assert np.array_equal(slow.predict_proba(inputs), quick.predict_proba(inputs))


@pytest.mark.parametrize("rate", [0.1, 0.9])  # the second stops early, by itself
def test_boosted_trees_that_tell_are_the_same_trees(rate: float) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    def unfitted() -> HistGradientBoostingClassifier:
        return HistGradientBoostingClassifier(early_stopping=True, learning_rate=rate, max_features=0.5, random_state=0)

    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(600, 5))
    targets = (inputs[:, 0] + generator.normal(size=600) > 0).astype(int)
    told: list[tuple[int, int]] = []
    slow, quick = grow(unfitted(), inputs, targets, lambda *step: told.append(step)), unfitted().fit(inputs, targets)
    assert slow.n_iter_ == quick.n_iter_ < 100
    assert np.array_equal(slow.predict_proba(inputs), quick.predict_proba(inputs))
    assert slow.get_params() == quick.get_params()
    assert (told[0], told[1], told[-1]) == ((0, 100), (10, 100), (100, 100))


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("classes", [2, 3])
def test_regressions_come_back_as_they_were_stored_and_name_the_largest_share(kind: str, classes: int, tmp_path: Path) -> None:
    targets = (INPUTS[:, 0, 0] > 0).astype(int) + (classes - 2) * (INPUTS[:, 0, 1] > 1)
    model = Regressed(kind, seed=1).fit(flat(INPUTS), np.eye(classes)[targets])
    store(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    shares = again.predict_proba(flat(INPUTS))
    assert np.array_equal(shares, model.predict_proba(flat(INPUTS)))
    assert shares.shape == (60, classes)
    assert np.allclose(shares.sum(axis=1), 1)
    assert shares.min() >= 0
    assert np.array_equal(shares.argmax(axis=1), model.predict(flat(INPUTS)))
    assert np.mean(model.predict(flat(INPUTS)) == targets) > 0.7


def test_unknown_kinds_are_refused_with_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"Got 'neighbors' instead. Did you mean 'neighbours'\?"):
        estimator("neighbors")
    with pytest.raises(RecipeError, match=r"Got 'qqq' instead\.$"):
        estimator("qqq")
    with pytest.raises(RecipeError, match=r"`kind` must be one of linear, forest, boosted. Got 'kernel'"):
        Regressed("kernel")


def test_levelled_models_name_the_rare_class_earlier() -> None:
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(400, 3))
    targets = np.where(inputs[:, 0] + generator.normal(size=400) > 1.5, 7, 3)  # one record in seven; labels need not start at 0
    inputs = inputs.astype(np.float32)
    plain, levelled = (estimator(kind, seed=1).fit(inputs, targets) for kind in ("bagged", "levelled-bagged"))
    rare, share = plain.predict_proba(inputs)[:, 1], np.mean(targets == 7)
    assert set(levelled.predict(inputs)) == {3, 7}
    bar = np.sqrt(share) / (np.sqrt(share) + np.sqrt(1 - share))  # where p/√share = (1 − p)/√(1 − share)
    assert np.array_equal(levelled.predict(inputs) == 7, rare > bar)
    assert np.mean(rare > 0.5) < np.mean(rare > bar)
    assert np.allclose(levelled.predict_proba(inputs).sum(axis=1), 1)
    assert levelled.classes_.tolist() == [3, 7]  # so that a student that asks in rounds can be one


def test_records_become_rows() -> None:
    assert flat(INPUTS).shape == (60, 12)
    assert flat(np.zeros((5,))).shape == (5, 1)
    assert flat(np.zeros((0, 8, 8))).shape == (0, 64)


def test_files_that_hold_anything_else_are_refused(tmp_path: Path) -> None:
    import skops.io
    from sklearn.preprocessing import FunctionTransformer

    skops.io.dump(FunctionTransformer(func=np.linalg.svd), tmp_path / "code.skops")
    with pytest.raises(DataError, match=r"scikit-learn models only. Got .* in code.skops"):
        load(tmp_path / "code.skops")
    (tmp_path / "text.skops").write_text("no model")
    with zipfile.ZipFile(tmp_path / "zip.skops", "w") as archive:
        archive.writestr("other", "content")
    for name in ("text.skops", "zip.skops", "none.skops"):
        with pytest.raises(DataError, match=f"stored by this package. Got {name}"):
            load(tmp_path / name)


# ── teachers and students made of them ────────────────────────────────────────────────────────────────────────────────


def test_teachers_learn_from_their_own_shard_alone() -> None:
    private = tt.Private.of(INPUTS, TARGETS)
    shards = private.split(5, seed=0)
    teachers = tt.EstimatorTeachers("neighbours")
    said: list[tuple[int, int]] = []
    teachers.fit(private, shards, progress=lambda done, total: said.append((done, total)))
    assert len(teachers) == 5
    assert said == [(k, 5) for k in range(1, 6)]
    votes = teachers.vote(INPUTS)
    assert votes.shape == (5, 60)
    own = [estimator("neighbours").fit(flat(INPUTS[shards[k]]), TARGETS[shards[k]]).predict(flat(INPUTS)) for k in range(5)]
    right: list[bool] = []
    votes.map(lambda opened: right.append(np.array_equal(opened, np.stack(own))) or opened)
    assert right == [True]


def test_a_shard_with_one_class_makes_a_constant_teacher() -> None:
    private = tt.Private.of(INPUTS[:4], np.asarray([2, 2, 2, 2]))
    teachers = tt.EstimatorTeachers("kernel").fit(private, private.split(2))
    seen: list[int] = []
    teachers.vote(INPUTS[:3]).map(lambda opened: seen.extend(np.unique(opened).tolist()) or opened)
    assert seen == [2]


def test_teachers_vote_after_they_have_learned() -> None:
    with pytest.raises(DataError, match="`teachers` must be fitted before they vote"):
        tt.EstimatorTeachers().vote(INPUTS)
    with pytest.raises(RecipeError, match="`kind` must be one of"):
        tt.EstimatorTeachers("oracle")


@pytest.mark.parametrize("student", [tt.SupervisedStudent, tt.SpreadingStudent])
def test_students_live_with_few_answers(student: type, tmp_path: Path) -> None:
    public = tt.Public.of(INPUTS)
    nothing = np.full(60, -1)
    assert (student("kernel").fit(public, nothing).predict(INPUTS) == 0).all()
    one = nothing.copy()
    one[7] = 2
    constant = student("kernel").fit(public, one)
    assert (constant.predict(INPUTS) == 2).all()
    path = constant.save(tmp_path / "student")
    assert path == tmp_path / "student.skops"
    assert (load(path).predict(flat(INPUTS)) == 2).all()


def test_spreading_outvotes_a_wrong_answer_and_reaches_the_unanswered() -> None:
    generator = np.random.default_rng(1)
    truth = np.arange(200) % 2
    points = generator.normal(size=(200, 2)) * 0.3 + truth[:, None] * 4.0
    labels = np.where(np.arange(200) < 60, truth, -1)
    labels[:6] = 1 - labels[:6]  # six wrong answers of sixty
    model = tt.SpreadingStudent("kernel").fit(tt.Public.of(points), labels)
    assert (model.predict(points) == truth).all()
