//! The JSON of a graph as `torch.export` writes it: schema 8, of which unknown fields are ignored.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The major version of the schema.
pub(crate) const SCHEMA: u64 = 8;

#[derive(Deserialize)]
pub(crate) struct ProgramJson {
    pub(crate) graph_module: GraphModule,
}

#[derive(Deserialize)]
pub(crate) struct GraphModule {
    pub(crate) graph: GraphJson,
    pub(crate) signature: Signature,
}

/// Inputs, outputs and arguments are unions: objects with one key, which names the kind.
#[derive(Deserialize)]
pub(crate) struct GraphJson {
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    pub(crate) nodes: Vec<NodeJson>,
    pub(crate) tensor_values: BTreeMap<String, TensorMeta>,
}

#[derive(Deserialize)]
pub(crate) struct NodeJson {
    pub(crate) target: String,
    pub(crate) inputs: Vec<Named>,
    pub(crate) outputs: Vec<Value>,
    #[serde(default)]
    pub(crate) metadata: Map<String, Value>,
}

#[derive(Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) arg: Value,
}

/// The type of a tensor.
#[derive(Clone, Deserialize)]
pub(crate) struct TensorMeta {
    pub(crate) dtype: u64,
    pub(crate) sizes: Vec<Value>,
    #[serde(default)]
    pub(crate) strides: Vec<Value>,
    #[serde(default)]
    pub(crate) storage_offset: Option<Value>,
}

#[derive(Deserialize)]
pub(crate) struct Signature {
    pub(crate) input_specs: Vec<Map<String, Value>>,
    pub(crate) output_specs: Vec<Map<String, Value>>,
}

impl Signature {
    /// The name in the graph of each parameter.
    pub(crate) fn parameter_names(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().map(str::to_string);
        let specs = self.input_specs.iter().filter_map(|spec| spec.get("parameter"));
        specs.filter_map(|spec| Some((text(&spec["parameter_name"])?, text(&spec["arg"]["name"])?))).collect()
    }
}

/// The list of the tensors of a folder of the archive.
#[derive(Deserialize)]
pub(crate) struct TensorList {
    pub(crate) config: BTreeMap<String, TensorFile>,
}

#[derive(Deserialize)]
pub(crate) struct TensorFile {
    pub(crate) path_name: String,
    #[serde(default)]
    pub(crate) use_pickle: bool,
    pub(crate) tensor_meta: Option<TensorMeta>,
}
