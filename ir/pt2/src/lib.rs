//! Models that `torch.export` recorded, as `.pt2` archives store them.
//!
//! An import goes through these steps:
//!
//! 1. The archive (`archive`) gives the graph (`graph`) and the tensors (`stored`).
//! 2. The nodes become statements over dims that are inferred (`lower`, `atoms`). What depends on sizes and buffers alone is computed by
//!    the interpreter (`eval`): masks and rotary tables are known by their elements.
//! 3. Dims get names and roles (`names`). Statements are cut into blocks (`blocks`), between which values cross, and equal layers become
//!    instances of one block (`making`).
//! 4. The [`Template`] builds the model for any batch. Ops that are spelled in primitives are recognised then.
//!
//! [`Export::logits`] runs the recorded graph, so that a caller can compare an import with it by numbers.

mod archive;
mod atoms;
mod blocks;
mod error;
mod eval;
mod fault;
mod graph;
mod in_place;
mod lower;
mod making;
mod names;
mod program;
mod refusal;
mod schema;
mod steps;
mod stored;
mod sums;
mod template;

pub use error::{Error, NodePlace};
pub use stored::StoredTensor;
pub use template::Template;

use archive::Archive;
use eval::{ElementKind, Item, Tensor};
use fault::Fault;
use graph::{Recording, ValueId};
use names::Names;
use schema::{ProgramJson, SCHEMA};
use std::collections::BTreeMap;
use std::path::Path;

/// An exported model.
pub struct Export {
    archive: Archive,
    graph: Recording,
    /// Sizes of parameters, by their types in the graph.
    sizes: BTreeMap<ValueId, Vec<u64>>,
    tensors: BTreeMap<String, StoredTensor>,
}

impl Export {
    /// Opens an archive and reads its graph.
    ///
    /// # Errors
    /// It cannot be read, is damaged, has another schema, or takes more than token ids.
    pub fn open(path: &Path) -> Result<Export, Error> {
        let archive = Archive::open(path)?;
        let names: Vec<&str> = archive.names("models/").filter(|name| name.ends_with(".json")).collect();
        let [name] = names.as_slice() else {
            return Err(archive.damaged("has no graph, or several: `models/` must have one .json file".to_string()));
        };
        let json = archive.file(name)?.unwrap_or_default();
        let value: serde_json::Value =
            serde_json::from_slice(&json).map_err(|why| archive.damaged(format!("`{name}` is no JSON: {why}")))?;
        let major = value["schema_version"]["major"].as_u64();
        if major != Some(SCHEMA) {
            let found = major.map_or("none".to_string(), |major| major.to_string());
            return Err(archive.damaged(format!("its schema has version {found}; this version reads {SCHEMA}")));
        }
        let program: ProgramJson =
            serde_json::from_value(value).map_err(|why| archive.damaged(format!("`{name}` is no graph: {why}")))?;
        let types = program.graph_module.graph.tensor_values.clone();
        let inputs = program.graph_module.signature.parameter_names();
        let graph = Recording::read(program).map_err(|fault| match fault {
            Fault::Damaged(why) => archive.damaged(format!("`{name}` is no graph: {why}")),
            Fault::Unsupported(why) => Error::Unsupported { at: Default::default(), why },
        })?;
        let tensors = stored::stored(&archive)?;
        let mut sizes = BTreeMap::new();
        for (value, parameter) in &graph.parameters {
            let meta = inputs.get(parameter).and_then(|name| types.get(name));
            let own = meta.and_then(stored::sizes_of);
            let own = own.ok_or_else(|| archive.damaged(format!("the parameter `{parameter}` has no sizes")))?;
            if tensors.get(parameter).is_some_and(|tensor| tensor.sizes != own) {
                return Err(
                    archive.damaged(format!("the parameter `{parameter}` has other sizes in the graph than its file"))
                );
            }
            sizes.insert(*value, own);
        }
        Ok(Export { archive, graph, sizes, tensors })
    }

    /// The path of the archive.
    pub fn path(&self) -> &Path {
        self.archive.path()
    }

    /// Reads the whole archive and compares its files with their checksums.
    ///
    /// # Errors
    /// A file has other bytes than were written.
    pub fn check_sums(&self) -> Result<(), Error> {
        self.archive.check_sums()
    }

    /// The stored tensors by name: parameters, buffers and constants.
    pub fn tensors(&self) -> &BTreeMap<String, StoredTensor> {
        &self.tensors
    }

