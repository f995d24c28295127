"""The error tree is the one drawn at the head of errors.py."""

import inspect

import pytest

from tutelage.privacy import errors

PARENTS = {
    "Error": (Exception,),
    "PrivacyError": (errors.Error,),
    "BudgetExceeded": (errors.PrivacyError,),
    "UnitOverlap": (errors.PrivacyError,),
    "Unsealed": (errors.PrivacyError,),
    "LedgerError": (errors.PrivacyError,),
    "RecipeError": (errors.Error, ValueError),
    "DataError": (errors.Error, ValueError),
    "FederationError": (errors.Error,),
    "HospitalRefused": (errors.FederationError,),
    "TooFewHospitals": (errors.FederationError,),
}
CLASSES = {name: thing for name, thing in vars(errors).items() if inspect.isclass(thing)}


def test_the_tree_holds_exactly_these_classes() -> None:
    assert {name: thing.__bases__ for name, thing in CLASSES.items()} == PARENTS


@pytest.mark.parametrize("name", PARENTS)
def test_every_class_is_drawn_at_the_head_of_the_file(name: str) -> None:
    assert any(line.strip(" │├└─").split()[:1] == [name] for line in (errors.__doc__ or "").splitlines())


@pytest.mark.parametrize("name", ["BudgetExceeded", "UnitOverlap", "Unsealed", "LedgerError"])
def test_privacy_errors_escape_a_caller_who_expects_bad_values(name: str) -> None:
    assert not issubclass(CLASSES[name], (ValueError, TypeError, OSError))


@pytest.mark.parametrize("name", PARENTS)
def test_a_message_survives_unchanged(name: str) -> None:
    assert str(CLASSES[name]("`x` must be R. Got v instead.")) == "`x` must be R. Got v instead."
