//! How near predictions come to measured runs, and the constants of a stack that bring them nearest.
//!
//! The way of the data: a file of runs is read, in the user's form or in that of published collections (`runs`,
//! `published`); the estimator predicts each (`score`); errors are summed up by source (`summary`), layouts of one job are
//! compared by rank (`ranks`); a stack's fitted constants are searched within their intervals (`fit`), and judged on runs
//! that the fit has not seen (`folds`); the tables are a document (`report`).

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
