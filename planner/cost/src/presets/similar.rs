//! Attention kernels of a similar device, for devices of which none is measured.

use super::CLUSTERS;
use crate::base_file::BaseFile;
use crate::cluster::{Cluster, Device};
use crate::preset_error::{PresetError, toml_error};
use ir::catalogue::Code;

/// Value of `attention_like` for a device without such kernels.
const NONE: &str = "none";

/// Takes the attention kernels of the preset that a device names, or else of the most similar one: that whose peak and memory
/// bandwidth differ least, by their ratios.
///
/// # Errors
/// No preset has the name, or it has no measured kernels.
pub(super) fn take_attention(device: &mut Device) -> Result<(), PresetError> {
    let like = match device.attention_like.as_deref() {
        Some(NONE) => return Ok(()),
        Some(name) => named(name)?,
        None => {
            let measured = CLUSTERS.iter().filter_map(|preset| read(preset.text).ok());
            let measured = measured.filter(|cluster| !cluster.device.attention.is_empty());
            let apart = measured.map(|cluster| (difference(device, &cluster.device), cluster));
            match apart.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, cluster)| cluster) {
                Some(nearest) => nearest,
                None => return Ok(()),
            }
        }
    };
    device.attention_like = Some(like.name);
    device.attention = like.device.attention;
    Ok(())
}

/// A preset with measured kernels.
fn named(name: &str) -> Result<Cluster, PresetError> {
    let cluster = read(&BaseFile::cluster(name)?.text)?;
    if cluster.device.attention.is_empty() {
        let message = format!("`device.attention_like` is `{name}`, which has no measured attention kernels");
        return Err(PresetError::wrong(Code::BadCluster, message));
    }
    Ok(cluster)
}

/// A preset as its file states it. Files of presets with measured kernels begin from no other.
fn read(text: &str) -> Result<Cluster, PresetError> {
    toml::from_str(text).map_err(|why| toml_error(Code::BadCluster, &why))
}

/// Difference of two devices: the logarithms of the ratios of their peaks and of their memory bandwidths.
fn difference(a: &Device, b: &Device) -> f64 {
    (a.flops_bf16 / b.flops_bf16).ln().abs() + (a.memory_bandwidth / b.memory_bandwidth).ln().abs()
}
