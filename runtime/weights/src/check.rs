//! The comparison of a folder's tensors with those that a model needs, before anything is loaded.

use crate::error::Error;
use crate::folder::{FileTensor, Folder, float};
use crate::layout::Piece;
use crate::names::{Conventions, Names};
use ir::diag::nearest;
use std::collections::BTreeSet;

/// Ends of the names of tensors that only quantised models have.
const QUANTISED: [&str; 9] =
    ["weight_scale_inv", "weight_scale", "input_scale", "qweight", "qzeros", "_blocks", "_scales", "absmax", ".SCB"];

/// Ends of the names of tensors that follow from the configuration: masks, rotary frequencies and rates of decay.
const BUFFERS: [&str; 9] = [
    "rotary_emb.inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
    ".slope_rate",
    ".query_decay",
    ".key_decay",
    ".diagonal_decay",
];

/// Ends of the names of tensors with a row for each token.
const VOCABULARIES: [&str; 5] =
    ["wte.weight", "embed_tokens.weight", "embed_in.weight", "lm_head.weight", "embed_out.weight"];

/// Prefixes of the text model's tensors where the model reads images, too; the second stands for `model.`.
const INNER: [&str; 2] = ["language_model.", "model.language_model."];

/// The tensor of a full name, which files of a family may have without the name of the model, or in a part for text.
pub(crate) fn find<'a>(folder: &'a Folder, family: Option<&Conventions>, name: &str) -> Option<&'a FileTensor> {
    let mut names = vec![name.to_string()];
    if let Some(family) = family {
        names.extend(name.strip_prefix(family.base).map(str::to_string));
        if family.is_composite {
            names.push(format!("{}{name}", INNER[0]));
            names.extend(name.strip_prefix("model.").map(|rest| format!("{}{rest}", INNER[1])));
        }
    }
    names.iter().find_map(|name| folder.tensors.get(name))
}

/// The name of a tensor of the text model without the prefix that it has in a model that reads images, too.
fn of_text(name: &str) -> Option<String> {
    match name.strip_prefix(INNER[0]) {
        Some(rest) => Some(rest.to_string()),
        None => Some(format!("model.{}", name.strip_prefix(INNER[1])?)),
    }
}

/// Compares the tensors with those that the model needs.
///
/// # Errors
/// Some are missing, not needed, quantised, or of other formats or shapes.
pub(crate) fn check(folder: &Folder, names: &Names) -> Result<(), Error> {
    let needed = needed(names);
    let mut others = folder.tensors.keys().filter(|name| !needed.contains(name.as_str()));
    if let Some(name) = others.find(|name| QUANTISED.iter().any(|end| name.ends_with(end))) {
        let what = "a part of a quantised model".to_string();
        return Err(Error::Format { folder: folder.path.clone(), tensor: name.clone(), what });
    }
    for name in &needed {
        let Some(tensor) = find(folder, names.family.as_ref(), name) else { continue };
        if float(tensor.format).is_none() {
            let what = format!("{:?}", tensor.format);
            return Err(Error::Format { folder: folder.path.clone(), tensor: (*name).to_string(), what });
        }
    }
    let missing = missing(folder, names, &needed);
    let surplus = surplus(folder, names, &needed)?;
    if !missing.is_empty() || !surplus.is_empty() {
        let fix = fix(names, &missing, &surplus);
        return Err(Error::Names { folder: folder.path.clone(), missing, surplus, fix });
    }
    check_shapes(folder, names)
}

/// The names of the tensors that the model needs.
fn needed(names: &Names) -> BTreeSet<&str> {
    let pieces = names.sources.values().flat_map(|source| &source.pieces);
    pieces.map(|piece| piece.tensor.as_str()).collect()
}

/// Compares the tensors that the model needs, whatever others there are.
///
/// # Errors
/// Some are missing, or of other formats or shapes.
pub(crate) fn check_needed(folder: &Folder, names: &Names) -> Result<(), Error> {
    let missing = missing(folder, names, &needed(names));
    if !missing.is_empty() {
        let fix =
            "give the archive that the model was exported to, or its weights under the names of its modules".into();
        return Err(Error::Names { folder: folder.path.clone(), missing, surplus: Vec::new(), fix });
    }
    check_shapes(folder, names)
}

