//! Log events of passes: the text after each pass, and the stages and the order once they are known.

use ir::staged::Stage;
use ir::text::{File, print};
use tracing::{debug, trace};

/// Logs the text after a pass at level `trace`.
pub(crate) fn log_text(pass: &str, file: &File) {
    trace!("after {pass}:\n{}", print(file));
}

/// Logs the stages and their order at level `debug`.
pub(crate) fn log_order(file: &File) {
    let stages = file.staged.iter().flat_map(|staged| &staged.stages);
    for (index, Stage { ranks, parts, cost }) in stages.enumerate() {
        let blocks: usize = parts.iter().map(|part| part.instances.len()).sum();
        debug!(?ranks, blocks, f_s = cost.f, i_s = cost.i, w_s = cost.w, "stage {index}");
    }
    if let Some(schedule) = &file.schedule {
        debug!("order of the pipeline ranks:\n{schedule}");
    }
}