    /// The model of the graph.
    ///
    /// # Errors
    /// A node has no meaning in the language, or the graph is no decoder of equal layers.
    pub fn template(&self) -> Result<Template, Error> {
        let (lowering, logits) = lower::lower(&self.graph, &self.archive, &self.tensors, &self.sizes)?;
        let refuse = |node: usize, why: &str| self.graph.nodes[node].refuse(why);
        let (program, atoms) = (&lowering.program, &lowering.atoms);
        let names = Names::of(program, atoms, &lowering, logits, &refuse)?;
        let mut segments = blocks::segments(program, &self.graph, logits);
        segments.iter_mut().for_each(|segment| sums::order(program, atoms, segment));
        let stream = segments
            .first()
            .and_then(|first| first.outputs.first())
            .map_or(Vec::new(), |&var| program.dims(atoms, var));
        let tokens = [lowering.batch, lowering.sequence];
        let stream = stream.into_iter().filter(|atom| !tokens.contains(atom)).collect();
        let parameters = self.graph.parameters.iter().map(|(value, name)| (name.clone(), self.sizes[value].clone()));
        let buffers = self.graph.buffers.values();
        let buffers = buffers.filter_map(|name| Some((name.clone(), self.tensors.get(name)?.sizes.clone())));
        let shapes = parameters.chain(buffers).collect();
        let (ints, is_text) = (program.ints(), self.graph.is_text());
        let parts = template::Parts { shapes: &shapes, program, atoms, names: &names, stream, ints, is_text };
        Template::of(&parts, &segments, logits, &refuse)
    }

    /// Sequences and tokens that the graph can be run on: those that the export fixed, or the ones wanted.
    pub fn batch(&self, wanted: [u64; 2]) -> [u64; 2] {
        let fixed = self.graph.fixed();
        [0, 1].map(|at| fixed[at].unwrap_or(wanted[at]))
    }

    /// The numbers of all parameters.
    pub fn parameters(&self) -> u64 {
        self.sizes
            .values()
            .map(|sizes: &Vec<u64>| sizes.iter().fold(1, |all: u64, &size| all.saturating_mul(size)))
            .fold(0, u64::saturating_add)
    }

    /// True if the archive has the elements of all parameters.
    pub fn has_weights(&self) -> bool {
        self.graph.parameters.values().all(|name| self.tensors.contains_key(name))
    }

    /// The tensors that the graph takes for a number of sequences and tokens: name, sizes, and whether they are ids.
    pub fn inputs(&self, batch: [u64; 2]) -> Vec<ExportInput> {
        self.graph
            .inputs
            .iter()
            .map(|input: &graph::GraphInput| ExportInput {
                name: input.name.clone(),
                sizes: input.sizes_for(batch),
                is_int: input.is_int,
            })
            .collect()
    }

    /// True if the graph takes the tokens of a text alone.
    pub fn is_text(&self) -> bool {
        self.graph.is_text()
    }

    /// The logits of the recorded graph, f32[.., vocabulary], for the elements of each of its inputs.
    ///
    /// # Errors
    /// The archive lacks a parameter, an input has another number of elements, or a node cannot be run.
    pub fn logits(&self, inputs: &[Vec<f64>], batch: [u64; 2]) -> Result<Vec<f32>, Error> {
        let mut values: Vec<Option<Item>> = vec![None; self.graph.values];
        for (value, name) in self.graph.parameters.iter().chain(&self.graph.buffers) {
            let tensor = self
                .tensors
                .get(name)
                .ok_or_else(|| self.archive.damaged(format!("the tensor `{name}` is missing")))?;
            let item = tensor.read(&self.archive).map_err(|why| self.archive.damaged(format!("`{name}`: {why}")))?;
            values[value.index()] = Some(item);
        }
        for (place, input) in self.graph.inputs.iter().enumerate() {
            let sizes: Vec<usize> = input.sizes_for(batch).into_iter().map(|size| size as usize).collect();
            let kind = if input.is_int { ElementKind::Int } else { ElementKind::Float };
            let elements = inputs.get(place).filter(|own| own.len() == sizes.iter().product::<usize>());
            let elements = elements.ok_or_else(|| Error::of_graph(&format!("`{}` has another size", input.name)))?;
            values[input.value.index()] = Some(Tensor::new(kind, sizes, elements.clone()).into());
        }
        let wanted = self.graph.outputs.first().copied();
        let wanted = wanted.ok_or_else(|| Error::of_graph("gives no result"))?;
        let logits = eval::run_all(&self.graph, values, wanted)?;
        Ok(logits.data.into_iter().map(|x| x as f32).collect())
    }
}

/// A tensor that a graph takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInput {
    /// Its name in the graph.
    pub name: String,
    /// Its sizes.
    pub sizes: Vec<u64>,
    /// Ids of a vocabulary; else numbers.
    pub is_int: bool,
}
