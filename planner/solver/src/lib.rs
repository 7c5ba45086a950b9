//! Abstract optimisation: programs of 0/1 and real variables. Knows no tensor.
