//! Small models trained on meshes, and compared.

pub(crate) mod compare;
pub(crate) mod processes;
pub(crate) mod record;
pub(crate) mod text;
pub(crate) mod trained;
pub(crate) mod training;
