"""Every error this package raises on purpose.

    Error
    ├── PrivacyError                never caught inside the package
    │   ├── BudgetExceeded          the answer would cost more than the budget holds; nothing was read
    │   ├── UnitOverlap             one unit's records reached two shards
    │   ├── Unsealed                a private value was about to be looked at
    │   └── LedgerError             the book is foreign, damaged, tampered with, busy or cannot be written
    ├── RecipeError (ValueError)    a parameter breaks its rule
    ├── DataError (ValueError)      data is missing or malformed
    └── FederationError
        ├── HospitalRefused
        └── TooFewHospitals

Messages have one form: *`x` must be R. Got v instead.* An error is a release too, so no private value ever stands in one.
"""

from __future__ import annotations


class Error(Exception):
    """Root of the tree."""


class PrivacyError(Error):
    """A rule that protects people was about to be broken."""


class BudgetExceeded(PrivacyError):
    """The budget does not hold the price of the question."""


class UnitOverlap(PrivacyError):
    """Shards share a unit, so that one person would sit behind two teachers."""


class Unsealed(PrivacyError):
    """Code tried to look at a sealed value."""


class LedgerError(PrivacyError):
    """The book cannot be trusted or written."""


class RecipeError(Error, ValueError):
    """A parameter breaks its rule."""


class DataError(Error, ValueError):
    """Data is missing or malformed."""


class FederationError(Error):
    """Something between institutions failed."""


class HospitalRefused(FederationError):
    """A hospital's own policy said no."""


class TooFewHospitals(FederationError):
    """Not enough hospitals answered for the promised noise."""
