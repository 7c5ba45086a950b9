//! Step time and memory of a layout, predicted: no program is made, and no device is needed.
//!
//! The way of the data: a request names a model, a cluster, a stack and a layout (`request`); the layout is made to fit the
//! devices (`place`); the model's blocks are planned on the axes below pp and priced (`blocks`); stages are cut (`stages`),
//! ordered and simulated (`pipeline`); what data-parallel ranks exchange is added by numbers (`replicas`), as is memory
//! (`memory`); all of it together is a step (`step`) and a [`EstimateReport`]. An [`Estimator`] keeps what layouts share.

mod auto;
mod blocks;
mod desk;
mod estimator;
mod fitting;
mod floor;
mod keys;
mod least;
mod many;
mod memo;
mod memory;
mod order;
mod ordered;
mod path;
mod pipeline;
mod place;
mod recipe;
mod replicas;
mod report;
mod request;
mod resize;
mod shape;
mod stages;
mod step;
mod tensors;
mod work;

pub(crate) use desk::{Ask, Desk};
pub use estimator::Estimator;
pub(crate) use fitting::Means;
pub(crate) use floor::Floor;
pub(crate) use many::estimate_until;
pub use many::{Line, estimate_all};
pub(crate) use memo::Once;
pub use memory::ModelStates;
pub(crate) use place::pinned;
pub use recipe::recipe;
pub use report::{
    Comm, EstimateReport, MadeAgain, Memory, Mesh, Predicted, SCHEMA, StageMemory, StageReport, TimeShares,
};
pub(crate) use request::check_size;
pub use request::{EstimateRequest, MEMORY_MARGIN};
pub(crate) use work::{Undecided, Work};
