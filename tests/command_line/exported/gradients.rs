//! Gradients of exported models next to PyTorch's, on one device and on several.

use super::{archive, unpacked};
use codegen::buffers::assign_buffers;
use cost::PROGRAM;
use flate2::read::GzDecoder;
use ir::models::{Batch, ImportedModel, TensorSource};
use ir::optimizer::Optimizer;
use ir::options::PlanOptions;
use ir::types::DType;
use meshwright::compiler::parallel;
use meshwright::compiler::pipeline::{PipelineOptions, compile};
use meshwright::runtime::exec::{Executor, Input, Options, StepInput};
use pt2::Export;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weights::Weights;

/// Archives with gradients next to them, and layouts. Stored gradients are rounded to a share of the largest of a tensor.
const CASES: [(&str, &[&str]); 6] = [
    ("glm", &["", "tp=2"]),
    ("deepseek_v3", &["", "dp=2,ep=2"]),
    ("apertus", &["", "pp=2"]),
    ("mlp", &["", "dp=2"]),
    ("vit", &[""]),
    ("encoder-decoder", &["", "dp=2"]),
];

/// The share of the largest gradient of a tensor that stored ones are multiples of, and as much again for sums in another order.
const STORED: f64 = 2.0 / 128.0;

/// A tensor of a file of cases.
struct Stored {
    sizes: Vec<u64>,
    numbers: Vec<f64>,
}

fn stored(bytes: &[u8]) -> BTreeMap<String, Stored> {
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let read = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let words = view.data().chunks_exact(4).map(|word| <[u8; 4]>::try_from(word).unwrap());
        let numbers = match view.dtype() {
            Dtype::I32 => words.map(|word| f64::from(i32::from_le_bytes(word))).collect(),
            _ => words.map(|word| f64::from(f32::from_le_bytes(word))).collect(),
        };
        (name, Stored { sizes: view.shape().iter().map(|&size| size as u64).collect(), numbers })
    };
    tensors.tensors().into_iter().map(read).collect()
}

/// The gradients of a step, by the names of PyTorch.
fn gradients(path: &Path, given: &BTreeMap<String, Stored>, layout: &str) -> BTreeMap<String, Vec<f64>> {
    let template = Export::open(path).unwrap().template().unwrap();
    let sizes = &given["input.0"].sizes;
    let batch = Batch { batch: sizes[0], seq: sizes.get(1).copied().unwrap_or(1), dtype: DType::F32 };
    let request = PipelineOptions {
        options: PlanOptions::of(parallel::parse(layout).unwrap()),
        quantisation: None,
        fusion: true,
        optimizer: Optimizer::default(),
        microbatches: 1,
        stop_after: None,
    };
    let model = template.build(&batch).unwrap();
    let file = compile(model.into(), &request, &PROGRAM, &mut |_, _| {}).unwrap();
    let mut program = file.program.clone().unwrap();
    assign_buffers(&file.model, &mut program, None);
    let mut executor = Executor::load(&file.model, &program, &Options::default()).unwrap();
    Arc::new(Weights::open_exported(path, &template).unwrap()).load(&mut executor).unwrap();
    let names: Vec<String> = Export::open(path).unwrap().inputs([1, 1]).into_iter().map(|input| input.name).collect();
    let ints = |name: &str| given[name].numbers.iter().map(|&x| x as i32).collect::<Vec<i32>>();
    let inputs = file.model.inputs.iter().map(|input| {
        let (name, count) = (file.model.values[input.value].as_str(), input.ty.elements());
        let own = names.iter().position(|own| own == name || names.len() == 1 && name == "tok");
        let numbers = match (name, own) {
            (_, Some(own)) if input.ty.dtype.is_float() => {
                Input::Floats(given[&format!("input.{own}")].numbers.iter().map(|&x| x as f32).collect())
            }
            (_, Some(own)) => Input::Ints(ints(&format!("input.{own}"))),
            ("lab", _) => Input::Ints(ints("labels")),
            ("pos", _) => Input::Ints((0..count).map(|at| (at % batch.seq) as i32).collect()),
            _ => Input::Ints(vec![0; count as usize]),
        };
        (input.value, numbers)
    });
    let valid_tokens = given["labels"].numbers.len() as u64;
    let step =
        StepInput { microbatches: vec![inputs.collect()], valid_tokens, loss_scale: 1.0, lr: 0.0, step: 1, update: 1 };
    executor.step(step).unwrap();
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, gradient) in executor.gradients().unwrap() {
        let source = &template.sources()[&name];
        let count: u64 = source.shape.iter().product();
        let whole = all.entry(source.tensor.clone()).or_insert_with(|| vec![0.0; count as usize]);
        for (place, number) in places(source).into_iter().zip(&gradient.data) {
            whole[place] += f64::from(*number);
        }
    }
    all
}

/// The places in its tensor of a parameter's elements.
fn places(source: &TensorSource) -> Vec<usize> {
    let mut places = vec![source.first as usize];
    for &(size, step) in &source.dims {
        places = places.iter().flat_map(|&place| (0..size).map(move |at| place + (at * step) as usize)).collect();
    }
    places
}

/// Compares the gradients of an archive with PyTorch's, which may be off by a share of the largest of each tensor.
fn compared(name: &str, path: &Path, file: &[u8], layout: &str, most: f64) {
    let given = stored(file);
    let own = gradients(path, &given, layout);
    let wanted = given.iter().filter_map(|(name, tensor)| Some((name.strip_prefix("gradient.")?, tensor)));
    let mut count = 0;
    let largest_of = |numbers: &[f64]| numbers.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let all = given.iter().filter(|(name, _)| name.starts_with("gradient."));
    let least = 1e-3 * all.map(|(_, tensor)| largest_of(&tensor.numbers)).fold(0.0, f64::max);
    for (tensor, wanted) in wanted {
        let largest = largest_of(&wanted.numbers).max(least);
        // A tied tensor has two names, of which PyTorch lists one.
        let length = wanted.numbers.len();
        let mut tied = own.iter().filter(|(name, _)| !given.contains_key(&format!("gradient.{name}")));
        let other = tied.find(|(_, numbers)| numbers.len() == length).map(|(_, numbers)| numbers.clone());
        let found = own.get(tensor).cloned().or(other).unwrap_or_else(|| vec![0.0; length]);
        let apart = found.iter().zip(&wanted.numbers).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(
            apart <= most * largest,
            "{name} on `{layout}`: the gradient of {tensor} is off by {apart} of {largest}"
        );
        count += 1;
    }
    assert!(count > 3, "{name}: {count} gradients");
}

#[test]
fn gradients_are_those_of_pytorch() {
    for (name, layouts) in CASES {
        let (_folder, path) = unpacked(name);
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/exported/{name}.gradients.gz"));
        let mut bytes = Vec::new();
        GzDecoder::new(fs::File::open(file).unwrap()).read_to_end(&mut bytes).unwrap();
        assert!(!archive(name).is_empty());
        layouts.iter().for_each(|layout| compared(name, &path, &bytes, layout, STORED));
    }
}

/// The folder that `tests/exported/families.py` writes: archives, with gradients in f32 next to them.
#[test]
#[ignore = "tests/exported/families.py makes the archives"]
fn gradients_of_families() {
    let folder = PathBuf::from(std::env::var_os("MESHWRIGHT_EXPORTS").expect("a folder"));
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut count = 0;
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "pt2")) {
        let bytes = fs::read(path.with_extension("gradients")).unwrap();
        compared(&path.display().to_string(), &path, &bytes, "", 1e-4);
        count += 1;
    }
    println!("{count} models have the gradients of PyTorch");
}