/// The needed tensors that are not there.
fn missing(folder: &Folder, names: &Names, needed: &BTreeSet<&str>) -> Vec<String> {
    let missing = needed.iter().filter(|name| find(folder, names.family.as_ref(), name).is_none());
    missing.map(|name| (*name).to_string()).collect()
}

/// Compares the shapes of tensors, none of which is missing.
fn check_shapes(folder: &Folder, names: &Names) -> Result<(), Error> {
    for piece in names.sources.values().flat_map(|source| &source.pieces) {
        let tensor = find(folder, names.family.as_ref(), &piece.tensor).expect("none is missing");
        if tensor.shape != piece.shape {
            return Err(shape(folder, names, piece, tensor));
        }
    }
    Ok(())
}

/// Names that the model does not need. The matrix of a tied head may be there if it is the embedding.
fn surplus(folder: &Folder, names: &Names, needed: &BTreeSet<&str>) -> Result<Vec<String>, Error> {
    let others = folder.tensors.iter().filter(|(name, _)| !needed.contains(name.as_str()));
    let Some(family) = &names.family else { return Ok(others.map(|(name, _)| name.clone()).collect()) };
    let mut surplus = Vec::new();
    for (name, tensor) in others {
        let inner = of_text(name).filter(|_| family.is_composite);
        if family.is_composite && inner.as_ref().is_none_or(|name| needed.contains(name.as_str())) {
            // A tensor of the part that reads images, or one that the model needs.
            continue;
        }
        let name = inner.as_ref().unwrap_or(name);
        let full = format!("{}{name}", family.base);
        if needed.contains(full.as_str()) {
            continue;
        }
        if let Some([_, embedding]) = family.tied.filter(|[head, _]| name == head || name == "lm_head.weight") {
            let Some(found) = find(folder, Some(family), embedding) else { continue };
            if (found.format, &found.shape) == (tensor.format, &tensor.shape) && folder.is_same(found, tensor)? {
                continue;
            }
            let (folder, head) = (folder.path.clone(), name.clone());
            return Err(Error::Untied { folder, head, embedding: embedding.to_string() });
        }
        let layer = full.rsplit_once("layers.").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
        let is_further = layer.is_some_and(|layer: u32| family.further.contains(&layer));
        if !is_further
            && !names.constants.contains_key(&full)
            && !names.constants.contains_key(name)
            && !BUFFERS.iter().any(|end| name.ends_with(end))
        {
            surplus.push(name.clone());
        }
    }
    Ok(surplus)
}

fn shape(folder: &Folder, names: &Names, piece: &Piece, tensor: &FileTensor) -> Error {
    let (folder, name) = (folder.path.clone(), piece.tensor.clone());
    let (found, wanted) = (tensor.shape.clone(), piece.shape.clone());
    let is_vocabulary = names.family.is_some() && VOCABULARIES.iter().any(|end| name.ends_with(end));
    if is_vocabulary && found.len() == 2 && found[1..] == wanted[1..] {
        return Error::Vocabulary { folder, tensor: name, found: found[0], wanted: wanted[0] };
    }
    let fix = match names.family {
        Some(_) => "use the config.json that belongs to the weights",
        None => "declare the parameter with the sizes of the tensor, or save the tensor with those of the parameter",
    };
    Error::Shape { folder, tensor: name, found, wanted, fix: fix.to_string() }
}

/// The fix for tensors that are missing or not needed.
fn fix(names: &Names, missing: &[String], surplus: &[String]) -> String {
    let Some(family) = &names.family else {
        let rule = "tensors have the names of the parameters, as `layer.3.w1` for `%layer[3].w1`";
        let mut near = missing.iter().map(|name| (name, nearest(name, surplus.iter().map(String::as_str))));
        return match near.find_map(|(name, near)| Some((name, near?))) {
            Some((name, near)) => format!("{rule}: nearest to `{name}` is `{near}`"),
            None => rule.to_string(),
        };
    };
    if let [name] = missing
        && ["lm_head.weight", "embed_out.weight"].contains(&name.as_str())
    {
        return "if the head's matrix is the embedding, set `tie_word_embeddings` to true in config.json".into();
    }
    if !missing.is_empty() && missing.iter().all(|name| name.contains(&format!("layers.{}.", family.further.start))) {
        return "if the files lack the layers that predict further tokens, set `num_nextn_predict_layers` to 0 in config.json".into();
    }
    "use the config.json that belongs to the weights, and all files of the model".into()
}
