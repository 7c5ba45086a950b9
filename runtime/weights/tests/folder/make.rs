//! Folders with random weights, as `transformers` would save them.

use meshwright_weights::{Description, Names};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A tensor: element type, shape, bytes.
pub(crate) type Made = (Dtype, Vec<usize>, Vec<u8>);

/// Tensors by name.
pub(crate) type Tensors = BTreeMap<String, Made>;

/// Numbers that all formats have exactly, another one for each element of a model.
pub(crate) fn number(at: usize) -> f32 {
    (at % 251) as f32 / 8.0 - 15.0
}

fn bytes(dtype: Dtype, number: f32) -> Vec<u8> {
    match dtype {
        Dtype::BF16 => ((number.to_bits() >> 16) as u16).to_le_bytes().to_vec(),
        // A normal number of few digits: sign, exponent with another bias, and the first bits of the rest.
        Dtype::F16 if number == 0.0 => vec![0, 0],
        Dtype::F16 => {
            let bits = number.to_bits();
            let half = (bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff);
            (half as u16).to_le_bytes().to_vec()
        }
        _ => number.to_le_bytes().to_vec(),
    }
}

/// All tensors of a configuration.
pub(crate) fn tensors(config: &str, dtype: Dtype) -> Tensors {
    let names = Names::of(&Description::read(config).unwrap(), 8, &|_, _| false).unwrap();
    let pieces = names.sources.values().flat_map(|source| &source.pieces);
    let mut at = 0;
    let mut made = Tensors::new();
    for piece in pieces {
        if !made.contains_key(&piece.tensor) {
            let shape: Vec<usize> = piece.shape.iter().map(|&size| size as usize).collect();
            let count: usize = shape.iter().product();
            let data = (at..at + count).flat_map(|at| bytes(dtype, number(at))).collect();
            at += count;
            made.insert(piece.tensor.clone(), (dtype, shape, data));
        }
    }
    made
}

/// Writes a folder with one file, or with several and an index.
pub(crate) fn folder(config: &str, tensors: &Tensors, files: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config).unwrap();
    let mut map = BTreeMap::new();
    for number in 0..files {
        let name = if files == 1 { "model.safetensors".into() } else { format!("model-{number}.safetensors") };
        let own: Tensors = tensors
            .iter()
            .enumerate()
            .filter(|(at, _)| at % files == number)
            .map(|(_, (k, v))| (k.clone(), v.clone()))
            .collect();
        map.extend(own.keys().map(|tensor| (tensor.clone(), name.clone())));
        write(&folder.path().join(name), &own);
    }
    if files > 1 {
        let index = json!({"metadata": {}, "weight_map": map}).to_string();
        fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    }
    folder
}

/// Writes one file.
pub(crate) fn write(path: &Path, tensors: &Tensors) {
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap()));
    fs::write(path, serialize(views, None).unwrap()).unwrap();
}
