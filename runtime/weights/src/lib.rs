//! Weights in the form of the Hugging Face hub: folders of `safetensors` with a `config.json`.
//!
//! [`Names`] maps the parameters of a model to the tensors that `transformers` gives them: its families' names, transposed
//! and joined matrices, and experts that are stored one by one. [`Weights`] reads a folder into a run, box by box, and
//! [`export()`] writes the parameters of a checkpoint as such a folder, tensor by tensor and without devices.
//!
//! A dim of a parameter walks through a tensor in equal steps (`layout`). Every rank therefore reads boxes of files by
//! place, and an export makes each tensor once, for all shards. Names and shapes are checked before a load.
//!
//! ```
//! use meshwright_weights::{Description, Names};
//!
//! let text = r#"{"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 16, "vocab_size": 32}"#;
//! let description = Description::read(text)?;
//! let names = Names::of(&description, 16, &|_, _| false)?;
//! let piece = &names.sources["layer.0.wk"].pieces[0];
//! assert_eq!((piece.tensor.as_str(), &piece.shape[..]), ("transformer.h.0.attn.c_attn.weight", &[8, 24][..]));
//! # Ok::<(), ir::models::ConfigError>(())
//! ```

#[cfg(feature = "pt2")]
mod archive;
mod check;
mod described;
mod description;
mod error;
mod export;
mod fingerprint;
mod folder;
mod header;
mod import;
mod layout;
mod merge;
mod names;
mod shards;

pub use described::described;
pub use description::{Description, differences, leave_out_further};
pub use error::Error;
pub use export::{Export, Exported, MOST_SHARDS, OutFormat, export};
pub use folder::snapshot;
pub use import::{Weights, lacks_further};
pub use layout::{Piece, Source, Stride};
pub use names::{Names, Present};
