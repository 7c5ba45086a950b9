//! Accuracy of predictions against measured runs, and the fit of a stack's constants.
//!
//! Data flow:
//! 1. `runs` and `published` read a file of runs, in the user's form or in that of published collections.
//! 2. The estimator predicts each run (`score`).
//! 3. `summary` summarises errors by source, and `ranks` compares the configurations of one job by rank.
//! 4. `fit` searches a stack's fitted constants within their intervals, and `folds` judges them on runs that the fit has not
//!    seen.
//! 5. `report` writes the tables as a document.

mod fit;
mod folds;
mod published;
mod ranks;
mod report;
mod runs;
mod score;
mod summary;

pub use fit::{Fit, fit};
pub use folds::{Fold, folds};
pub use ranks::{Misplaced, RankSet, RankTotal, rank_sets, total};
pub use report::document;
pub use runs::{MemoryKind, Run, read, write};
pub use score::{Prediction, Scored, score};
pub use summary::{Summary, by_source, memory_by_source, summary};
