"""A whole audit: what must be caught is, what must not is not, and nothing leaves private/."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import tutelage as tt
from tutelage.audits.audit import audit, examine, exit_code
from tutelage.audits.canaries import declare, enter
from tutelage.audits.foreign import inspect
from tutelage.audits.pipeline import Pipeline, of_callable
from tutelage.audits.verdict import Claim
from tutelage.cli import app
from tutelage.data.dataset import Private, Public
from tutelage.privacy import mechanisms
from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import embedded, run

EIGHT = Claim(8.0, 1e-5, 1.666031)


def records() -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int64)


def nearest(private: Private) -> Any:
    """A student that remembers every record."""
    held = private.units != ""
    return KNeighborsClassifier(1).fit(private.inputs[held], private.targets[held])


def blind() -> Any:
    """Make models that never use the private data, and differ from run to run."""
    inputs, labels = records()
    chance = np.random.default_rng(0)

    def train(private: Private) -> Any:
        drawn = chance.choice(400, 200)
        return LogisticRegression(max_iter=50, tol=1e-2).fit(inputs[drawn], labels[drawn])

    return train


def line(train: Any, **more: Any) -> Pipeline:
    inputs, labels = records()
    return of_callable(train, Private.of(inputs[400:700], labels[400:700]), classes=10, **more)


def test_a_student_that_remembers_is_caught() -> None:
    population = Public.of(*(part[:200] for part in records()))
    found = examine(line(nearest, population=population, public_data=True), EIGHT, shadows=8, canaries=40)
    assert found.refuted
    assert found.line.startswith("REFUTED.")
    assert "μ ≥" in found.findings[-1]
    assert exit_code(found, asked=False) == 3
    assert next(iter(found.curves.values())).at(1e-2).tpr > 0.9
    assert {"LiRA, fixed variance", "RMIA", "loss", "modified entropy"} <= set(found.curves)


def test_a_model_that_never_saw_the_data_covers_chance() -> None:
    found = examine(line(blind()), EIGHT, shadows=8, canaries=40)
    assert not found.refuted
    for bound in found.bounds:
        assert bound.epsilon < 0.5
    assert 0.4 < next(iter(found.curves.values())).auc < 0.6


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from importlib import resources

    text = resources.files("tutelage.recipes").joinpath("digits.toml").read_text(encoding="utf-8")
    text = text.replace("= 100\n", "= 20\n").replace("queries = 200", "queries = 60")
    return run(parse(text), tmp_path_factory.mktemp("audits") / "run").folder.root


def test_a_run_is_audited_and_nothing_leaves_private(finished: Path) -> None:
    before = {path: path.read_bytes() for path in (finished / "release").iterdir()}
    lines: list[str] = []
    found = audit(finished, shadows=4, canaries=20, say=lines.append)
    assert not found.refuted
    assert found.line.startswith("Not refuted: ε = 8")
    assert found.game is not None
    assert 0.4 * found.claim.mu < found.game.mu < found.claim.mu
    assert "3 more take about" in lines[0]
    assert before == {path: path.read_bytes() for path in (finished / "release").iterdir()}
    folder = finished / "private" / "audit"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path.name
    page = (folder / "audit.html").read_text(encoding="utf-8")
    assert page.index("Not refuted") < page.index("<h2>")
    assert "the scores are independent" in page
    assert "the private data is public anyway" in page.lower()
    document = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    assert document["claim"]["epsilon"] == pytest.approx(8)
    with np.load(folder / "records.npz") as rows:
        assert rows["RMIA"].shape == rows["inside"].shape == (4, 20)
    lines.clear()
    audit(finished, shadows=4, canaries=20, say=lines.append)
    assert lines == []  # every shadow run was kept


def test_a_run_that_answered_fewer_questions_is_played_by_what_was_charged(finished: Path) -> None:
    found = audit(finished, shadows=0)
    assert found.queries == found.game.queries == 60
    assert found.game.charged.mu == pytest.approx(found.claim.mu)


def test_half_the_noise_is_caught_by_the_command(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = mechanisms.rounded_gaussian
    monkeypatch.setattr(mechanisms, "rounded_gaussian", lambda scale, shape: real(scale / 2, shape))
    with pytest.raises(SystemExit) as ended:
        app(["audit", str(finished), "--shadows", "0"])
    assert ended.value.code == 3
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith("REFUTED. The mechanism leaks more than its ledger charged")
    assert "REFUTED" in (finished / "private" / "audit" / "audit.html").read_text(encoding="utf-8")


def test_a_falsified_guarantee_is_caught(finished: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    place = copy / "release" / "guarantee.json"
    document = json.loads(place.read_text(encoding="utf-8"))
    place.write_text(json.dumps({**document, "epsilon": 1.0, "mu": 0.2687}), encoding="utf-8")
    found = audit(copy, shadows=0)
    assert len(found.findings) == 2
    assert found.findings[0].startswith("The release does not verify")
    assert "leaks more than is claimed" in found.findings[1]  # what it does betrays it, whatever its files say
    assert exit_code(found, asked=False) == 3


def test_private_figures_have_no_exit_code_unless_asked() -> None:
    found = examine(line(nearest), EIGHT, shadows=4, canaries=40)
    assert found.refuted
    assert exit_code(found, asked=False) == 0
    assert exit_code(found, asked=True) == 3
    with pytest.raises(Unsealed, match="folder named 'private'"):
        found.write(Path("elsewhere"))
    assert "nobody has paid" in found.report()


def test_shadow_runs_are_kept_under_everything_that_shapes_them(tmp_path: Path) -> None:
    folder, made = tmp_path / "private" / "shadows", []

    def counted(private: Private) -> Any:
        made.append(len(private))
        return nearest(private)

    examine(line(counted, key="nearest"), EIGHT, shadows=4, canaries=20, folder=folder)
    assert len(made) == 4
    examine(line(counted, key="nearest"), EIGHT, shadows=4, canaries=20, folder=folder)
    assert len(made) == 4
    next(folder.glob("*/00002.npz")).write_bytes(b"cut off")
    examine(line(counted, key="nearest"), EIGHT, shadows=4, canaries=20, folder=folder)
    assert len(made) == 5
    inputs, labels = records()
    changed = inputs[400:700].copy()
    changed[5, 3] += 0.1
    other = of_callable(counted, Private.of(changed, labels[400:700]), classes=10, key="nearest")
    examine(other, EIGHT, shadows=4, canaries=20, folder=folder)
    examine(line(counted, key="another"), EIGHT, shadows=4, canaries=20, folder=folder)
    examine(line(counted), EIGHT, shadows=4, canaries=20, folder=folder)  # without a name nothing is kept
    assert len(made) == 5 + 12
    with pytest.raises(Unsealed):
        examine(line(counted, key="nearest"), EIGHT, shadows=4, canaries=20, folder=tmp_path / "public")


# ── one model of anybody's ────────────────────────────────────────────────────────────────────────────────────────────


def halves() -> tuple[Any, Any]:
    inputs, labels = records()
    order = np.random.default_rng(0).permutation(len(inputs))
    return (inputs[order[:800]], labels[order[:800]]), (inputs[order[800:1600]], labels[order[800:1600]])


def test_an_overfitted_model_is_caught_and_an_honest_one_is_not() -> None:
    members, others = halves()
    noisy = np.where(np.random.default_rng(1).random(800) < 0.3, (members[1] + 1) % 10, members[1])
    loud = RandomForestClassifier(20, random_state=0, bootstrap=False).fit(members[0], noisy)
    found = inspect(loud, (members[0], noisy), others, claim=Claim(0.3, 1e-5))
    assert found.refuted
    assert all("coin" in bound.assumption for bound in found.bounds)
    inputs, labels = records()
    stranger = LogisticRegression(max_iter=200).fit(inputs[-197:], labels[-197:])
    fair = inspect(stranger, members, others, claim=Claim(0.3, 1e-5))
    assert not fair.refuted
    assert fair.bounds[0].epsilon < 0.2


def test_a_stored_model_is_audited_by_the_command(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, (inputs, labels) in zip(("in", "out"), halves(), strict=True):
        np.savez(tmp_path / f"{name}.npz", inputs=inputs.reshape(-1, 8, 8), targets=labels)
    model = str(finished / "release" / "student.skops")
    with pytest.raises(SystemExit) as ended:
        app(
            [
                "audit",
                "--model",
                model,
                "--members",
                str(tmp_path / "in.npz"),
                "--non-members",
                str(tmp_path / "out.npz"),
                "--json",
            ]
        )
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["attacks"]["loss"]["members"] == 800
    assert document["attacks"]["loss"]["tpr_at_fpr"]["0.001"]["needed"] == 1000


def test_a_torch_module_and_a_function_are_models() -> None:
    torch = pytest.importorskip("torch")
    members, others = halves()
    module = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.Dropout(0.5))
    found = tt.audit(model=module, members=members, non_members=others)
    again = tt.audit(model=module, members=members, non_members=others)
    assert module.training
    assert found.curves["loss"].auc == again.curves["loss"].auc  # without drop-out
    shares = np.full((1, 10), 0.1)
    flat = tt.audit(model=lambda inputs: np.repeat(shares, len(inputs), axis=0), members=members, non_members=others)
    assert flat.curves["loss"].auc == 0.5


def test_what_proves_nothing_is_refused_with_the_number_needed() -> None:
    members, others = halves()
    model = nearest(Private.of(*members))
    mixed = np.concatenate([others[0][:700], members[0][:18]]), np.concatenate([others[1][:700], members[1][:18]])
    with pytest.raises(DataError, match="Got 18 of 718 that are there too"):
        inspect(model, members, mixed)
    with pytest.raises(DataError, match="at least 100 records"):
        inspect(model, members, (others[0][:99], others[1][:99]))
    with pytest.raises(DataError, match="Got 800 of 800 records with others"):
        tt.audit(model=lambda inputs: np.full((len(inputs), 10), np.nan), members=members, non_members=others)
    with pytest.raises(RecipeError, match="at least 40: half"):
        examine(line(nearest), EIGHT, shadows=4, canaries=9)
    with pytest.raises(RecipeError, match="`run` or `model`"):
        tt.audit()
    with pytest.raises(RecipeError, match="given together"):
        tt.audit(model=model, members=members, non_members=others, epsilon=1.0)


def test_a_run_without_a_recipe_needs_a_pipeline(finished: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "release" / "recipe.toml").unlink()
    with pytest.raises(RecipeError, match="made from Python objects"):
        audit(copy)
    shutil.rmtree(copy / "private")
    with pytest.raises(RecipeError, match="`out` must be a folder where RUN is a release"):
        audit(copy)


class Remembered:
    """A segmentation model that knows the masks it learned, and guesses the mean of them elsewhere."""

    def __init__(self, private: Private) -> None:
        held = private.units != ""
        self.masks = {row.tobytes(): mask for row, mask in zip(private.inputs[held], private.targets[held], strict=True)}
        self.mean = private.targets[held].mean(axis=0)

    def probabilities(self, inputs: np.ndarray) -> np.ndarray:
        known = [0.5 * self.masks.get(row.tobytes(), self.mean) + 0.5 * self.mean for row in inputs]
        return np.stack(known)


def test_masks_are_attacked_by_volume() -> None:
    rng = np.random.default_rng(0)
    masks = np.zeros((60, 12, 12), dtype=np.float32)
    for mask, (top, left) in zip(masks, rng.integers(1, 6, (60, 2)), strict=True):
        mask[top : top + 5, left : left + 5] = 1
    private = Private.of(rng.random((60, 12, 12)).astype(np.float32), masks)
    found = examine(of_callable(Remembered, private, classes=0), EIGHT, shadows=8, canaries=20)
    assert found.refuted
    assert "shifted" in found.canaries
    assert set(found.curves) == {"LiRA, fixed variance", "mean cross-entropy", "Dice"}
    assert found.curves["LiRA, fixed variance"].auc > 0.99


def test_a_run_with_canaries_of_its_own_is_bounded_by_its_coins(tmp_path: Path) -> None:
    inputs, labels = records()
    private, public = Private.of(inputs[:600], labels[:600]), tt.Public.of(inputs[700:900])
    canaries, rest = declare("mislabelled", private, 60, classes=10)
    out = tmp_path / "run"
    full = enter(rest, canaries, out)
    assert stat.S_IMODE((out / "private" / "canaries.npz").stat().st_mode) == 0o600
    assert full.places == 660
    given: dict[str, Any] = {
        "codec": tt.Votes(10),
        "budget": tt.Budget(8.0, 1e-5),
        "shards": 20,
        "queries": 30,
        "controls": False,
    }
    tt.transfer(
        full,
        public,
        teachers=tt.EstimatorTeachers("neighbours"),
        student=lambda: tt.SupervisedStudent("neighbours"),
        out=out,
        **given,
    )
    assert np.array_equal(enter(rest, canaries, out).units, full.units)  # the coins are thrown once
    with pytest.raises(RecipeError, match="those that this run began with"):
        enter(rest, declare("blank", private, 60, classes=10)[0], out)
    found = audit(out, pipeline=line(nearest), shadows=0)
    assert [bound.method for bound in found.bounds] == ["one run", "one run, Gaussian"]
    assert sum((found.bounds[0].members, found.bounds[0].others)) == 60
    assert not found.refuted
    assert found.bounds[0].epsilon < 1
    (out / "private" / "canaries.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"`canaries.npz` must be"):
        audit(out, pipeline=line(nearest), shadows=0)


@pytest.mark.slow
def test_the_demo_with_sixteen_shadow_runs(tmp_path: Path) -> None:
    folder = run(embedded("digits"), tmp_path / "run").folder.root
    found = audit(folder, shadows=16, canaries=20)
    assert not found.refuted
    assert found.seconds < 180


def test_a_recipe_for_masks_is_repeated_with_shifted_masks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = """
name = "tiny"
[data]
set = "scenes"
size = 16
private = 24
public = 10
test = 6
[privacy]
epsilon = 50.0
delta = 1e-5
[teachers]
kind = "unet"
shards = 3
widths = [8]
steps = 4
batch = 4
[codec]
kind = "dct"
kept = 20
norm = 7.0
[aggregation]
method = "mean"
queries = 6
[student]
learner = "masks"
widths = [8]
[student.masks]
steps = 4
batch = 4
"""
    folder = run(parse(text), tmp_path / "run").folder.root
    found = audit(folder, shadows=4, canaries=10)
    assert not found.refuted
    assert found.models == 4
    assert list(found.curves) == ["LiRA, fixed variance", "mean cross-entropy", "Dice"]
    assert found.game is not None
    assert found.public_data
