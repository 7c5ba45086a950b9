//! The languages of Meshwright: types, ops, text form, autodiff, verifiers.
