//! Accuracy of predictions against measured runs, and the fit of a stack's constants.
//!
//! Data flow:
//! 1. `runs` and `published` read a file of runs, in the user's form or in that of published collections.
//! 2. The estimator predicts each run (`score`).
//! 3. `summary` summarises errors by source, and `ranks` compares the configurations of one job by rank.
//! 4. `fit` searches a stack's fitted constants within their intervals, and `folds` judges them on runs that the fit has not
//!    seen. `few_runs` fits no more constants than few runs can tell apart.
//! 5. `report` writes the tables as a document.
//!
//! ```
//! use estimator::Estimator;
//! use meshwright_accuracy::{by_source, read, score};
//!
//! // One run a line: what ran, and how long a step took.
//! let runs = read(
//!     r#"{"model":"llama3-8b","cluster":"h100","stack":"nemo","gpus":8,"seq":8192,"global_batch":128,"precision":"bf16","parallel":"tp=2,sp=true,zero=1","step_time_s":12.0}"#,
//! )?;
//! let scored = score(&Estimator::new(), &runs);
//! println!("predicted / measured: {:.2}", scored[0].ratio().unwrap());
//! assert_eq!(by_source(&scored)[0].rows, 1);
//! # Ok::<(), compiler::error::Error>(())
//! ```

mod chances;
mod few_runs;
mod fit;
mod folds;
mod kinds;
mod published;
mod ranks;
mod regimes;
mod report;
mod residual;
mod runs;
mod score;
mod summary;

pub use chances::{ChanceRange, memory_chances};
pub use few_runs::{FewFit, fit_few};
pub use fit::{Fit, RUNS_EACH, fit};
pub use folds::{Fold, folds};
pub use kinds::by_kind;
pub use ranks::{Misplaced, RankSet, RankTotal, rank_sets, total};
pub use regimes::{regimes, regimes_stated};
pub use report::document;
pub use residual::{residual, stated};
pub use runs::{MemoryKind, Run, read, write};
pub use score::{Prediction, Scored, score};
pub use summary::{Summary, by_source, by_stack, memory_by_source, memory_by_stack, summary};
