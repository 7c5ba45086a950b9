//! `offload=auto`: as few layers in host memory as must be.

use super::candidate::Stepped;
use super::error::Error;
use cost::Stack;
use ir::options::Offload;

/// The least offload under which every device fits in its budget, and the step: no layers, the first few layers of each stage,
/// or everything. If nothing fits, everything is offloaded.
///
/// # Errors
/// The errors of `under`.
pub(super) fn as_needed(
    mut under: impl FnMut(Offload) -> Result<Stepped, Error>,
    budget: f64,
    stack: &Stack,
) -> Result<(Offload, Stepped), Error> {
    let none = under(Offload::None)?;
    let fits = |stepped: &Stepped| stepped.floor().bytes <= budget;
    if fits(&none) {
        return Ok((Offload::None, none));
    }
    let layers = &none.blocks.outline.layers;
    let layers_of =
        |runs: &std::ops::Range<usize>| runs.end.min(layers.end).saturating_sub(runs.start.max(layers.start));
    let most = none.staged.loads.iter().map(|load| layers_of(&load.runs)).max().unwrap_or(0) as u32;
    let all = Offload::All(Some(most));
    let whole = if most > 0 && stack.supports.offload_layers != Some(false) { Some(under(all)?) } else { None };
    let Some(whole) = whole.filter(fits) else { return Ok((Offload::All(None), under(Offload::All(None))?)) };
    // One layer more leaves less on every device: the least number that fits is between none and all.
    let (mut best, mut low, mut high) = ((all, whole), 0, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let offload = Offload::All(Some(middle));
        let stepped = under(offload)?;
        if fits(&stepped) { (best, high) = ((offload, stepped), middle) } else { low = middle }
    }
    Ok(best)
}
